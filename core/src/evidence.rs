//! What a run writes down. Every type here is versioned with [`SCHEMA_VERSION`] and shipped as JSON Schema.
//!
//! The journal is the truth; everything else can be rebuilt from it. Durations are integer microseconds, instants are
//! RFC 3339 in UTC, a missing value means "unknown" and never zero.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::{AgentRecord, ReplayRecord};
use crate::artifact::Artifact;
use crate::backend::{BackendInfo, CacheUse, Destruction};
use crate::call::MeterReading;
use crate::completion::{Completion, StreamReport};
use crate::condition::{Condition, ConditionProof, Freshness};
use crate::digest::Digest;
use crate::input::InputEntry;
use crate::output::OutputRef;
use crate::phase::{Phase, PhaseSpan};
use crate::resources::{NetworkPolicy, Resources};
use crate::sandbox::{Observation, SandboxRef};
use crate::tag::Tag;
use crate::verdict::{FailureClass, Verdict};

/// Version of all evidence schemas. A reader refuses a higher major version.
pub const SCHEMA_VERSION: &str = "1.0";

/// `manifest.json`: what was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: String,
    /// The run's id.
    pub run: String,
    /// When it was started.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// Version of the binary.
    pub binary_version: String,
    /// Source revision of the binary, when it was built from a checkout.
    pub binary_revision: Option<String>,
    /// The machine that ran the harness; none if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Where the run comes from, if another program ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<Imported>,
    /// The backends, as connected.
    pub backends: Vec<BackendInfo>,
    /// The data sets.
    pub datasets: Vec<DatasetRecord>,
    /// The solver, such as `gold`.
    pub solver: String,
    /// The settings of the plan.
    pub plan: PlanSettings,
    /// Number of planned trials.
    pub trials: u64,
    /// Names (never values) of host variables forwarded into sandboxes.
    pub forwarded_env: Vec<String>,
    /// Base URL of the gateway that the models are behind, without credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_gateway: Option<String>,
    /// Tasks that are not valid and were left out, with what is wrong.
    #[serde(default, skip_serializing_if = "Listing::is_empty")]
    pub left_out: Listing,
    /// Tasks in quarantine that were left out, with the reason.
    #[serde(default, skip_serializing_if = "Listing::is_empty")]
    pub quarantined: Listing,
}

/// Of a run that another program ran: what it was made from. What such a program does not record stays unknown where the
/// evidence has a word for that; start times of attempts, order, seed, concurrency and requests mean nothing in these runs
/// unless [`Imported::timed`] says so of the times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// The form of the files: `csb` (code-sandbox-bench), `harbor` (Harbor job directories).
    pub from: String,
    /// True if the start times of the attempts are known.
    pub timed: bool,
    /// The files, in the order in which their results became attempts.
    pub files: Vec<ImportedFile>,
}

/// A file, or a directory of them, that a run was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportedFile {
    /// Its name, without directories.
    pub name: String,
    /// Digest of its bytes; of a directory, over the digests of the files that were read, in their order.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// How many attempts it became: in the journal, they follow those of the file before.
    pub attempts: u64,
    /// Where that is kept which it says of its run as a whole, relative to the run directory; of a file that became no
    /// attempts, all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

/// How many there are, and the first of them in words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listing {
    /// All of them.
    pub count: u64,
    /// The first of them, [`Listing::KEPT`] at most.
    pub first: Vec<String>,
}

impl Listing {
    /// Most that are told in words.
    pub const KEPT: usize = 100;

    /// Of these, in their order.
    #[must_use]
    pub fn of(all: &[String]) -> Self {
        let mut listing = Self::default();
        for words in all {
            listing.add(|| words.clone());
        }
        listing
    }

