//! What a user may set. The account is not part of it: see [`crate::Account`].

use serde::{Deserialize, Serialize};

/// Settings of the Daytona backend. All are optional.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DaytonaConfig {
    /// Image of sandboxes that ask for the backend's general base.
    pub base_image: String,
    /// Commands that the base has, of those that environment recipes may need.
    pub base_commands: Vec<String>,
    /// Snapshot to use as the base instead of an image. It starts sooner, but its size cannot be chosen.
    pub base_snapshot: Option<String>,
    /// Minutes without any request after which a sandbox stops, and so is deleted; 0: never. Running commands are
    /// asked after all the time, so only a sandbox that nobody uses is idle.
    pub auto_stop_minutes: u32,
    /// The most sandboxes at one time that make sense: by the organization's quota of vCPUs.
    pub max_concurrency: Option<u32>,
}

impl Default for DaytonaConfig {
    fn default() -> Self {
        Self {
            base_image: "python:3.12-slim".to_owned(),
            base_commands: vec!["python3".to_owned(), "pip".to_owned()],
            base_snapshot: None,
            auto_stop_minutes: 30,
            max_concurrency: None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_empty_configuration_is_the_default_and_neither_typos_nor_addresses_are_taken() {
        assert_eq!(serde_json::from_str::<DaytonaConfig>("{}").unwrap(), DaytonaConfig::default());
        for odd in [r#"{"base_imgae":"x"}"#, r#"{"api_url":"https://elsewhere"}"#, r#"{"api_key":"k"}"#] {
            assert!(serde_json::from_str::<DaytonaConfig>(odd).is_err(), "{odd}");
        }
    }
}
