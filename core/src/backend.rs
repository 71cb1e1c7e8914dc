//! [`Backend`]: a system that hands out sandboxes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::{Artifact, ArtifactSpec};
use crate::call::Call;
use crate::capability::Capabilities;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::output::OutputSink;
use crate::resources::{NetworkPolicy, Resources};
use crate::sandbox::{Sandbox, SandboxRef};
use crate::tag::{Tag, TagQuery};

/// A system that hands out sandboxes.
///
/// All methods may be called at the same time from many tasks. Each returns by `call.deadline`, and soon after
/// `call.cancel` is cancelled. Adapters hold no policy of their own: they neither retry, nor wait out rate limits, nor
/// check grants; the [`crate::layers`] do.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Who this is and what it can do. Settled when the backend was connected; costs nothing.
    fn info(&self) -> &BackendInfo;

    /// Checks identity, reachability, clock and quota without creating anything.
    ///
    /// Idempotent. Errors: `Credentials`, `Unavailable`.
    async fn preflight(&self, call: &Call) -> Result<Preflight>;

    /// Creates one sandbox, tagged with `spec.tag`.
    ///
    /// Returns when the backend says that it exists; *ready* is a different moment: the success of the first `exec`.
    /// Build and pull output goes to `log`. **Not idempotent.** When it cannot be known whether the sandbox exists,
    /// the error is `UncertainSubmission`, and the caller must [`Backend::find`] the tag before it launches anything
    /// more. Any other error promises that no sandbox is left behind (an adapter may return `Transport`, which the
    /// layers make `UncertainSubmission`). Cancellation is honoured before the create request is sent and, after that,
    /// by destroying what came of it. A `workdir` that does not exist is made.
    /// Errors: `Environment` (image missing, build failed, `environment_limit` passed), `NotFound` (no such artifact),
    /// `InvalidRequest`, `Capacity`, `RateLimited`, …
    async fn create(&self, call: &Call, spec: &SandboxSpec, log: &dyn OutputSink) -> Result<Created>;

    /// A handle to a sandbox that runs already.
    ///
    /// Idempotent. Errors: `NotFound`, `SandboxLost` (it exists but cannot run commands any more), `Unsupported`.
    async fn attach(&self, call: &Call, reference: &SandboxRef) -> Result<Arc<dyn Sandbox>>;

    /// Every sandbox, in any state, whose tag matches. Empty is an answer, not an error. Idempotent.
    async fn find(&self, call: &Call, query: &TagQuery) -> Result<Vec<Found>>;

    /// Ends a sandbox and everything in it, also while commands run in it.
    ///
    /// Idempotent and convergent: a sandbox that is gone already is `Confirmed`. Returns `Confirmed` only when the
    /// backend itself says that it is gone, else `Unconfirmed` with the reason; errors are for what could not even
    /// be asked. Objects without a tag of ours are never touched; an id that cannot be one is treated as gone, or is
    /// `InvalidRequest`, and is never taken for a path.
    async fn destroy(&self, call: &Call, reference: &SandboxRef) -> Result<Destruction>;

    /// Builds a warm artifact from a source, without a sandbox of ours. Not idempotent, as [`Backend::create`].
    async fn build_artifact(&self, call: &Call, spec: &ArtifactSpec, log: &dyn OutputSink) -> Result<Artifact> {
        let _ = (call, spec, log);
        Err(self.cannot("build artifacts"))
    }

    /// The artifact of this id. Idempotent. Errors: `NotFound`.
    async fn artifact(&self, call: &Call, id: &str) -> Result<Artifact> {
        let _ = (call, id);
        Err(self.cannot("look up artifacts"))
    }

    /// Every artifact whose tag matches. Idempotent.
    async fn artifacts(&self, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
        let _ = (call, query);
        Err(self.cannot("list artifacts"))
    }

    /// Deletes an artifact; one that is gone already is `Confirmed`. Sandboxes that were started from it go on; where
    /// the backend cannot promise that, the answer is `Unconfirmed` and nothing is deleted. Idempotent and convergent.
    async fn delete_artifact(&self, call: &Call, id: &str) -> Result<Destruction> {
        let _ = (call, id);
        Err(self.cannot("delete artifacts"))
    }

    /// The error of a backend that has no such operation.
    #[doc(hidden)]
    fn cannot(&self, what: &str) -> Error {
        Error::unsupported(format!("the {} backend cannot {what}", self.info().name))
    }
}

