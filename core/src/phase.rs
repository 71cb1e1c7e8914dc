//! The named intervals of a trial.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The phases of a trial, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Getting the environment to the backend: image pull or build, or finding the artifact. Its cache use is recorded.
    Environment,
    /// From sending the create request to its answer, without [`Phase::Environment`].
    Create,
    /// From the answer of `create` to the success of the first `exec`.
    Ready,
    /// Placing the authorized inputs.
    Inputs,
    /// Making the environment fit the task: recipe steps, task patches.
    Prepare,
    /// The solver.
    Solve,
    /// The verifier.
    Verify,
    /// Bringing outputs home.
    Collect,
    /// Making a warm artifact.
    Snapshot,
    /// From requesting the end of the sandbox to the backend's confirmation.
    Destroy,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Self; 10] = [
        Self::Environment,
        Self::Create,
        Self::Ready,
        Self::Inputs,
        Self::Prepare,
        Self::Solve,
        Self::Verify,
        Self::Collect,
        Self::Snapshot,
        Self::Destroy,
    ];

    /// The name used in evidence and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Create => "create",
            Self::Ready => "ready",
            Self::Inputs => "inputs",
            Self::Prepare => "prepare",
            Self::Solve => "solve",
            Self::Verify => "verify",
            Self::Collect => "collect",
            Self::Snapshot => "snapshot",
            Self::Destroy => "destroy",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One interval, from the host's one monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseSpan {
    /// Which phase.
    pub phase: Phase,
    /// Start, in microseconds after the trial was submitted.
    pub start_us: u64,
    /// Length in microseconds.
    pub duration_us: u64,
    /// The part spent inside the sandbox, as measured there, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_us: Option<u64>,
    /// False if the phase ended in an error.
    pub ok: bool,
}
