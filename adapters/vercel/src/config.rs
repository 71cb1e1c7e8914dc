//! What a user may set.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where the official clients send their requests.
const API_URL: &str = "https://vercel.com/api";
/// The image that the service starts when a request names none.
const BASE_IMAGE: &str = "vercel/sandbox/universal:latest";
/// What that image is documented to have (August 2026), of the commands that recipes may need.
const BASE_COMMANDS: [&str; 6] = ["python3", "uv", "node", "npm", "bun", "git"];

/// Settings of the Vercel backend. All are optional; credentials come from the environment alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VercelConfig {
    /// Address of the API. Default: `VERCEL_API_URL`, else `https://vercel.com/api`.
    pub api_url: Option<String>,
    /// Id of the team that pays. Default: `VERCEL_TEAM_ID`, else what the OIDC token says.
    pub team: Option<String>,
    /// Id or name of the project that sandboxes belong to. Default: `VERCEL_PROJECT_ID`, else what the OIDC token says.
    pub project: Option<String>,
    /// Region of sandboxes and snapshots, such as `iad1`. Default: `VERCEL_REGION`, else the service's.
    pub region: Option<String>,
    /// The team's plan, which sets the limits that are checked before anything is asked for.
    pub plan: AccountPlan,
    /// Task image → reference in the vendor's registry, such as `python:3.12` → `task-python:3.12`.
    pub images: BTreeMap<String, String>,
    /// Image of sandboxes that ask for the backend's general base.
    pub base_image: String,
    /// Legacy runtime (`node24`, `python3.13`, …) as the general base, instead of an image.
    pub runtime: Option<String>,
    /// Commands that the base has, of those that environment recipes may need.
    pub base_commands: Vec<String>,
    /// How long a warm artifact is kept, in days, where the request does not say; at least 1. What a sandbox leaves behind
    /// as the artifact's record is removed by the service after 14 days.
    pub artifact_days: u32,
}

impl Default for VercelConfig {
    fn default() -> Self {
        Self {
            api_url: None,
            team: None,
            project: None,
            region: None,
            plan: AccountPlan::default(),
            images: BTreeMap::new(),
            base_image: BASE_IMAGE.to_owned(),
            runtime: None,
            base_commands: BASE_COMMANDS.map(str::to_owned).to_vec(),
            artifact_days: 14,
        }
    }
}

/// A plan of the vendor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccountPlan {
    /// Sandboxes live at most 45 minutes, ten at one time.
    Hobby,
    /// Sandboxes live at most a day.
    #[default]
    Pro,
    /// As `pro`, with larger sandboxes.
    Enterprise,
}

impl AccountPlan {
    /// The longest life of a sandbox in seconds (documented in August 2026).
    pub(crate) fn lifetime_seconds(self) -> u64 {
        match self {
            Self::Hobby => 45 * 60,
            Self::Pro | Self::Enterprise => 24 * 3600,
        }
    }

    /// The most sandboxes at one time, where that is few.
    pub(crate) fn concurrency(self) -> Option<u32> {
        match self {
            Self::Hobby => Some(10),
            Self::Pro | Self::Enterprise => None,
        }
    }

    /// The most virtual CPUs of one sandbox.
    pub(crate) fn vcpus(self) -> u32 {
        match self {
            Self::Hobby => 4,
            Self::Pro => 8,
            Self::Enterprise => 32,
        }
    }
}

impl VercelConfig {
    /// With what the environment says where the configuration says nothing. `variable` reads an environment variable.
    #[must_use]
    pub(crate) fn resolved(&self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let or = |set: &Option<String>, name: &str| {
            set.clone().or_else(|| variable(name)).filter(|value| !value.trim().is_empty())
        };
        Self {
            api_url: or(&self.api_url, "VERCEL_API_URL").or_else(|| Some(API_URL.to_owned())),
            team: or(&self.team, "VERCEL_TEAM_ID"),
            project: or(&self.project, "VERCEL_PROJECT_ID"),
            region: or(&self.region, "VERCEL_REGION"),
            ..self.clone()
        }
    }

    /// The name of the general base, for evidence.
    pub(crate) fn base(&self) -> String {
        match &self.runtime {
            Some(runtime) => format!("runtime {runtime}"),
            None => self.base_image.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_configured_wins_over_the_environment() {
        let environment = |name: &str| Some(format!("env-{name}"));
        let config = VercelConfig { team: Some("team_mine".into()), ..VercelConfig::default() }.resolved(environment);
        assert_eq!(config.team.as_deref(), Some("team_mine"));
        assert_eq!(config.project.as_deref(), Some("env-VERCEL_PROJECT_ID"));
        assert_eq!(config.api_url.as_deref(), Some("env-VERCEL_API_URL"));
        let nothing = VercelConfig::default().resolved(|_| Some(" ".into()));
        assert_eq!((nothing.api_url.as_deref(), nothing.team), (Some(API_URL), None));
    }

    #[test]
    fn an_empty_configuration_is_the_default_and_typos_are_refused() {
        assert_eq!(serde_json::from_str::<VercelConfig>("{}").unwrap(), VercelConfig::default());
        let error = serde_json::from_str::<VercelConfig>(r#"{"regoin":"iad1"}"#).unwrap_err();
        assert!(error.to_string().contains("regoin"), "{error}");
        // Credentials have no place in a file.
        assert!(serde_json::from_str::<VercelConfig>(r#"{"token":"x"}"#).is_err());
    }
}
