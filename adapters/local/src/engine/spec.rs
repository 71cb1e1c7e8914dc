//! What a caller asks of a sandbox, and what it is told about it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// What a sandbox starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Base {
    /// The host's `/usr` and `/opt` and a filtered copy of its `/etc`, each below a layer of the sandbox's own.
    Host,
    /// A root directory whose files belong to ids that exist in sandboxes; [`super::Engine::import`] makes such.
    Rootfs(PathBuf),
    /// A snapshot, with the base and layers below it.
    Snapshot(String),
}

/// What a sandbox may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Loopback only.
    #[default]
    Off,
    /// The host's network, ports included.
    Host,
}

/// Limits asked for; `None` is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory of all processes together, files in memory included.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Processors, fractions allowed.
    pub cpus: Option<f64>,
    /// Bytes of the largest file that a command may write.
    pub file_size: Option<u64>,
    /// Open files per process.
    pub open_files: Option<u64>,
}

/// Whether a limit holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Enforcement {
    /// The kernel enforces it.
    Enforced,
    /// It is set, but a program can get around it.
    Advisory,
    /// It was not asked for, or there is no means to set it.
    #[default]
    Absent,
}

/// Which of the limits hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitReport {
    /// [`Limits::memory`].
    pub memory: Enforcement,
    /// [`Limits::pids`].
    pub pids: Enforcement,
    /// [`Limits::cpus`].
    pub cpus: Enforcement,
    /// [`Limits::file_size`].
    pub file_size: Enforcement,
    /// [`Limits::open_files`].
    pub open_files: Enforcement,
}

/// A request for a sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxConfig {
    /// Unique in the state directory: 1 to 64 characters of `A-Z a-z 0-9 . _ -`, not starting with a dot.
    pub id: String,
    /// What to start from.
    pub base: Base,
    /// Environment of every command.
    pub env: BTreeMap<String, String>,
    /// What may be reached.
    pub network: Network,
    /// Limits.
    pub limits: Limits,
    /// The host name inside.
    pub hostname: String,
    /// Stored with the sandbox and found again by [`super::Engine::list`].
    pub labels: BTreeMap<String, String>,
    /// The sandbox ends by itself after this, rounded up to whole seconds.
    pub lifetime: Option<Duration>,
}

impl SandboxConfig {
    /// A sandbox on `base` with no network, no limits and no end.
    pub fn new(id: impl Into<String>, base: Base) -> SandboxConfig {
        SandboxConfig {
            id: id.into(),
            base,
            env: BTreeMap::new(),
            network: Network::Off,
            limits: Limits::default(),
            hostname: "sandbox".into(),
            labels: BTreeMap::new(),
            lifetime: None,
        }
    }
}

/// A sandbox found in the state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it was made, by the host's clock.
    pub created: SystemTime,
    /// Whether the process that made it still holds it. If not, its processes are gone and only files remain.
    pub alive: bool,
}

/// A snapshot found in the state directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its id.
    pub id: String,
    /// Labels given when it was made.
    pub labels: BTreeMap<String, String>,
    /// When it was made, by the host's clock.
    pub created: SystemTime,
    /// Bytes on disk of the layer it added, as far as we may look into it.
    pub size: u64,
    /// What it stands on.
    pub(crate) ground: super::ground::Ground,
    /// Layer ids, the newest first.
    pub(crate) layers: Vec<String>,
}

/// What the engine found out about this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Ids from 0 up to this one, exclusive, exist in sandboxes.
    pub mapped_ids: u32,
    /// Why fewer ids exist than could, if so, and what to do about it.
    pub ids_note: Option<String>,
    /// What each limit would be if it were asked for.
    pub limits: LimitReport,
    /// Out-of-memory kills are counted by the kernel and reported in outcomes.
    pub reports_oom: bool,
}

impl Facts {
    /// Commands can run as another user than root.
    pub fn non_root_user(&self) -> bool {
        self.mapped_ids > 1
    }
}

/// What a sandbox has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all its processes.
    pub cpu: Option<Duration>,
    /// Most memory in use at one time, in bytes, files in memory included.
    pub peak_memory: Option<u64>,
}