    /// Adds one.
    pub fn add(&mut self, words: impl FnOnce() -> String) {
        self.count = self.count.saturating_add(1);
        if self.first.len() < Self::KEPT {
            self.first.push(words());
        }
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The machine that ran the harness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// Operating system and its version.
    pub os: String,
    /// Kernel release.
    pub kernel: String,
    /// CPU architecture.
    pub architecture: String,
    /// CPUs that the process may use.
    pub cpus: u64,
    /// Memory in MiB.
    pub memory_mb: u64,
}

/// A data set of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DatasetRecord {
    /// As named by the user.
    pub name: String,
    /// Digest over the ids and digests of the selected tasks.
    pub digest: Digest,
    /// Number of selected tasks.
    pub tasks: u64,
}

/// The settings from which the plan was expanded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanSettings {
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// Replicates of each cell and task.
    pub replicates: u32,
    /// Order of the trials.
    pub order: String,
    /// Seed of the order.
    pub seed: u64,
    /// Most trials at one time, over all backends; the greatest of the levels, where these are a dimension.
    pub concurrency: u32,
    /// Most trials at one time, per backend.
    pub backend_concurrency: BTreeMap<String, u32>,
    /// Most attempts of one trial.
    pub max_attempts: u32,
    /// Stop after this many accepted trials.
    pub stop_after_passes: Option<u64>,
    /// Models, a dimension of the matrix. Empty where the solver is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Start no more trials once the models have cost so many US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_budget_usd: Option<f64>,
    /// Digest of the script that installed the solver's own tools into the environments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver_setup: Option<Digest>,
    /// The dimensions in which there is more than one value: what the run compares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub varies: Vec<String>,
    /// Resource profiles by name, a dimension of the matrix. Empty where each task's own resources are asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub profiles: BTreeMap<String, Resources>,
    /// Sizes in bytes of the extra input, a dimension of the matrix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_bytes: Vec<u64>,
    /// Levels of `concurrency`, a dimension of the matrix, run one after the other in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub concurrency_levels: Vec<u32>,
    /// How trials are launched.
    #[serde(default, skip_serializing_if = "Load::is_steady")]
    pub load: Load,
    /// Trials of each task in each cell that are run first and counted nowhere.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warm_up: u32,
    /// What ends the run early.
    #[serde(default, skip_serializing_if = "Bounds::are_none")]
    pub bounds: Bounds,
}

impl PlanSettings {
    /// Every combination of the further dimensions: [`Variant::default`] alone where there are none.
    #[must_use]
    pub fn variants(&self) -> Vec<Variant> {
        let profiles = or_none(self.profiles.keys().cloned());
        let inputs = or_none(self.input_bytes.iter().copied());
        let levels = or_none(self.concurrency_levels.iter().copied());
        let mut variants = Vec::with_capacity(profiles.len() * inputs.len() * levels.len());
        for profile in &profiles {
            for &input_bytes in &inputs {
                variants.extend(levels.iter().map(|&concurrency| Variant {
                    profile: profile.clone(),
                    input_bytes,
                    concurrency,
                }));
            }
        }
        variants
    }
}

/// Every value, or none once where there is none.
fn or_none<T>(values: impl Iterator<Item = T>) -> Vec<Option<T>> {
    let all: Vec<Option<T>> = values.map(Some).collect();
    if all.is_empty() { vec![None] } else { all }
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// In which rhythm trials are launched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "shape")]
pub enum Load {
    /// The next one as soon as there is a free place.
    #[default]
    Steady,
    /// … but never two within this time.
    Staggered {
        /// Milliseconds between two launches.
        interval_ms: u64,
    },
    /// As many at once as there are places, and the next ones when all of these have ended.
    Burst,
}

impl Load {
    /// True for [`Load::Steady`].
    #[must_use]
    pub fn is_steady(&self) -> bool {
        *self == Self::Steady
    }
}

/// What ends a run before its plan is done. No trial that was started is ended by it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bounds {
    /// US dollars that sandboxes, as estimated, and models may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// Seconds from the first launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// A cell is done once the interval of its median total time is narrower than this share of the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<f64>,
}

