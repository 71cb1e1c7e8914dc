//! Whose account it is: address, credential and region, found as the official client 0.226.1 finds them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use sandbox_bench_core::{Error, ErrorKind, Result};
use secrecy::SecretString;

/// The hosted platform.
const HOSTED: &str = "https://app.daytona.io/api";
/// Files of the working directory that may hold credentials, the first one winning.
const FILES: [&str; 2] = [".env.local", ".env"];

/// An account of the platform.
#[derive(Clone)]
pub struct Account {
    /// Base address of the API, without a slash at its end.
    pub api_url: String,
    /// What proves who we are.
    pub credential: Credential,
    /// Region of new sandboxes and snapshots; none: the organization's own.
    pub target: Option<String>,
}

/// What proves who we are.
#[derive(Clone)]
pub enum Credential {
    /// An API key (`dtn_…`).
    Key(SecretString),
    /// A JSON web token, which is good for several organizations.
    Token {
        /// The token.
        token: SecretString,
        /// The organization's id.
        organization: String,
    },
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("api_url", &self.api_url).field("target", &self.target).finish_non_exhaustive()
    }
}

impl Account {
    /// The account that the environment names, or the files `.env.local` and `.env` of the working directory: a variable
    /// of the process wins over one of a file. The address is never taken from a file, so that a file that lies in the
    /// working directory cannot send the credential elsewhere.
    ///
    /// # Errors
    /// `Credentials` if there is no credential.
    pub fn from_environment() -> Result<Self> {
        let files = FILES.map(|name| read(Path::new(name)));
        Self::find(|name| std::env::var(name).ok(), &files)
    }

    fn find(variable: impl Fn(&str) -> Option<String>, files: &[BTreeMap<String, String>]) -> Result<Self> {
        let given = |value: &String| !value.trim().is_empty();
        let process = |name: &str| variable(name).filter(given);
        let any =
            |name: &str| process(name).or_else(|| files.iter().find_map(|file| file.get(name).cloned()).filter(given));
        let secret = |name: &str| any(name).map(SecretString::from);
        let credential = match (secret("DAYTONA_API_KEY"), secret("DAYTONA_JWT_TOKEN")) {
            (Some(key), _) => Credential::Key(key),
            (None, Some(token)) => match any("DAYTONA_ORGANIZATION_ID") {
                Some(organization) => Credential::Token { token, organization },
                None => {
                    return Err(missing(
                        "DAYTONA_JWT_TOKEN is set, but not the organization that it is to be used for",
                    )
                    .hint("set DAYTONA_ORGANIZATION_ID"));
                }
            },
            (None, None) => {
                return Err(
                    missing("no credential for Daytona").hint("set DAYTONA_API_KEY to a key from the dashboard")
                );
            }
        };
        let api_url = process("DAYTONA_API_URL").or_else(|| process("DAYTONA_SERVER_URL"));
        let api_url = api_url.map_or_else(|| HOSTED.to_owned(), |url| url.trim_end_matches('/').to_owned());
        Ok(Self { api_url, credential, target: any("DAYTONA_TARGET") })
    }
}

fn missing(message: &str) -> Error {
    Error::new(ErrorKind::Credentials, message)
}

/// The variables of a file; what it does not have, or is no assignment, counts for nothing.
fn read(path: &Path) -> BTreeMap<String, String> {
    let lines = dotenvy::from_path_iter(path).into_iter().flatten();
    lines.filter_map(|line| line.ok()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use secrecy::ExposeSecret;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn find(process: &[(&str, &str)], files: &[BTreeMap<String, String>]) -> Result<Account> {
        let process = map(process);
        Account::find(|name| process.get(name).cloned(), files)
    }

    fn key(account: &Account) -> String {
        match &account.credential {
            Credential::Key(key) => key.expose_secret().to_owned(),
            Credential::Token { token, organization } => format!("{organization}:{}", token.expose_secret()),
        }
    }

    #[test]
    fn the_process_wins_over_files_and_the_first_file_over_the_second() {
        let files =
            [map(&[("DAYTONA_API_KEY", "local"), ("DAYTONA_TARGET", "eu")]), map(&[("DAYTONA_API_KEY", "env")])];
        assert_eq!(key(&find(&[("DAYTONA_API_KEY", "process")], &files).unwrap()), "process");
        let account = find(&[], &files).unwrap();
        assert_eq!((key(&account), account.target.as_deref()), ("local".to_owned(), Some("eu")));
        assert_eq!(key(&find(&[("DAYTONA_API_KEY", " ")], &files[1..]).unwrap()), "env");
    }

    #[test]
    fn an_address_from_a_file_is_ignored() {
        let file =
            map(&[("DAYTONA_API_KEY", "k"), ("DAYTONA_API_URL", "https://evil.example"), ("DAYTONA_SERVER_URL", "x")]);
        assert_eq!(find(&[], std::slice::from_ref(&file)).unwrap().api_url, HOSTED);
        let account =
            find(&[("DAYTONA_SERVER_URL", "http://old/"), ("DAYTONA_API_URL", "http://new/api/")], &[file]).unwrap();
        assert_eq!(account.api_url, "http://new/api");
    }

    #[test]
    fn a_key_wins_over_a_token_and_a_token_needs_its_organization() {
        let token = ("DAYTONA_JWT_TOKEN", "t");
        let organization = ("DAYTONA_ORGANIZATION_ID", "o");
        assert_eq!(key(&find(&[token, organization, ("DAYTONA_API_KEY", "k")], &[]).unwrap()), "k");
        assert_eq!(key(&find(&[token, organization], &[]).unwrap()), "o:t");
        for set in [&[token][..], &[organization], &[]] {
            let error = find(set, &[]).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Credentials);
            assert!(error.to_string().contains("DAYTONA_"), "{error}");
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let account = find(&[("DAYTONA_API_KEY", "hunter2")], &[]).unwrap();
        assert!(!format!("{account:?}").contains("hunter2"));
    }
}
