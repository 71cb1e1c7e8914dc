//! Whom the service takes us for: a token, a team and a project, by the vendor's own rules.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use sandbox_bench_core::{Error, ErrorKind, Result};
use secrecy::SecretString;
use serde::Deserialize;

use crate::config::VercelConfig;

/// Where an access token is looked for, in this order.
const TOKENS: [&str; 3] = ["VERCEL_TOKEN", "VERCEL_ACCESS_TOKEN", "VERCEL_API_KEY"];
const OIDC_TOKEN: &str = "VERCEL_OIDC_TOKEN";
const OIDC_FILE: &str = "VERCEL_OIDC_TOKEN_FILE";
const SET_UP: &str =
    "set VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID, or VERCEL_OIDC_TOKEN (`vercel env pull` fetches one)";

/// What every request carries.
#[derive(Debug)]
pub(crate) struct Credentials {
    /// Bearer token.
    pub(crate) token: SecretString,
    /// Which variable it came from.
    pub(crate) origin: &'static str,
    /// Id of the team.
    pub(crate) team: String,
    /// Id or name of the project.
    pub(crate) project: String,
    /// When the token ends, if it says so.
    pub(crate) expires: Option<Timestamp>,
}

/// What the adapter reads of an OIDC token. Its signature is the service's to check.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Claims {
    owner_id: Option<String>,
    project_id: Option<String>,
    exp: Option<i64>,
}

impl Credentials {
    /// An access token wins; with it team and project must be told. An OIDC token tells them itself; what is configured
    /// wins over its word. `config` is resolved. `variable` reads an environment variable.
    ///
    /// # Errors
    /// `Credentials`, naming what is missing.
    pub(crate) fn resolve(config: &VercelConfig, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let found = |origin: &'static str, token: String| (origin, SecretString::from(token.trim().to_owned()), token);
        let (origin, token, text) = match TOKENS.into_iter().find_map(|name| Some((name, variable(name)?))) {
            Some((name, token)) => found(name, token),
            None => match (variable(OIDC_TOKEN), variable(OIDC_FILE)) {
                (Some(token), _) => found(OIDC_TOKEN, token),
                (None, Some(file)) => found(OIDC_FILE, read(&file)?),
                (None, None) => return Err(refused("no credentials for Vercel").hint(SET_UP)),
            },
        };
        let oidc = [OIDC_TOKEN, OIDC_FILE].contains(&origin);
        // An access token may be such a token too, and then it has an end.
        let claims = match claims(&text) {
            Some(claims) => claims,
            None if oidc => return Err(refused(&format!("{origin} does not hold an OIDC token")).hint(SET_UP)),
            None => Claims::default(),
        };
        let team = config.team.clone().or(claims.owner_id);
        let project = config.project.clone().or(claims.project_id);
        let (Some(team), Some(project)) = (team.clone(), project.clone()) else {
            let missing = [("team (VERCEL_TEAM_ID)", team), ("project (VERCEL_PROJECT_ID)", project)];
            let missing: Vec<_> = missing.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| *name).collect();
            let message = format!("{origin} is set, but not the {}", missing.join(" and the "));
            return Err(refused(&message).hint(SET_UP));
        };
        let expires = claims.exp.and_then(|seconds| Timestamp::from_second(seconds).ok());
        Ok(Self { token, origin, team, project, expires })
    }
}

fn refused(message: &str) -> Error {
    Error::new(ErrorKind::Credentials, message)
}

fn read(file: &str) -> Result<String> {
    std::fs::read_to_string(file)
        .map_err(|e| refused(&format!("{OIDC_FILE} names {file}, which cannot be read")).because(e))
}

/// The claims of a JSON web token; none if the text is not one.
fn claims(token: &str) -> Option<Claims> {
    let mut parts = token.trim().split('.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use secrecy::ExposeSecret;

    use super::*;

    fn jwt(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    fn resolve(variables: &[(&str, &str)]) -> Result<Credentials> {
        let read = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Credentials::resolve(&VercelConfig::default().resolved(read), read)
    }

    #[test]
    fn an_access_token_wins_and_needs_team_and_project() {
        let oidc = jwt(r#"{"owner_id":"team_o","project_id":"prj_o"}"#);
        let ids = [("VERCEL_TEAM_ID", "team_a"), ("VERCEL_PROJECT_ID", "prj_a")];
        let names = ["VERCEL_API_KEY", "VERCEL_ACCESS_TOKEN", "VERCEL_TOKEN"];
        for (position, name) in names.into_iter().enumerate() {
            let mut all = vec![(OIDC_TOKEN, oidc.as_str()), ids[0], ids[1]];
            all.extend(names[..=position].iter().map(|name| (*name, *name)));
            let found = resolve(&all).unwrap();
            assert_eq!((found.origin, found.token.expose_secret()), (name, name));
            assert_eq!((found.team.as_str(), found.project.as_str()), ("team_a", "prj_a"));
        }
        let error = resolve(&[("VERCEL_TOKEN", "s3cret"), ids[0]]).unwrap_err();
        assert!(error.to_string().contains("not the project (VERCEL_PROJECT_ID)"), "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"));
        assert_eq!(*resolve(&[ids[0], ids[1]]).unwrap_err().kind(), ErrorKind::Credentials);
        // Set but empty is not set.
        assert_eq!(resolve(&[("VERCEL_TOKEN", ""), (OIDC_TOKEN, &oidc)]).unwrap().team, "team_o");
    }

    #[test]
    fn an_oidc_token_tells_team_project_and_end() {
        let token = jwt(r#"{"owner_id":"team_o","project_id":"prj_o","exp":1800000000,"more":[1]}"#);
        let found = resolve(&[(OIDC_TOKEN, &token)]).unwrap();
        assert_eq!((found.team.as_str(), found.project.as_str()), ("team_o", "prj_o"));
        assert_eq!(found.expires, Some(Timestamp::from_second(1_800_000_000).unwrap()));
        assert_eq!(resolve(&[(OIDC_TOKEN, &token), ("VERCEL_PROJECT_ID", "other")]).unwrap().project, "other");
        assert!(!format!("{found:?}").contains(&token));
        for bad in ["opaque", "a.b", "a.b.c.d", "a.!!.c", &jwt("[]")] {
            assert_eq!(*resolve(&[(OIDC_TOKEN, bad)]).unwrap_err().kind(), ErrorKind::Credentials, "{bad}");
        }
    }

    #[test]
    fn an_oidc_token_may_lie_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, jwt(r#"{"owner_id":"team_f","project_id":"prj_f"}"#) + "\n").unwrap();
        assert_eq!(resolve(&[(OIDC_FILE, path.to_str().unwrap())]).unwrap().team, "team_f");
        let error = resolve(&[(OIDC_FILE, "/no/such/file")]).unwrap_err();
        assert!(error.to_string().contains("/no/such/file"), "{error}");
    }

    proptest! {
        #[test]
        fn any_token_is_read_without_a_panic(token in "[a-zA-Z0-9._=-]{0,60}") {
            let _ = resolve(&[(OIDC_TOKEN, &token)]);
        }
    }
}
