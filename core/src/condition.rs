//! How a sandbox came to be: declared by the plan, then proven or not.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The declared condition of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// A new sandbox; nothing task-specific is reused but the image.
    Cold,
    /// A new sandbox, started from a warm artifact.
    Warm,
    /// The same sandbox as the previous trial of this backend and environment.
    Reuse,
    /// A new sandbox, made as for `cold`, suspended with its processes and resumed; its start is the resumption.
    Resumed,
}

impl Condition {
    /// The name used on the command line and in evidence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::Reuse => "reuse",
            Self::Resumed => "resumed",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Whether the declared condition is what really happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum ConditionProof {
    /// The facts agree with the declaration.
    Proven {
        /// The facts, in words.
        why: String,
    },
    /// The backend gives no way to tell.
    Unproven {
        /// What is missing.
        why: String,
    },
    /// The facts contradict the declaration: the trial is an error.
    Violated {
        /// The contradiction.
        why: String,
    },
}

/// What tells a process from every other one of the same boot: a number may be used again, but not at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: u32,
    /// When it was started, in ticks since the boot, as `/proc` has it.
    pub start_ticks: u64,
}

/// Facts read inside a sandbox that tell one sandbox, boot and start from another.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Freshness {
    /// The kernel's boot id: the same for all sandboxes of one kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The pid namespace, new for each container-like sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<String>,
    /// The mount namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount_namespace: Option<String>,
    /// Seconds since the kernel started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uptime_seconds: Option<f64>,
    /// The marker that an earlier trial left in this sandbox, if there is one: its tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marker: Option<String>,
    /// The fingerprint that prewarm baked into the artifact, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact_fingerprint: Option<String>,
    /// The process that was left running before the sandbox was suspended, if it still runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub witness: Option<ProcessIdentity>,
}
