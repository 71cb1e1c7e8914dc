//! Settings of the backend.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of the `local` backend. Everything has a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LocalConfig {
    /// Where sandboxes, snapshots and unpacked images are kept. It must not be on an overlay file system. Default:
    /// `$XDG_STATE_HOME/sandbox-bench/local` or the first of the usual places that will do.
    pub state_dir: Option<PathBuf>,
    /// What sandboxes without an image start from: `host`, or a path as in `bases`.
    pub default_base: String,
    /// Images that can be started from: reference → a root directory, an OCI layout, or an archive of `docker save`,
    /// `docker export` or of an OCI layout.
    pub bases: BTreeMap<String, PathBuf>,
    /// Most processes and threads of a sandbox that asks for no limit.
    pub pids: u64,
    /// Days after which an unpacked image or a copy of the host's `/etc` goes that nothing used and nothing stands on;
    /// looked for when the backend is connected. 0 keeps all of them.
    pub cache_days: u32,
    /// The program to start sandboxes with, if not this one. It must call `helper_main_if_requested`.
    pub helper: Option<PathBuf>,
}

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            state_dir: None,
            default_base: LocalConfig::HOST.into(),
            bases: BTreeMap::new(),
            pids: 4096,
            cache_days: 30,
            helper: None,
        }
    }
}

impl LocalConfig {
    /// The base that is this machine.
    pub const HOST: &str = "host";
}
