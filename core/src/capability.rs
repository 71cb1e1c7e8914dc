//! What a backend can do, as plain facts. They are checked before anything is spent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resources::NetworkPolicy;

/// Whether a limit holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// The backend enforces it.
    Enforced,
    /// It is set, but a program can get around it.
    Advisory,
    /// It is ignored.
    #[default]
    Absent,
}

/// The facts about one backend, as configured and probed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Capabilities {
    /// How sandboxes are kept apart: `namespaces`, `container`, `gvisor`, `microvm`, `vm`.
    pub isolation: String,
    /// Starts from any image reference ([`crate::Source::Image`]).
    pub images: bool,
    /// Image references that can be started from although `images` is false.
    pub mapped_images: Vec<String>,
    /// Builds a Dockerfile with its context ([`crate::Source::Dockerfile`]).
    pub dockerfile: bool,
    /// Has a general base in which an environment recipe can be replayed ([`crate::Source::Base`]).
    pub base: bool,
    /// What that base is, for evidence ("host (debian 12)").
    pub base_name: String,
    /// Commands found in that base, of those that recipes may need (`python3`, `node`, `git`, …).
    pub base_commands: Vec<String>,
    /// stdout and stderr arrive apart.
    pub separate_streams: bool,
    /// Every byte of output arrives as it was written. False: some bytes that are no text (NUL, invalid UTF-8) are lost
    /// or replaced on the way, without notice; then [`crate::StreamReport::total_bytes`] is unknown.
    pub binary_output: bool,
    /// A signalled command is told from one that exited with `128 + n`.
    pub exact_signals: bool,
    /// The whole process tree of a command can be killed, `setsid` children included.
    pub tree_kill: bool,
    /// Out-of-memory kills are seen as such.
    pub reports_oom: bool,
    /// Commands can run as another user than the sandbox's own.
    pub non_root_user: bool,
    /// Commands can run as root.
    pub root_user: bool,
    /// Commands take bytes on stdin.
    pub stdin: bool,
    /// Full network access can be given.
    pub network_public: bool,
    /// The network can be switched off.
    pub network_off: bool,
    /// Only listed hosts can be allowed.
    pub network_allowlist: bool,
    /// A sandbox can be saved as a warm artifact.
    pub snapshot: bool,
    /// The sandbox goes on after a snapshot.
    pub snapshot_keeps_sandbox: bool,
    /// An artifact can be built without a sandbox of ours ([`crate::Backend::build_artifact`]).
    pub build_artifact: bool,
    /// A sandbox can be suspended with its processes and memory, and resumed ([`crate::Sandbox::suspend`],
    /// [`crate::Sandbox::resume`]).
    pub resume: bool,
    /// A running sandbox can be attached to from its reference.
    pub attach: bool,
    /// … also by another process than the one that created it.
    pub attach_across_processes: bool,
    /// [`crate::Backend::find`] sees every object with our tag at the backend, not only those in a local journal.
    pub find_by_tag: bool,
    /// [`crate::SandboxSpec::lifetime`] ends a sandbox at the backend, also when we are gone.
    pub lifetime: Enforcement,
    /// CPU limit.
    pub cpu_limit: Enforcement,
    /// Memory limit.
    pub memory_limit: Enforcement,
    /// Process-count limit.
    pub pids_limit: Enforcement,
    /// Storage limit.
    pub disk_limit: Enforcement,
    /// The largest upload in bytes, if the backend has a limit.
    pub max_upload_bytes: Option<u64>,
    /// The longest life of a sandbox in seconds, if the backend has a limit.
    pub max_lifetime_seconds: Option<u64>,
    /// The most sandboxes at one time that make sense, if known.
    pub max_concurrency: Option<u32>,
    /// Name of the environment variable that carries a warm artifact's id, such as `DOCKER_SNAPSHOT`.
    pub artifact_variable: Option<String>,
}

/// One thing that a trial needs of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirement {
    /// Starting from this image.
    Image(String),
    /// Building a Dockerfile.
    Dockerfile,
    /// Replaying a recipe on a general base.
    Base,
    /// Running a command as another user.
    NonRootUser,
    /// This network policy.
    Network(NetworkPolicy),
    /// Saving and starting from a warm artifact.
    Snapshot,
    /// Suspending a sandbox and resuming it.
    Resume,
    /// Something that no backend of ours offers yet; the text says what.
    Other(String),
}

impl Capabilities {
    /// Why `requirement` cannot be met, or none if it can.
    #[must_use]
    pub fn missing(&self, requirement: &Requirement) -> Option<String> {
        let (met, text) = match requirement {
            Requirement::Image(image) => {
                (self.images || self.mapped_images.contains(image), format!("cannot start from the image {image}"))
            }
            Requirement::Dockerfile => (self.dockerfile, "cannot build a Dockerfile".to_owned()),
            Requirement::Base => (self.base, "has no general base to replay a recipe on".to_owned()),
            Requirement::NonRootUser => (self.non_root_user, "cannot run a command as another user".to_owned()),
            Requirement::Network(NetworkPolicy::Public) => {
                (self.network_public, "cannot give network access".to_owned())
            }
            Requirement::Network(NetworkPolicy::NoNetwork) => {
                (self.network_off, "cannot switch the network off".to_owned())
            }
            Requirement::Network(NetworkPolicy::Allowlist(_)) => {
                (self.network_allowlist, "cannot restrict the network to listed hosts".to_owned())
            }
            Requirement::Snapshot => (self.snapshot, "has no warm artifacts".to_owned()),
            Requirement::Resume => (self.resume, "cannot suspend and resume sandboxes".to_owned()),
            Requirement::Other(what) => (false, format!("needs {what}")),
        };
        (!met).then_some(text)
    }
}