impl Bounds {
    /// True if nothing but the plan's end ends the run.
    #[must_use]
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Identifies a trial of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct TrialKey {
    /// Backend name.
    pub backend: String,
    /// Declared condition.
    pub condition: Condition,
    /// Data set name.
    pub dataset: String,
    /// Task id.
    pub task: String,
    /// Replicate, from 1; 0 for one that only warms up.
    pub replicate: u32,
    /// The model that does the task, where models are a dimension of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Further dimensions of the plan.
    #[serde(default, skip_serializing_if = "Variant::is_plain")]
    pub variant: Variant,
}

impl TrialKey {
    /// True for a trial that was run to warm things up: its attempts are kept, and counted nowhere.
    #[must_use]
    pub fn is_warm_up(&self) -> bool {
        self.replicate == 0
    }
}

/// Where a trial stands in the dimensions of a plan beyond backend, condition and model. What is no dimension is not set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Variant {
    /// Name of the resource profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Size in bytes of an extra input that is placed before the solver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_bytes: Option<u64>,
    /// Most trials at one time while this one runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
}

impl Variant {
    /// True if it is set apart by nothing.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// `small +1048576B x4`: what is set, in short; empty if nothing is.
impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.profile.clone(),
            self.input_bytes.map(|bytes| format!("+{bytes}B")),
            self.concurrency.map(|most| format!("x{most}")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// How the environment of a trial was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EnvironmentWay {
    /// The task's own image.
    Image,
    /// Built from the task's own Dockerfile.
    Dockerfile,
    /// Its recipe was replayed on the backend's general base.
    Recipe,
    /// Started from a warm artifact.
    Artifact,
    /// The sandbox of the previous trial.
    Reuse,
}

/// The environment of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnvironmentRecord {
    /// Which way was taken.
    pub way: EnvironmentWay,
    /// Fingerprint of what the environment is made from.
    pub fingerprint: Digest,
    /// What the sandbox started from, as asked: an image reference, an artifact id, a base name.
    pub asked: String,
    /// … and as the backend resolved it.
    pub resolved: String,
    /// Whether the image was there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheUse>,
}

/// Why a trial failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The class.
    pub class: FailureClass,
    /// The phase in which it happened.
    pub phase: Phase,
    /// What happened, in words.
    pub message: String,
    /// Kind of the contract error, where one caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_kind: Option<String>,
    /// True if a further attempt may be made.
    pub retryable: bool,
}

/// How a sandbox ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Cleanup {
    /// There was nothing to clean up.
    Nothing,
    /// The sandbox goes on for the next trial (condition `reuse`).
    Kept,
    /// The backend says that it is gone.
    Confirmed,
    /// It may still exist.
    Unconfirmed {
        /// Why it is not known to be gone.
        why: String,
    },
}

/// One line of `trials.jsonl`: one attempt at one trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: String,
    /// The run.
    pub run: String,
    /// The trial.
    pub trial: TrialKey,
    /// Attempt number of the trial, from 1.
    pub attempt: u32,
    /// True if no further attempt of this trial follows.
    pub last: bool,
    /// Correlation tag.
    pub tag: Tag,
    /// Version of the adapter.
    pub adapter_version: String,
    /// Digest of the task.
    pub task_digest: Digest,
    /// When the attempt was submitted.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// From submission to the end of the last phase, in microseconds.
    pub total_us: u64,
    /// The sandbox, if one came to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxRef>,
    /// The environment, if it came that far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<EnvironmentRecord>,
    /// Whether the declared condition held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<ConditionProof>,
    /// Freshness facts read in the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freshness: Option<Freshness>,
    /// The phases, in order of their start.
    pub phases: Vec<PhaseSpan>,
    /// Requests and bytes.
    pub meter: MeterReading,
    /// Coarsest timing resolution of the commands, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_us: Option<u64>,
    /// Resources asked for.
    pub requested: Resources,
    /// What the sandbox might reach.
    pub network: NetworkPolicy,
    /// What the backend said of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observation: Option<Observation>,
    /// How the solver's command ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver: Option<Completion>,
    /// What the model did, if the solver is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentRecord>,
    /// How the repetition of a recording went, if the solver is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayRecord>,
    /// How the verifier's command ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifier: Option<Completion>,
    /// The verifier's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Why the trial was not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// How the sandbox ended.
    pub cleanup: Cleanup,
    /// Inputs that were placed.
    pub inputs: Vec<InputEntry>,
    /// Outputs that were kept.
    pub outputs: Vec<OutputRef>,
    /// Conditions that did not change the outcome but that a reader should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Attempt {
    /// True if the verifier accepted the task. Cleanup does not change that.
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.failure.is_none()
            && self.verdict.as_ref().is_some_and(|v| v.decision == crate::verdict::Decision::Accepted)
    }

    /// The length of a phase in microseconds, summed over its spans; none if it was not reached.
    #[must_use]
    pub fn phase_us(&self, phase: Phase) -> Option<u64> {
        self.phases.iter().filter(|span| span.phase == phase).map(|span| span.duration_us).reduce(u64::saturating_add)
    }
}

