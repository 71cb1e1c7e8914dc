//! The workspace that the emulator plays.

use std::time::Duration;

/// A workspace with one environment, and what it may use.
#[derive(Clone, Debug)]
pub struct ModalOptions {
    /// Id of the token that is accepted, `ak-...`.
    pub token_id: String,
    /// Its secret, `as-...`.
    pub token_secret: String,
    /// The environment that exists; the empty name means it too.
    pub environment: String,
    /// Image builder version of the environment.
    pub builder_version: String,
    /// Sandboxes at one time; one more is refused with `RESOURCE_EXHAUSTED`.
    pub concurrent_sandboxes: usize,
    /// Most sandboxes in one answer to a list.
    pub page: usize,
    /// How long a token for the task command router is valid.
    pub router_token_life: Duration,
}

impl Default for ModalOptions {
    fn default() -> ModalOptions {
        ModalOptions {
            token_id: "ak-emulator".to_owned(),
            token_secret: "as-emulator".to_owned(),
            environment: "main".to_owned(),
            builder_version: "2025.06".to_owned(),
            concurrent_sandboxes: 100,
            page: 10,
            router_token_life: Duration::from_secs(3600),
        }
    }
}
