//! Recordings: what a solver did in the sandbox, step by step, to be repeated elsewhere.
//!
//! A recording file is JSON or YAML, written by hand or by `sandbox-bench record`:
//!
//! ```yaml
//! tasks:
//! - task: relay-config
//!   steps:
//!   - run: { script: "sed -i s/old/new/ relay.conf" }
//!   - put: { path: /app/notes, text: "a file to place" }
//!   - run: { script: "cat relay.conf", exit_code: 0 }
//! ```
//!
//! Each attempt keeps its steps as the output [`OUTPUT`]; [`record`] gathers them into a file.

mod log;
mod step;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use sandbox_bench_core::Digest;
use serde::{Deserialize, Serialize};

pub use log::{StepLog, content, find, record};
pub use step::{Run, Step};

/// Name of the output that holds an attempt's steps.
pub const OUTPUT: &str = "solver.recording";

/// Largest recording file, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// What was done for some tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// The tasks.
    pub tasks: Vec<TaskSteps>,
}

/// What was done for one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSteps {
    /// Data set of the task; none stands for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// Id of the task.
    pub task: String,
    /// Where the steps come from, for a reader: run, backend, solver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// True if the streams were recorded apart. Where they were not, or are not now, they cannot be compared.
    #[serde(default = "apart")]
    pub separate_streams: bool,
    /// The steps, in their order.
    pub steps: Vec<Step>,
}

fn apart() -> bool {
    true
}

/// A recording that was read from a file, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The file's name, which stands for the solver.
    pub name: String,
    /// Digest of the file.
    pub digest: Digest,
    recording: Recording,
}

impl Replay {
    /// Reads a recording file.
    ///
    /// # Errors
    /// The file cannot be read, is no recording, or holds a step that cannot be run.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let what = || format!("recording {}", path.display());
        let size = std::fs::metadata(path).with_context(what)?.len();
        if size > MAX_FILE {
            bail!("{} has {size} bytes; the limit is {MAX_FILE}", what());
        }
        let bytes = Bytes::from(std::fs::read(path).with_context(what)?);
        let recording = Recording::parse(&bytes).with_context(what)?;
        let name = path.file_name().map_or_else(|| "replay".into(), |name| name.to_string_lossy().into_owned());
        Ok(Self { name, digest: Digest::of(&bytes), recording })
    }

    /// What was done for a task.
    #[must_use]
    pub fn steps(&self, dataset: &str, task: &str) -> Option<&TaskSteps> {
        let of_task = |one: &&TaskSteps| one.task == task;
        let exact = self.recording.tasks.iter().filter(of_task).find(|one| one.dataset.as_deref() == Some(dataset));
        exact.or_else(|| self.recording.tasks.iter().filter(of_task).find(|one| one.dataset.is_none()))
    }
}

impl Recording {
    /// Reads JSON (which begins with a brace) or YAML.
    ///
    /// # Errors
    /// It is neither, not of the form, or holds a step that cannot be run.
    pub fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let text = std::str::from_utf8(bytes).context("it is not UTF-8 text")?;
        let recording: Self = if text.trim_start().starts_with('{') {
            serde_json::from_str(text)?
        } else {
            serde_saphyr::from_str(text)?
        };
        recording.check()?;
        Ok(recording)
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.tasks.is_empty() {
            bail!("it holds no task");
        }
        let mut seen = BTreeSet::new();
        for one in &self.tasks {
            if !seen.insert((&one.dataset, &one.task)) {
                bail!("the task {} is there twice", one.task);
            }
            for (number, step) in one.steps.iter().enumerate() {
                step.check().with_context(|| format!("task {}, step {}", one.task, number + 1))?;
            }
        }
        Ok(())
    }
}
