//! What the reference solution came to, task by task, over runs: a JSON file that a team keeps beside its tasks. From it
//! follows which tasks are not to be trusted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sandbox_bench_core::Digest;
use sandbox_bench_core::evidence::{Attempt, SCHEMA_VERSION};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Changed, Counts, TaskCounts};
use crate::files::replace_json;

/// A task of equal content: one that was changed is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct TaskName {
    /// The data set.
    pub dataset: String,
    /// The task's id.
    pub task: String,
    /// Digest of its content.
    pub digest: Digest,
}

impl TaskName {
    pub(super) fn of(attempt: &Attempt) -> Self {
        let (dataset, task) = (attempt.trial.dataset.clone(), attempt.trial.task.clone());
        Self { dataset, task, digest: attempt.task_digest.clone() }
    }
}

/// The history of the reference solutions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Baseline {
    /// Version of the evidence schemas of the writer.
    pub schema_version: String,
    /// Runs that are in it.
    pub runs: BTreeSet<String>,
    /// In the order of the tasks.
    pub tasks: Vec<History>,
}

/// What the reference solution of one task came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// The task.
    #[serde(flatten)]
    pub task: TaskName,
    /// Attempts by backend.
    pub backends: BTreeMap<String, Counts>,
}

/// A task that should not be used to judge anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Quarantined {
    /// The task.
    #[serde(flatten)]
    pub task: TaskName,
    /// Why.
    pub why: String,
}

/// Verdicts without which a task is not called broken: one may be an accident.
const ENOUGH: u64 = 2;

/// Why a baseline cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// It cannot be read or written.
    #[error("baseline {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// It is none.
    #[error("baseline {path}: {source}; it is written by `sandbox-bench triage --record`")]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A later version wrote it.
    #[error("baseline {path} has schema version {found}: use the sandbox-bench that wrote it, or a newer one")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
    },
}

impl Baseline {
    /// Reads the file; one that is not there is an empty baseline.
    ///
    /// # Errors
    /// It cannot be read or is none.
    pub fn read(path: &Path) -> Result<Self, BaselineError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(BaselineError::Io { path: path.to_owned(), source }),
        };
        let form = |source| BaselineError::Form { path: path.to_owned(), source };
        let mut baseline: Self = serde_json::from_slice(&text).map_err(form)?;
        let major = |version: &str| version.split('.').next().map(str::to_owned);
        if major(&baseline.schema_version) != major(SCHEMA_VERSION) {
            return Err(BaselineError::TooNew { path: path.to_owned(), found: baseline.schema_version });
        }
        // People edit it.
        baseline.tasks.sort_by(|a, b| a.task.cmp(&b.task));
        Ok(baseline)
    }

    /// Writes the file; readers see the old content or the new.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&mut self, path: &Path) -> Result<(), BaselineError> {
        SCHEMA_VERSION.clone_into(&mut self.schema_version);
        replace_json(path, self).map_err(|source| BaselineError::Io { path: path.to_owned(), source })
    }

    /// What is known of a task.
    #[must_use]
    pub fn history(&self, task: &TaskName) -> Option<&History> {
        let place = self.tasks.binary_search_by(|history| history.task.cmp(task)).ok()?;
        self.tasks.get(place)
    }

    pub(super) fn merge_counts(&mut self, tasks: &TaskCounts) {
        let mut known: BTreeMap<TaskName, BTreeMap<String, Counts>> =
            std::mem::take(&mut self.tasks).into_iter().map(|history| (history.task, history.backends)).collect();
        for (task, counts) in by_backend(tasks) {
            let backends = known.entry(task.clone()).or_default();
            for (backend, counts) in counts {
                backends.entry(backend.to_owned()).or_default().merge(counts);
            }
        }
        self.tasks = known.into_iter().map(|(task, backends)| History { task, backends }).collect();
    }

    /// What came out otherwise than in the runs of the baseline: all verdicts there agree, and one of these does not.
    pub(super) fn changed(&self, tasks: &TaskCounts) -> Vec<Changed> {
        let mut changed = Vec::new();
        for (task, counts) in by_backend(tasks) {
            let Some(history) = self.history(task) else { continue };
            for (backend, now) in counts {
                let Some(before) = history.backends.get(backend).copied() else { continue };
                let lost = before.accepted > 0 && before.rejected == 0 && now.rejected > 0;
                let gained = before.accepted == 0 && before.rejected > 0 && now.accepted > 0;
                if lost || gained {
                    changed.push(Changed { task: task.clone(), backend: backend.to_owned(), before, now });
                }
            }
        }
        changed
    }

    /// The tasks whose reference solution was accepted and rejected on one backend, or rejected everywhere.
    #[must_use]
    pub fn quarantine(&self) -> Vec<Quarantined> {
        let why = |history: &History| {
            let flaky: Vec<String> = history
                .backends
                .iter()
                .filter(|(_, counts)| counts.accepted > 0 && counts.rejected > 0)
                .map(|(backend, c)| format!("{backend} {} of {}", c.accepted, c.accepted + c.rejected))
                .collect();
            if !flaky.is_empty() {
                return Some(format!("flaky: the reference solution was accepted on {}", flaky.join(", ")));
            }
            let sum = |of: fn(&Counts) -> u64| history.backends.values().map(of).sum::<u64>();
            let (accepted, rejected) = (sum(|c| c.accepted), sum(|c| c.rejected));
            (accepted == 0 && rejected >= ENOUGH)
                .then(|| format!("broken: the reference solution was rejected {rejected} times and never accepted"))
        };
        let quarantined = |history: &History| Some(Quarantined { task: history.task.clone(), why: why(history)? });
        self.tasks.iter().filter_map(quarantined).collect()
    }
}

/// The counts of each task's cells, added up by backend.
fn by_backend(tasks: &TaskCounts) -> impl Iterator<Item = (&TaskName, BTreeMap<&str, Counts>)> {
    tasks.iter().map(|(task, cells)| {
        let mut sums: BTreeMap<&str, Counts> = BTreeMap::new();
        for ((backend, _), counts) in cells {
            sums.entry(backend).or_default().merge(*counts);
        }
        (task, sums)
    })
}
