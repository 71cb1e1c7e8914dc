//! How the emulated installation is set up.

/// Settings of the emulator.
#[derive(Clone, Debug)]
pub struct PolyaxonOptions {
    /// The token that is accepted.
    pub token: String,
    /// A project that exists from the start.
    pub project: String,
    /// Address of a real open-source server to forward `/api` and `/streams` to. None: the API in memory.
    pub upstream: Option<String>,
}

impl Default for PolyaxonOptions {
    fn default() -> Self {
        Self { token: "emulator-token".into(), project: "bench".into(), upstream: None }
    }
}
