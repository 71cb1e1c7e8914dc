//! [`Sandbox`]: one isolated environment.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use schemars::JsonSchema;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::call::Call;
use crate::completion::ExecReport;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::output::OutputSink;
use crate::resources::Resources;
use crate::tag::Tag;

/// The name of a sandbox at its backend. It is all that is needed to attach to it or to destroy it, also from another
/// process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SandboxRef {
    /// The backend's name.
    pub backend: String,
    /// The backend's id.
    pub id: String,
    /// The tag that it was created with.
    pub tag: Tag,
}

/// One isolated environment. All methods may be called at the same time from many tasks; commands run in parallel.
///
/// Dropping a handle ends nothing: the sandbox lives until [`crate::Backend::destroy`]. Dropping a pending `exec` leaves its
/// command unspecified. Once the sandbox is gone, every method answers `SandboxLost` (or `NotFound`, where the backend
/// cannot tell).
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Its name at the backend.
    fn reference(&self) -> &SandboxRef;

    /// Runs one command and streams its output to `sink`.
    ///
    /// Waits, within the call's deadline, until the sandbox can run commands.
    /// Returns `Ok` for every end that the command or the sandbox came to, whatever it was: an exit code, a signal,
    /// the time limit, out of memory, the loss of sandbox or connection. `Err` means that the command was not
    /// started, or that it cannot be known whether it was (`Transport`); **it is never repeated blindly**.
    /// A command ends when its own process ends: what it left in the background neither delays the return nor is
    /// waited for, and lives on if `spec.keep_background` is true. At the command's limit ([`ExecSpec::limit`]), or when
    /// `call` is cancelled, the whole process tree of this command (and of no other) is killed, `setsid` children
    /// included where the backend can (`tree_kill`), and what it had written so far is delivered.
    /// A program that does not exist exits with 127, one that cannot be executed with 126, as in a shell. Nothing of
    /// the host's environment enters; `HOME` is the user's home where it is known.
    /// Errors: `NotFound` (no such user or directory), `InvalidRequest` (empty argv, NUL bytes, `=` in a variable's
    /// name), `SandboxLost`, `Transport`.
    async fn exec(&self, call: &Call, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport>;

    /// Places inputs, in one transfer where the backend can. Missing parent directories are made (root, 0755). A file
    /// replaces a file or a symbolic link (the link itself, never its target); a tree is merged over what is there.
    /// Everything belongs to root; modes, symbolic links and empty directories are kept. A relative destination, one
    /// with `..`, or such a member of a tree is `InvalidRequest`.
    ///
    /// Idempotent. After an error the destination may be half written; the caller repeats or gives up.
    /// Errors: `InvalidRequest` (too large, bad path), `SandboxLost`, `Transport`.
    async fn upload(&self, call: &Call, inputs: &[Input]) -> Result<Uploaded>;

    /// Writes an uncompressed tar stream of the file or directory `from` (absolute) to the host file `to`, replacing
    /// it. Member names begin with the last component of `from`, as Docker has it. A symbolic link is sent as a link;
    /// sockets and pipes are never read. Stops with `InvalidRequest` when more than `limit` bytes would be written.
    /// After any error `to` does not exist.
    ///
    /// Idempotent. The content is hostile: unpack it with care. Errors: `NotFound`, `SandboxLost`, `Transport`.
    async fn download(&self, call: &Call, from: &str, to: &Path, limit: u64) -> Result<Downloaded>;

    /// Saves the file system as a warm artifact. `/dev`, `/proc`, `/sys`, running processes and the variables and working
    /// directory of [`crate::SandboxSpec`] are not part of it; `/tmp` and `/run` may be or not. If
    /// [`crate::Capabilities::snapshot_keeps_sandbox`] is false, the sandbox has ended and is only good for
    /// [`crate::Backend::destroy`]. Not idempotent.
    async fn snapshot(&self, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
        let _ = (call, spec);
        Err(Error::unsupported(format!("the {} backend has no snapshots", self.reference().backend)))
    }

    /// Stops the sandbox as it is, with its processes, memory and files, until [`Sandbox::resume`]. Returns when the
    /// backend says that it is suspended. The caller sees to it that no command runs: its time may go on. Meanwhile the
    /// sandbox can only be resumed, observed, found and destroyed; every other method is `InvalidRequest`. Its
    /// [lifetime](crate::SandboxSpec::lifetime) goes on, and the backend may end it earlier.
    ///
    /// Idempotent: one that is suspended stays so. Errors: `Unsupported` without [`crate::Capabilities::resume`],
    /// `InvalidRequest` if it was not created [resumable](crate::SandboxSpec::resumable), `SandboxLost`, `Transport`.
    async fn suspend(&self, call: &Call) -> Result<()> {
        let _ = call;
        Err(Error::unsupported(format!("the {} backend cannot suspend sandboxes", self.reference().backend)))
    }

    /// Lets a suspended sandbox go on where it stopped: the same processes, which may find that the clocks have jumped,
    /// and whose connections to elsewhere may be gone. Returns when the backend says that it runs; *ready* is a
    /// different moment, as after [`crate::Backend::create`].
    ///
    /// Idempotent: one that runs goes on. Errors: `Unsupported`, `SandboxLost`, `Transport`, `Capacity`.
    async fn resume(&self, call: &Call) -> Result<()> {
        let _ = call;
        Err(Error::unsupported(format!("the {} backend cannot resume sandboxes", self.reference().backend)))
    }

    /// What the backend knows of the sandbox: granted resources, use, its own timestamps. Idempotent.
    /// Errors: `SandboxLost`, `Transport`.
    async fn observe(&self, call: &Call) -> Result<Observation>;
}

