//! [`Tracker`] and [`TrackedRun`]: a service that keeps runs of experiments with their inputs, metrics and artifacts, to which
//! evidence is published. The local evidence stays the truth: what a tracker holds is a copy.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::call::Call;
use crate::digest::Digest;
use crate::error::Result;

/// A service that keeps runs of experiments. Like a backend it holds no policy: it repeats nothing by itself.
#[async_trait]
pub trait Tracker: Send + Sync {
    /// Its name, such as `polyaxon`.
    fn name(&self) -> &str;

    /// Where its runs are, in words and without credentials. Equal for equal places.
    fn place(&self) -> &str;

    /// The tracked run of an evaluation: the one that is there already, else a new one.
    ///
    /// A lost answer is followed by a search. `Transport` means that it is not known whether there is one; opening again finds
    /// it, if there is.
    /// Errors: `Credentials`, `NotFound` (no such project), `Transport`, `Unavailable`, …
    async fn open(&self, call: &Call, evaluation: &Evaluation) -> Result<Arc<dyn TrackedRun>>;

    /// The tracked run of this id, opened earlier for the same evaluation.
    ///
    /// Idempotent. Errors: `NotFound`, also for one that was put away or is being deleted.
    async fn attach(&self, call: &Call, evaluation: &Evaluation, id: &str) -> Result<Arc<dyn TrackedRun>>;
}

/// A run at a tracker. Every method returns by `call.deadline`, and soon after `call.cancel` is cancelled; all are idempotent, so that
/// whoever publishes may begin again anywhere.
#[async_trait]
pub trait TrackedRun: Send + Sync {
    /// Its id there.
    fn id(&self) -> &str;

    /// Adds to what is said of it; what has the same name is replaced.
    async fn describe(&self, call: &Call, description: &Description) -> Result<()>;

    /// Keeps series of values, each in place of what it held under this name.
    async fn series(&self, call: &Call, series: &[Series]) -> Result<()>;

    /// Keeps a copy of the file `from`, in place of what it held at this path. Memory does not grow with the file.
    ///
    /// Errors: `InvalidRequest` (too large for the service), …
    async fn upload(&self, call: &Call, file: &TrackedFile, from: &Path) -> Result<()>;

    /// Enters files and directories into its lineage. What is there already under the same name is replaced.
    async fn link(&self, call: &Call, files: &[TrackedFile]) -> Result<()>;

    /// Tells how the evaluation stands. A final status is not taken back by a later one, and a run whose status the service sets by
    /// itself is left alone.
    async fn status(&self, call: &Call, status: TrackedStatus, why: &str) -> Result<()>;
}

/// An evaluation, as it is made known to a tracker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// The id of our run: by this it is found again.
    pub run: String,
    /// What it is: `run` or `fixture`.
    pub kind: String,
    /// Words that it can be listed by.
    pub tags: Vec<String>,
}

/// How an evaluation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackedStatus {
    /// It goes on.
    Running,
    /// It came to its end, whatever was decided of its cases.
    Succeeded,
    /// Something else than a decision went wrong.
    Failed,
    /// The user ended it, or it did not come to its end.
    Stopped,
}

/// What is said of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Description {
    /// What was asked: revisions, cases, configuration.
    pub inputs: Map<String, Value>,
    /// What came of it, as figures by which runs can be compared.
    pub outputs: Map<String, Value>,
    /// What else it can be found by.
    pub meta: Map<String, Value>,
    /// Words that it can be listed by.
    pub tags: Vec<String>,
}

/// Values of one kind in the order in which they were measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name: letters, digits and `_`, 128 at most.
    pub name: String,
    /// The values; at least one.
    pub points: Vec<Point>,
}

/// One value of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Its number, from 1.
    pub step: u64,
    /// When it was measured.
    pub at: Timestamp,
    /// The value.
    pub value: f64,
}

/// A file or directory of the evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackedFile {
    /// Path in the run directory, with `/`.
    pub path: String,
    /// Digest of its content; none of a directory.
    pub digest: Option<Digest>,
    /// Size in bytes; of a directory, that of all its files.
    pub size: u64,
    /// True if it was given, false if it came of the run.
    pub input: bool,
}
