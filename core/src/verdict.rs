//! Task acceptance, and the classes of failure that are kept apart from it.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The verifier's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The task is done.
    Accepted,
    /// The task is not done.
    Rejected,
    /// The verifier gave no word that can be read as either.
    Undecided,
}

/// Counts of a test run, as parsed from the verifier's output or report file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TestCounts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed or errored.
    pub failed: u64,
    /// Tests that were skipped.
    pub skipped: u64,
    /// Names of failed tests, the first 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<String>,
}

impl TestCounts {
    /// All tests that ran to a status.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.passed.saturating_add(self.failed).saturating_add(self.skipped)
    }
}

/// Everything that speaks for or against acceptance, side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// Which fact decided: `reward`, `tests` or `exit_code`.
    pub decided_by: String,
    /// Rewards by key, as the reward file has them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rewards: BTreeMap<String, f64>,
    /// The verifier's exit code, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Parsed test results, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<TestCounts>,
    /// Facts that contradict the decision, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disagreements: Vec<String>,
    /// True if a reward file existed before the verifier ran. It was removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preseeded_reward: bool,
}

/// Why a trial did not end in acceptance. The classes never mix: infrastructure never counts as rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FailureClass {
    /// The sandbox did not start.
    Startup,
    /// The connection to the backend or the sandbox failed.
    Transport,
    /// The environment could not be made as the task describes it.
    Environment,
    /// The solver could not be run, or broke.
    Solver,
    /// A patch did not apply.
    Patch,
    /// A time limit passed.
    Timeout,
    /// The verifier ran and said no.
    Rejected,
    /// The verifier ran but its word cannot be read.
    Verifier,
    /// The sandbox is not confirmed gone.
    Cleanup,
    /// This backend cannot run this task at all: not counted as failed.
    Unavailable,
    /// The user interrupted the run.
    Interrupted,
}

impl FailureClass {
    /// The name used in tables and evidence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Transport => "transport",
            Self::Environment => "environment",
            Self::Solver => "solver",
            Self::Patch => "patch",
            Self::Timeout => "timeout",
            Self::Rejected => "rejected",
            Self::Verifier => "verifier",
            Self::Cleanup => "cleanup",
            Self::Unavailable => "unavailable",
            Self::Interrupted => "interrupted",
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