/// One command.
#[derive(Debug, Clone)]
pub struct ExecSpec {
    /// Program and arguments. The program is looked up in `PATH` inside the sandbox. No shell is added.
    pub argv: Vec<String>,
    /// Environment variables, over those of the sandbox.
    pub env: BTreeMap<String, String>,
    /// Granted secrets to put into the environment: variable name → name of the grant.
    pub secret_env: BTreeMap<String, String>,
    /// Working directory; none means the sandbox's default. It must exist.
    pub cwd: Option<String>,
    /// User name, or numeric id (group: that of its passwd entry, else the same number); none means the sandbox's own
    /// user.
    pub user: Option<String>,
    /// Bytes for stdin; none means empty.
    pub stdin: Option<Bytes>,
    /// Time limit, counted from the start of the command. See [`ExecSpec::limit`].
    pub timeout: Duration,
    /// Most bytes delivered per stream: its beginning, live, and at the end its end, with a counted gap between
    /// ([`crate::HeadTail`]).
    pub output_limit: u64,
    /// False: processes that the command left behind are killed when it ends.
    pub keep_background: bool,
}

impl ExecSpec {
    /// A command with the given arguments: no environment, default directory and user, 60 seconds, 1 MiB of output
    /// per stream, background processes kept.
    pub fn new<I, S>(argv: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            secret_env: BTreeMap::new(),
            cwd: None,
            user: None,
            stdin: None,
            timeout: Duration::from_secs(60),
            output_limit: 1 << 20,
            keep_background: true,
        }
    }

    /// A script for `sh -c`.
    #[must_use]
    pub fn sh(script: &str) -> Self {
        Self::new(["sh", "-c", script])
    }

    /// The same command with another time limit.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same command as another user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The same command in another directory.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<String>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// The same command with one more environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// The command's limit: the earlier of its own and, with a second to spare for winding up, the call's deadline.
    /// Both end in [`crate::Completion::DeadlineExceeded`].
    #[must_use]
    pub fn limit(&self, call: &Call) -> Duration {
        self.timeout.min(call.remaining().saturating_sub(Duration::from_secs(1)))
    }

    /// All environment variables with the secrets filled in. Adapters call this when they send the command; the
    /// result must not be logged.
    ///
    /// # Errors
    /// `Denied` if a secret was not granted.
    pub fn resolved_env(&self, call: &Call) -> Result<BTreeMap<String, String>> {
        let mut env = self.env.clone();
        for (variable, secret) in &self.secret_env {
            env.insert(variable.clone(), call.grants.secret(secret)?.expose_secret().to_owned());
        }
        Ok(env)
    }
}

/// How an upload was confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UploadProof {
    /// The backend acknowledged the whole transfer.
    Acknowledged,
    /// Sizes were compared in the sandbox.
    Size,
    /// Digests were compared in the sandbox.
    Digest,
}

/// The outcome of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uploaded {
    /// Bytes sent, framing included.
    pub bytes: u64,
    /// How completeness is known.
    pub proof: UploadProof,
}

/// The outcome of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Downloaded {
    /// Bytes written to the host file.
    pub bytes: u64,
}

/// A request for a warm artifact of a sandbox.
#[derive(Debug, Clone)]
pub struct SnapshotSpec {
    /// The tag to put on it.
    pub tag: Tag,
    /// Fingerprint of the environment that it holds.
    pub fingerprint: Digest,
    /// How long the backend should keep it, where it can be told.
    pub keep_for: Option<Duration>,
}

/// What the backend knows of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Observation {
    /// Resources granted.
    pub granted: Resources,
    /// CPU time used so far, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    /// Highest memory use so far, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Timestamps of the backend's own clock by event name.
    #[schemars(with = "BTreeMap<String, String>")]
    pub provider_times: BTreeMap<String, Timestamp>,
    /// Facts that bear on cost, by name, as the backend reports them. Under these names, as decimal numbers, reports use
    /// them: `cost_usd` (what it charges), `running_seconds` (how long it bills; not while it is suspended, where that is
    /// not billed), `billed_vcpu_seconds`,
    /// `billed_gib_seconds` (memory), `egress_bytes`, `snapshot_bytes` (of what it was started from).
    pub cost_evidence: BTreeMap<String, String>,
}
