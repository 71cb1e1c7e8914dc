//! What a user may set.

use serde::{Deserialize, Serialize};

use crate::config::PolyaxonConfig;

/// Where evidence is tracked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrackConfig {
    /// Address of the installation. Default: that of the sandboxes.
    pub host: Option<String>,
    /// Project of the tracked runs: `owner/project`, or `project` of the owner `default`. Default: inside a run of the platform, that
    /// run; else the project of the sandboxes.
    pub project: Option<String>,
}

impl TrackConfig {
    /// The same, with what is not set taken from the configuration of the sandboxes.
    pub(super) fn over(&self, sandboxes: &PolyaxonConfig) -> PolyaxonConfig {
        PolyaxonConfig {
            host: self.host.clone().or_else(|| sandboxes.host.clone()),
            project: self.project.clone().or_else(|| sandboxes.project.clone()),
            ..PolyaxonConfig::default()
        }
    }
}
