//! What a user may set.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sandbox_bench_core::Digest;
use serde::{Deserialize, Serialize};

/// Settings of the Polyaxon backend. All have a default, or are found where the official client finds them. The token
/// is no setting: it comes from `POLYAXON_AUTH_TOKEN` or from what `polyaxon login` wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolyaxonConfig {
    /// Address of the installation. Default: `POLYAXON_HOST`, else the official client's configuration, else
    /// `http://localhost:8000`.
    pub host: Option<String>,
    /// Project of the sandboxes: `owner/project`, or `project` of the owner `default`. Default: the project that
    /// `polyaxon init` or `polyaxon project` remembers.
    pub project: Option<String>,
    /// A component or operation (YAML or JSON) whose service every sandbox runs. It must set `plugins.sandbox: true`.
    /// Image, resources and `termination.timeout` are set over it. Default: a plain service.
    pub component: Option<PathBuf>,
    /// Queue, as `agent/queue` or `queue`. Default: the installation's.
    pub queue: Option<String>,
    /// Presets of the organization to apply.
    pub presets: Vec<String>,
    /// Approve runs that a policy holds for approval. Otherwise such a run is an error.
    pub approve: bool,
    /// Image of sandboxes that ask for the backend's general base, unless the component names one.
    pub base_image: String,
    /// Commands that the base has, of those that environment recipes may need.
    pub base_commands: Vec<String>,
    /// Images that the cluster's nodes hold already, with the fingerprint of the environment that each one is made
    /// from: these are the warm artifacts.
    pub prepulled: BTreeMap<String, Digest>,
    /// CPU architecture of the cluster's nodes, as `uname -m` prints it.
    pub architecture: String,
    /// Size of one piece of an upload in KiB. The official client's is 64; larger pieces are quicker where the gateway
    /// takes them.
    pub chunk_kib: u32,
    /// Longest pause between two looks at a status, in milliseconds.
    pub poll_ms: u64,
}

impl Default for PolyaxonConfig {
    fn default() -> Self {
        Self {
            host: None,
            project: None,
            component: None,
            queue: None,
            presets: Vec::new(),
            approve: false,
            base_image: "python:3.12-slim".to_owned(),
            base_commands: vec!["python3".to_owned(), "pip".to_owned()],
            prepulled: BTreeMap::new(),
            architecture: "x86_64".to_owned(),
            chunk_kib: 64,
            poll_ms: 500,
        }
    }
}
