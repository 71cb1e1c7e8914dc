//! Whose account it is, found as the official clients find it (Python package modal 1.6.4, `modal/config.py`): for each
//! setting the environment, then the active profile of `~/.modal.toml`, then a default.

use std::fmt;
use std::path::PathBuf;

use sandbox_bench_core::{Error, ErrorKind, Result};
use secrecy::{ExposeSecret, SecretString};
use tonic::transport::Uri;

/// The hosted service. The second address is its own stand-in and never asked from here.
const HOSTED: &str = "https://api.modal.com";
const FILE: &str = ".modal.toml";
const SET_UP: &str = "set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or run `modal token new`, which writes ~/.modal.toml";
/// Shorter secrets are not looked for in texts: they would be found everywhere.
const SHORTEST: usize = 6;

/// An account of the service.
#[derive(Clone)]
pub struct Account {
    /// Address of the control plane, `https://HOST[:PORT]`.
    pub server_url: String,
    /// Id of the token (`ak-…`).
    pub token_id: SecretString,
    /// Its secret (`as-…`).
    pub token_secret: SecretString,
    /// Environment of the workspace; empty: the workspace's default.
    pub environment: String,
    /// Version of the image builder; none: the environment's.
    pub builder_version: Option<String>,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("server_url", &self.server_url)
            .field("environment", &self.environment)
            .finish_non_exhaustive()
    }
}

impl Account {
    /// The account that the environment and the profile name. The file is `MODAL_CONFIG_PATH`, else `~/.modal.toml`; it need
    /// not be there.
    ///
    /// # Errors
    /// `Credentials` if there is no token, or the file cannot be used.
    pub fn from_environment() -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok();
        let named = variable("MODAL_CONFIG_PATH").filter(|value| given(value)).map(PathBuf::from);
        let path = named.or_else(|| std::env::home_dir().map(|home| home.join(FILE)));
        let text = match &path {
            None => String::new(),
            Some(path) => match std::fs::read_to_string(path) {
                Ok(text) => text,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
                Err(e) => return Err(refused(&format!("{} cannot be read", path.display())).because(e)),
            },
        };
        Self::find(variable, &text)
    }

    /// As [`Account::from_environment`], with `variable` for the variables of the environment and the text of the file.
    ///
    /// # Errors
    /// As [`Account::from_environment`].
    pub(crate) fn find(variable: impl Fn(&str) -> Option<String>, file: &str) -> Result<Self> {
        let profile = profile(file, variable("MODAL_PROFILE").filter(|value| given(value)).as_deref())?;
        let setting = |name: &str| {
            let in_file = || profile.get(name).and_then(|value| value.as_str()).map(str::to_owned);
            variable(&format!("MODAL_{}", name.to_uppercase()))
                .filter(|value| given(value))
                .or_else(|| in_file().filter(|value| given(value)))
        };
        let secret = |name: &str| setting(name).map(|value| SecretString::from(value.trim().to_owned()));
        let (Some(token_id), Some(token_secret)) = (secret("token_id"), secret("token_secret")) else {
            return Err(refused("no credentials for Modal").hint(SET_UP));
        };
        let url = setting("server_url").unwrap_or_else(|| HOSTED.to_owned());
        let first = url.split(',').next().unwrap_or_default();
        Ok(Self {
            server_url: first.trim().trim_end_matches('/').to_owned(),
            token_id,
            token_secret,
            environment: setting("environment").unwrap_or_default(),
            builder_version: setting("image_builder_version"),
        })
    }

    /// The address, which must be one.
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub(crate) fn uri(&self) -> Result<Uri> {
        let odd = |why: &str| Error::invalid(format!("MODAL_SERVER_URL cannot be an address: {why}"));
        let uri: Uri = self.server_url.parse().map_err(|_| odd("it is malformed"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(odd("it is not http:// or https://"));
        }
        if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(odd("it names no host, or a user"));
        }
        Ok(uri)
    }

    /// `text` with the token overwritten, should the service have repeated it.
    pub(crate) fn hide(&self, text: &str) -> String {
        let secrets = [&self.token_secret, &self.token_id].map(|secret| secret.expose_secret());
        let known = secrets.into_iter().filter(|secret| secret.len() >= SHORTEST);
        known.fold(text.to_owned(), |text, secret| text.replace(secret, "[secret]"))
    }
}

fn given(value: &str) -> bool {
    !value.trim().is_empty()
}

fn refused(message: &str) -> Error {
    Error::new(ErrorKind::Credentials, message)
}

