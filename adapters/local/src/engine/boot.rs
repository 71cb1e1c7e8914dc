//! What the engine tells the helper to do, and how the helper says that it could not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::image::Unpack;

/// The hidden first argument that turns a program into the helper.
pub(crate) const HELPER_ARGUMENT: &str = "__local-helper";

/// One helper process does one task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Become a sandbox and serve jobs until standard input closes.
    Sandbox(Box<Boot>),
    /// Try everything a sandbox needs of the kernel, in this empty directory.
    Probe { scratch: PathBuf },
    /// Delete a tree whose files may belong to mapped ids.
    Remove { path: PathBuf },
    /// Unpack an image so that mapped ids own its files.
    Unpack(Unpack),
}

/// Everything that makes one sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Boot {
    /// The overlay that becomes `/`. Its `target` is the empty directory on which it is mounted.
    pub(crate) root: Overlay,
    /// Overlays mounted inside the root; `target` is a path in the sandbox.
    pub(crate) mounts: Vec<Overlay>,
    pub(crate) settings: Settings,
}

/// What stays the same when a sandbox is started again on other layers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) hostname: String,
    /// `false`: an own network namespace with nothing but loopback.
    pub(crate) host_network: bool,
    /// `cgroup.procs` files to join before anything is started.
    pub(crate) cgroups: Vec<PathBuf>,
    /// Upper bound for process ids in the sandbox, where no cgroup counts processes.
    pub(crate) pid_max: Option<u64>,
    /// Run on this many of the allowed processors, where no cgroup limits their use.
    pub(crate) processors: Option<usize>,
    /// The sandbox ends by itself after this, in whole seconds.
    pub(crate) lifetime: Option<Duration>,
    pub(crate) commands: CommandDefaults,
}

/// What every command of a sandbox gets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CommandDefaults {
    pub(crate) env: BTreeMap<String, String>,
    /// `RLIMIT_FSIZE` in bytes.
    pub(crate) file_size: Option<u64>,
    /// `RLIMIT_NPROC`, where no cgroup counts processes. It counts per user id, and not for the host's root.
    pub(crate) processes: Option<u64>,
    /// `RLIMIT_NOFILE`.
    pub(crate) open_files: Option<u64>,
    /// The out-of-memory killer must prefer commands to the agent: set by the helper when it could arrange that.
    #[serde(default)]
    pub(crate) reset_oom_score: bool,
}

/// One overlay mount. Lower directories are ordered from the newest to the base.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Overlay {
    pub(crate) target: PathBuf,
    pub(crate) lower: Vec<PathBuf>,
    pub(crate) upper: PathBuf,
    pub(crate) work: PathBuf,
}

impl Overlay {
    pub(crate) fn lower_list(&self) -> String {
        let lower: Vec<_> = self.lower.iter().map(|dir| dir.to_string_lossy()).collect();
        lower.join(":")
    }
}

/// The step of the helper that failed. The engine turns it into a cause and a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Reading the task or answering.
    Protocol,
    /// Joining the control groups.
    ControlGroup,
    /// `unshare(CLONE_NEWUSER)`.
    UserNamespace,
    /// The other namespaces.
    Namespaces,
    /// Mounting a tmpfs.
    Mount,
    /// Mounting an overlay.
    Overlay,
    /// Mounting `/proc` in a new pid namespace.
    Proc,
    /// Building the container and starting the agent.
    Container,
    /// A maintenance task.
    Work,
}

/// Why the helper could not go on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) errno: Option<i32>,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(step: Step, what: impl std::fmt::Display, error: &std::io::Error) -> Failure {
        Failure { step, errno: error.raw_os_error(), message: format!("{what}: {error}") }
    }
}