/// The record of one operation on a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Receipt {
    /// Number within the attempt, from 1.
    pub step: u32,
    /// The phase that it belongs to.
    pub phase: Phase,
    /// The operation: `exec`, `upload`, `download`, `snapshot`, `suspend`, `resume`.
    pub operation: String,
    /// What it was for, such as `solver` or `tests`.
    pub label: String,
    /// Start, in microseconds after the attempt was submitted.
    pub start_us: u64,
    /// Host duration in microseconds.
    pub duration_us: u64,
    /// Duration inside the sandbox in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_us: Option<u64>,
    /// How a command ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<Completion>,
    /// What passed of stdout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<StreamReport>,
    /// What passed of stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<StreamReport>,
    /// Payload bytes of a transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The error, if the operation failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What an intent announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Creates {
    /// A sandbox.
    Sandbox,
    /// A warm artifact.
    Artifact,
}

/// One event of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// The run begins.
    RunStarted {
        /// The run's id.
        run: String,
        /// [`SCHEMA_VERSION`] of the writer.
        schema_version: String,
    },
    /// Something is about to be created. On disk *before* the request is sent.
    Intent {
        /// Its tag.
        tag: Tag,
        /// Where.
        backend: String,
        /// What.
        creates: Creates,
    },
    /// The create request was answered.
    Created {
        /// The new sandbox.
        sandbox: SandboxRef,
    },
    /// The create request failed.
    CreateFailed {
        /// The tag of the intent.
        tag: Tag,
        /// The error.
        error: String,
        /// True if the object may exist all the same.
        uncertain: bool,
    },
    /// An operation on a sandbox.
    Receipt {
        /// The attempt's tag.
        tag: Tag,
        /// The record.
        receipt: Receipt,
    },
    /// A warm artifact was made or found.
    ArtifactReady {
        /// The artifact.
        artifact: Artifact,
    },
    /// The end of a sandbox was requested.
    DestroyRequested {
        /// The sandbox.
        sandbox: SandboxRef,
    },
    /// The backend answered.
    Destroyed {
        /// The sandbox.
        sandbox: SandboxRef,
        /// What it said.
        outcome: Destruction,
    },
    /// An attempt is over.
    AttemptFinished {
        /// Its record.
        attempt: Box<Attempt>,
    },
    /// The run is over.
    RunFinished {
        /// True if the user ended it.
        interrupted: bool,
    },
}

/// One line of `journal.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JournalLine {
    /// Number of the line, from 1, without gaps.
    pub seq: u64,
    /// Host time.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// One entry of `cleanup.json`: something that the run created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CleanupEntry {
    /// Its tag.
    pub tag: Tag,
    /// The backend.
    pub backend: String,
    /// What it is.
    pub creates: Creates,
    /// Its id, if the backend told it.
    pub id: Option<String>,
    /// What is known of its end.
    pub state: CleanupState,
    /// Why it is not known to be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What is known of the end of something that a run created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CleanupState {
    /// The request to create it failed and left nothing.
    Never,
    /// The backend says that it is gone.
    Confirmed,
    /// It is meant to stay: a warm artifact.
    Retained,
    /// It may still exist.
    Unconfirmed,
}
