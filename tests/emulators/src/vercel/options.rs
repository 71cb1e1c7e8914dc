//! The account that the emulator plays.

use std::collections::BTreeMap;

/// An account with one team and one project, its limits, and the images of its registry.
#[derive(Clone, Debug)]
pub struct VercelOptions {
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

impl Default for VercelOptions {
    fn default() -> VercelOptions {
        VercelOptions {
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