/// The table of the profile that is to be used: the one that is asked for, else the active one, else `default`.
fn profile(file: &str, wanted: Option<&str>) -> Result<toml::Table> {
    // The message of the parser would quote the file, and so a secret.
    let all: toml::Table = file.parse().map_err(|_| refused("~/.modal.toml is no TOML file").hint(SET_UP))?;
    let table = |name: &str| all.get(name).and_then(toml::Value::as_table).cloned();
    if let Some(name) = wanted {
        return Ok(table(name).unwrap_or_default());
    }
    let active =
        |value: &toml::Value| value.as_table().and_then(|t| t.get("active")) == Some(&toml::Value::Boolean(true));
    let mut names = all.iter().filter(|(_, value)| active(value)).map(|(name, _)| name);
    match (names.next(), names.next()) {
        (Some(_), Some(_)) => Err(refused("~/.modal.toml has more than one active profile")
            .hint("choose one: `modal profile activate NAME`, or MODAL_PROFILE")),
        (Some(name), None) => Ok(table(name).unwrap_or_default()),
        (None, _) if all.len() > 1 => Err(refused("~/.modal.toml has several profiles and none is active")
            .hint("choose one: `modal profile activate NAME`, or MODAL_PROFILE")),
        (None, _) => Ok(table("default").unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn find(variables: &[(&str, &str)], file: &str) -> Result<Account> {
        Account::find(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()), file)
    }

    const TWO: &str = "[work]\ntoken_id = \"ak-w\"\ntoken_secret = \"as-w\"\nactive = true\n\
                       [home]\ntoken_id = \"ak-h\"\ntoken_secret = \"as-h\"\nenvironment = \"dev\"\n";

    #[test]
    fn the_environment_wins_over_the_profile_setting_by_setting() {
        let account = find(&[("MODAL_TOKEN_SECRET", "as-env"), ("MODAL_ENVIRONMENT", "test")], TWO).unwrap();
        assert_eq!((account.token_id.expose_secret(), account.token_secret.expose_secret()), ("ak-w", "as-env"));
        assert_eq!((account.environment.as_str(), account.server_url.as_str()), ("test", HOSTED));
        let home = find(&[("MODAL_PROFILE", "home"), ("MODAL_ENVIRONMENT", " ")], TWO).unwrap();
        assert_eq!((home.token_id.expose_secret(), home.environment.as_str()), ("ak-h", "dev"));
    }

    #[test]
    fn the_profile_is_the_active_one_else_the_default() {
        let default = "[default]\ntoken_id = \"ak-d\"\ntoken_secret = \"as-d\"\nserver_url = \"http://127.0.0.1:1/,x\"";
        let account = find(&[], default).unwrap();
        assert_eq!((account.token_id.expose_secret(), account.server_url.as_str()), ("ak-d", "http://127.0.0.1:1"));
        for (file, why) in [
            (TWO.replace("[home]\n", "[home]\nactive = true\n"), "more than one active"),
            (TWO.replace("active = true", "active = \"true\""), "none is active"),
            ("[default]\ntoken_id = \"ak-only\"".to_owned(), "no credentials"),
            ("[default\ntoken_secret = \"as-hidden\"".to_owned(), "no TOML"),
            (String::new(), "no credentials"),
        ] {
            let error = find(&[], &file).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Credentials);
            assert!(error.to_string().contains(why) && !error.to_string().contains("as-"), "{error}");
        }
    }

    #[test]
    fn an_address_that_is_none_is_refused_and_not_shown() {
        for odd in ["api.modal.com", "ftp://x", "https://user:as-secret@x", "https://", "x y"] {
            let account =
                find(&[("MODAL_TOKEN_ID", "ak-1"), ("MODAL_TOKEN_SECRET", "as-1"), ("MODAL_SERVER_URL", odd)], "");
            let error = account.unwrap().uri().unwrap_err();
            assert!(!error.to_string().contains("as-secret"), "{error}");
        }
    }

    #[test]
    fn what_is_shown_has_no_secret() {
        let account = find(&[("MODAL_TOKEN_ID", "ak-123456"), ("MODAL_TOKEN_SECRET", "as-123456")], "").unwrap();
        assert!(!format!("{account:?}").contains("123456"));
        assert_eq!(account.hide("bad token as-123456 of ak-123456"), "bad token [secret] of [secret]");
    }

    proptest! {
        #[test]
        fn any_file_is_read_without_a_panic(file in ".{0,200}") {
            let _ = find(&[], &file);
        }

        #[test]
        fn any_profile_is_read_without_a_panic(
            name in "[a-z]{1,5}",
            active in prop::sample::select(vec!["true", "1", "\"x\"", "[]", "{}"]),
            id in prop::sample::select(vec!["\"ak\"", "3"]),
        ) {
            let _ = find(&[], &format!("[{name}]\nactive = {active}\ntoken_id = {id}\n"));
        }
    }
}