/// Who a backend is and what it can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackendInfo {
    /// The backend's name: `local`, `docker`, `modal`, …
    pub name: String,
    /// Version of our adapter.
    pub adapter_version: String,
    /// Version of the backend itself, as far as it tells.
    pub backend_version: Option<String>,
    /// The API generation in use.
    pub api_version: Option<String>,
    /// Where requests go: a URL, a socket path, `embedded`.
    pub endpoint: String,
    /// Region or zone, where there is one.
    pub region: Option<String>,
    /// CPU architecture of its sandboxes, such as `x86_64`.
    pub architecture: String,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// What [`Backend::preflight`] found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Preflight {
    /// Whom the backend takes us for, if it tells.
    pub identity: Option<String>,
    /// Round-trip time of one small request in microseconds.
    pub round_trip_us: u64,
    /// The backend's clock minus ours, where its answers carry a date.
    #[schemars(with = "Option<String>")]
    pub clock_offset: Option<SignedDuration>,
    /// Quotas and limits by name, as text.
    pub quota: BTreeMap<String, String>,
    /// Conditions that do not stop a run but that its reader should know.
    pub warnings: Vec<String>,
}

/// What a sandbox starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An image by reference, pulled if it is not there.
    Image(String),
    /// A Dockerfile and its build context on the host.
    Dockerfile {
        /// Directory that holds the context.
        context: PathBuf,
        /// Path of the Dockerfile inside it.
        dockerfile: String,
        /// Fingerprint of context and Dockerfile: equal fingerprints may share one built image.
        fingerprint: Digest,
    },
    /// The backend's own general base.
    Base,
    /// A warm artifact by id.
    Artifact(String),
}

/// A request for one sandbox.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// The correlation tag to put on it.
    pub tag: Tag,
    /// What to start from.
    pub source: Source,
    /// Resources asked for.
    pub resources: Resources,
    /// What it may reach.
    pub network: NetworkPolicy,
    /// Environment variables of every command in it.
    pub env: BTreeMap<String, String>,
    /// Working directory of commands that name none; none means the source's own.
    pub workdir: Option<String>,
    /// The sandbox's life at the backend, as a backstop: it ends by itself after this, whatever happens to us. What is
    /// left of it stays findable until it is destroyed. See [`Capabilities::lifetime`].
    pub lifetime: Duration,
    /// Limit for pulling or building the source.
    pub environment_limit: Duration,
    /// It will be suspended and resumed. Only then may [`Sandbox::suspend`] be asked for: a backend may have to know
    /// beforehand. One that cannot do it at all ([`Capabilities::resume`]) says so when it is asked to.
    pub resumable: bool,
}

impl SandboxSpec {
    /// A sandbox from `source` with the backend's defaults and a lifetime of one hour.
    #[must_use]
    pub fn new(tag: Tag, source: Source) -> Self {
        Self {
            tag,
            source,
            resources: Resources::default(),
            network: NetworkPolicy::Public,
            env: BTreeMap::new(),
            workdir: None,
            lifetime: Duration::from_secs(3600),
            environment_limit: Duration::from_secs(600),
            resumable: false,
        }
    }
}

/// Whether something was there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheUse {
    /// It was.
    Hit,
    /// It had to be pulled, built or unpacked.
    Miss,
}

/// A new sandbox.
pub struct Created {
    /// The handle.
    pub sandbox: Arc<dyn Sandbox>,
    /// What is known about how it came to be.
    pub facts: CreateFacts,
}

/// How a sandbox came to be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CreateFacts {
    /// The exact thing it started from, as the backend resolved it: an image id, an artifact id, a base.
    pub resolved_source: String,
    /// Whether the image was there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment_cache: Option<CacheUse>,
    /// Host time spent on getting the source ready (pull, build, unpack), in microseconds; part of the `create` call.
    pub environment_us: u64,
    /// Default working directory of its commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Resources granted, as the backend reports them.
    pub granted: Resources,
    /// Timestamps of the backend's own clock by event name. Never subtracted from host times.
    #[schemars(with = "BTreeMap<String, String>")]
    pub provider_times: BTreeMap<String, Timestamp>,
}

/// State of a sandbox that [`Backend::find`] saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxState {
    /// Being made.
    Starting,
    /// Running.
    Running,
    /// Ended or suspended, but still there.
    Stopped,
    /// The backend does not say.
    Unknown,
}

/// A sandbox of ours, found at the backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// How to name it in further calls.
    pub reference: SandboxRef,
    /// Its state.
    pub state: SandboxState,
    /// When the backend says it was made.
    #[schemars(with = "Option<String>")]
    pub created_at: Option<Timestamp>,
}

/// The outcome of ending something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum Destruction {
    /// The backend says that it is gone.
    Confirmed,
    /// It was asked to go, but may still be there.
    Unconfirmed {
        /// Why it is not known to be gone.
        why: String,
    },
}
