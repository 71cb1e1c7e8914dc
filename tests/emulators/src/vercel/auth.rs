//! Who asks: access tokens, OIDC tokens, team and project.

use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::error::{ApiError, Result};
use super::options::VercelOptions;
use super::query::Query;
use super::session::now_ms;

/// The caller, who may use the team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// Its token names the project, so requests need not.
    knows_project: bool,
}

/// What an OIDC token claims; its signature is not looked at.
#[derive(Deserialize)]
struct Claims {
    owner_id: String,
    project_id: String,
    /// Seconds since the epoch.
    exp: u64,
}

impl VercelOptions {
    /// # Errors
    /// 401 for a token that is missing, unknown or expired; 403 for another team.
    pub(super) fn authenticate(&self, headers: &HeaderMap, query: &Query) -> Result<Caller> {
        let unauthorized = |message: &str| ApiError::new(StatusCode::UNAUTHORIZED, "forbidden", message);
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = value.and_then(|value| value.strip_prefix("Bearer "));
        let token = token.ok_or_else(|| unauthorized("The request is missing an authentication token."))?;
        let knows_project = match claims(token) {
            Some(claims) if claims.exp.saturating_mul(1000) <= now_ms() => {
                return Err(unauthorized("The authentication token has expired."));
            }
            Some(claims) if claims.owner_id != self.team_id || claims.project_id != self.project_id => {
                return Err(ApiError::forbidden("Not authorized: the token is for another project."));
            }
            Some(_) => true,
            None if self.tokens.iter().any(|known| known == token) => false,
            None => return Err(unauthorized("Not authorized: the token is not valid.")),
        };
        match (query.get("teamId"), query.get("slug")) {
            (Some(id), _) if id == self.team_id => {}
            (None, Some(slug)) if slug == self.team_slug => {}
            _ => return Err(ApiError::forbidden("Not authorized: no access to this team.")),
        }
        Ok(Caller { knows_project })
    }

    /// # Errors
    /// 403 for another project, and a violation if there is none though the caller's token does not say it.
    pub(super) fn check_project(&self, caller: Caller, project: Option<&str>) -> Result<()> {
        match project {
            Some(project) if project == self.project_id || project == self.project_name => Ok(()),
            Some(_) => Err(ApiError::forbidden("Not authorized: no access to this project.")),
            None if caller.knows_project => Ok(()),
            None => Err(ApiError::violation("Invalid request: should have required property `projectId`.")),
        }
    }
}

fn claims(token: &str) -> Option<Claims> {
    let mut parts = token.split('.');
    let (_, payload, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else { return None };
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn ask(token: Option<&str>, query: &str) -> std::result::Result<Caller, u16> {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        }
        let query = Query::of(&format!("/?{query}").parse().unwrap()).unwrap();
        VercelOptions::default().authenticate(&headers, &query).map_err(|error| error.status.as_u16())
    }

    fn oidc(team: &str, expires_in: i64) -> String {
        let exp = (now_ms() / 1000).saturating_add_signed(expires_in);
        let claims = json!({ "owner_id": team, "project_id": "prj_emulator", "exp": exp });
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn tokens_and_teams_are_told_apart() {
        let team = "teamId=team_emulator";
        assert_eq!(ask(None, team), Err(401));
        assert_eq!(ask(Some("wrong"), team), Err(401));
        assert_eq!(ask(Some("emulator-token"), ""), Err(403));
        assert_eq!(ask(Some("emulator-token"), "teamId=team_other"), Err(403));
        assert_eq!(ask(Some("emulator-token"), team), Ok(Caller { knows_project: false }));
        assert_eq!(ask(Some("emulator-token"), "slug=emulator"), Ok(Caller { knows_project: false }));
        assert_eq!(ask(Some(&oidc("team_emulator", 600)), team), Ok(Caller { knows_project: true }));
        assert_eq!(ask(Some(&oidc("team_other", 600)), team), Err(403));
        assert_eq!(ask(Some(&oidc("team_emulator", -1)), team), Err(401));
    }

    #[test]
    fn the_project_is_needed_unless_the_token_says_it() {
        let options = VercelOptions::default();
        let (token, oidc) = (Caller { knows_project: false }, Caller { knows_project: true });
        options.check_project(token, Some("prj_emulator")).unwrap();
        options.check_project(token, Some("bench")).unwrap();
        options.check_project(oidc, None).unwrap();
        assert!(options.check_project(token, None).unwrap_err().violation);
        assert_eq!(options.check_project(oidc, Some("prj_other")).unwrap_err().status, StatusCode::FORBIDDEN);
    }
}
