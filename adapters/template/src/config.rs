//! What a user may set.

use sandbox_bench_core::{Error, ErrorKind, Result};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// REPLACE: where the official client sends its requests.
const API_URL: &str = "https://api.example.com";
/// REPLACE: the variable that the official client reads its key from.
const KEY: &str = "TEMPLATE_API_KEY";

/// Settings of the backend. All are optional; credentials come from the environment alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TemplateConfig {
    /// Address of the API. Default: `TEMPLATE_API_URL`, else the vendor's.
    pub api_url: Option<String>,
    /// The most sandboxes at one time, if the account has a limit.
    pub max_concurrency: Option<u32>,
}

/// Where requests go and what they carry.
pub(crate) struct Access {
    /// Address of the API.
    pub(crate) url: String,
    /// The key.
    pub(crate) key: SecretString,
}

impl TemplateConfig {
    /// With what the environment says where the configuration says nothing. `variable` reads an environment variable.
    ///
    /// # Errors
    /// `Credentials` if there are none.
    pub(crate) fn access(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Access> {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let key = set(KEY).ok_or_else(|| {
            Error::new(ErrorKind::Credentials, "the template backend has no key").hint(format!("set {KEY}"))
        })?;
        let url = self.api_url.clone().or_else(|| set("TEMPLATE_API_URL")).unwrap_or_else(|| API_URL.to_owned());
        Ok(Access { url, key: key.into() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_configured_wins_over_the_environment() {
        let environment = |name: &str| Some(format!("env-{name}"));
        let config = TemplateConfig { api_url: Some("http://mine".into()), ..TemplateConfig::default() };
        assert_eq!(config.access(environment).unwrap().url, "http://mine");
        assert_eq!(TemplateConfig::default().access(environment).unwrap().url, "env-TEMPLATE_API_URL");
    }

    #[test]
    fn without_a_key_the_variable_is_named() {
        let error = TemplateConfig::default().access(|_| Some(" ".into())).err().unwrap();
        assert_eq!(*error.kind(), ErrorKind::Credentials);
        assert!(error.to_string().contains(KEY), "{error}");
    }
}
