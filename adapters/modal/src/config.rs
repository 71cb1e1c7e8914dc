//! What a user may set. The account is not part of it: see [`crate::Account`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

const DAY: Duration = Duration::from_secs(86_400);

/// Settings of the Modal backend. All are optional.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModalConfig {
    /// Name of the app that sandboxes belong to. It is made if it is missing.
    pub app: String,
    /// Image of sandboxes that ask for the backend's general base.
    pub base_image: String,
    /// Commands that the base has, of those that environment recipes may need.
    pub base_commands: Vec<String>,
    /// Region of sandboxes, such as `us-east`. Default: the vendor's choice, which costs least.
    pub region: Option<String>,
    /// Cloud provider of sandboxes, such as `aws`. Default: the vendor's choice.
    pub cloud: Option<String>,
    /// Runtime of sandboxes, `gvisor` or `vm`. Default: the vendor's choice.
    pub runtime: Option<String>,
    /// Minutes without a running command after which a sandbox goes; 0: never.
    pub idle_minutes: u32,
    /// How long a warm artifact is kept, in days, where the request does not say; at least 1.
    pub artifact_days: u32,
    /// Commands whose limit is longer than so many minutes write to files in the sandbox, which are read piece by piece: the
    /// vendor's streams are known to fail after an hour.
    pub spool_minutes: u32,
    /// The most sandboxes at one time that make sense.
    pub max_concurrency: Option<u32>,
    /// Which official client requests look like.
    pub client: ClientShape,
}

/// The official client that requests look like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientShape {
    /// The clients that are not Python (`libmodal`).
    #[default]
    Libmodal,
    /// The Python client 1.6.4.
    Python,
}

impl Default for ModalConfig {
    fn default() -> Self {
        Self {
            app: "sandbox-bench".to_owned(),
            base_image: "python:3.12-slim".to_owned(),
            base_commands: vec!["python3".to_owned(), "pip".to_owned()],
            region: None,
            cloud: None,
            runtime: None,
            idle_minutes: 0,
            artifact_days: 30,
            spool_minutes: 30,
            max_concurrency: Some(5),
            client: ClientShape::default(),
        }
    }
}

impl ModalConfig {
    /// How long a warm artifact is kept where the request does not say.
    pub(crate) fn kept(&self) -> Duration {
        DAY * self.artifact_days.max(1)
    }

    /// True if a command with this limit is to write to files.
    pub(crate) fn spools(&self, limit: Duration) -> bool {
        limit > Duration::from_secs(60) * self.spool_minutes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_empty_configuration_is_the_default_and_neither_typos_nor_credentials_are_taken() {
        assert_eq!(serde_json::from_str::<ModalConfig>("{}").unwrap(), ModalConfig::default());
        for odd in [r#"{"regoin":"x"}"#, r#"{"server_url":"https://elsewhere"}"#, r#"{"token_secret":"s"}"#] {
            assert!(serde_json::from_str::<ModalConfig>(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn only_long_commands_write_to_files() {
        let config = ModalConfig::default();
        assert!(!config.spools(Duration::from_secs(1800)) && config.spools(Duration::from_secs(1801)));
        let always = ModalConfig { spool_minutes: 0, ..config };
        assert!(always.spools(Duration::from_secs(1)));
    }
}
