//! The account that the emulator plays.

use std::collections::BTreeMap;

use clap::Args;

/// Options of the program that concern the account.
#[derive(Args, Clone, Debug)]
pub struct Account {
    /// An image that was pushed to the project's registry
    #[arg(long = "pushed", value_name = "REPOSITORY:TAG")]
    pushed: Vec<String>,
    /// An image that was pushed but is not ready
    #[arg(long = "preparing", value_name = "REPOSITORY:TAG")]
    preparing: Vec<String>,
    /// Sandboxes at one time
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().concurrent_sessions)]
    concurrent: usize,
}

impl Account {
    /// The default account with these images and limits.
    pub fn config(&self) -> VercelConfig {
        let ready = self.pushed.iter().map(|name| (name.clone(), ImageState::Ready));
        let preparing = self.preparing.iter().map(|name| (name.clone(), ImageState::Preparing));
        VercelConfig {
            images: ready.chain(preparing).collect(),
            limits: Limits { concurrent_sessions: self.concurrent, ..Limits::default() },
            ..VercelConfig::default()
        }
    }
}

/// An account with one team and one project, its limits, and the images of its registry.
#[derive(Clone, Debug)]
pub struct VercelConfig {
    /// Access tokens that are accepted. OIDC tokens need not be listed: their claims are compared instead.
    pub tokens: Vec<String>,
    /// Id of the team, `team_...`.
    pub team_id: String,
    /// Name of the team in URLs, the documented alternative to its id.
    pub team_slug: String,
    /// Id of the project, `prj_...`.
    pub project_id: String,
    /// Name of the project, accepted wherever its id is.
    pub project_name: String,
    /// What the account may use.
    pub limits: Limits,
    /// Images that were pushed to the project's registry, as `repository:tag`. Others do not exist. What they hold is
    /// the business of the machines' image table, where their names are the same.
    pub images: BTreeMap<String, ImageState>,
}

impl Default for VercelConfig {
    fn default() -> VercelConfig {
        VercelConfig {
            tokens: vec!["emulator-token".to_owned()],
            team_id: "team_emulator".to_owned(),
            team_slug: "emulator".to_owned(),
            project_id: "prj_emulator".to_owned(),
            project_name: "bench".to_owned(),
            limits: Limits::default(),
            images: BTreeMap::new(),
        }
    }
}

impl VercelConfig {
    /// What points a client at an emulator with this address.
    pub fn variables(&self, base_url: &str) -> Vec<(&'static str, String)> {
        vec![
            ("VERCEL_API_URL", format!("{base_url}/api")),
            ("VERCEL_TOKEN", self.tokens.first().cloned().unwrap_or_default()),
            ("VERCEL_TEAM_ID", self.team_id.clone()),
            ("VERCEL_PROJECT_ID", self.project_id.clone()),
        ]
    }
}

/// Limits of a plan; the default is the Pro plan as documented in August 2026.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Sessions at one time.
    pub concurrent_sessions: usize,
    /// Processors of one sandbox.
    pub vcpus: u32,
    /// Processors handed out per minute.
    pub vcpus_per_minute: u32,
    /// Requests per minute.
    pub requests_per_minute: u32,
    /// Deletions per second.
    pub deletions_per_second: u32,
    /// Milliseconds that a session may live.
    pub session_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            concurrent_sessions: 10_000,
            vcpus: 8,
            vcpus_per_minute: 5_000,
            requests_per_minute: 10_000,
            deletions_per_second: 20,
            session_ms: 86_400_000,
        }
    }
}

/// What the registry says of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageState {
    /// Sandboxes can start from it.
    Ready,
    /// Pushed, but not yet usable: creation answers `image_not_ready`.
    Preparing,
    /// Not linux/amd64; it never becomes usable.
    Unoptimized,
}

impl ImageState {
    /// The word on the wire.
    pub(super) fn word(self) -> &'static str {
        match self {
            ImageState::Ready => "ready",
            ImageState::Preparing => "preparing",
            ImageState::Unoptimized => "unoptimized",
        }
    }
}
