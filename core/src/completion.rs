//! How a command ended. Operational completion only: whether a *task* is accepted is the verifier's word.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether the processes of a command that ran out of time are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TreeKill {
    /// Every process of the command, `setsid` children included, was seen to be gone.
    Yes,
    /// At least one survived.
    No,
    /// The backend gives no way to know.
    Unknown,
}

/// How a command ended. An unknown exit code is never 0: it is [`Completion::TransportLost`] or
/// [`Completion::SandboxLost`]. Partial output survives every one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Completion {
    /// The command exited by itself. Backends that see signals only through the shell's convention report a
    /// signalled command as `128 + signal` here (see [`crate::Capabilities::exact_signals`]).
    Exited {
        /// The exit code, 0–255.
        code: i32,
    },
    /// A signal ended the command.
    Signalled {
        /// The signal number.
        signal: i32,
    },
    /// The time limit passed and the command was stopped.
    DeadlineExceeded {
        /// Whether its whole process tree is gone.
        tree_killed: TreeKill,
    },
    /// The memory limit ended the command.
    OutOfMemory,
    /// The sandbox ended under the command.
    SandboxLost,
    /// The connection was lost and the command's end could not be learnt any more.
    TransportLost,
    /// The caller cancelled; the command was stopped as at a deadline.
    Cancelled {
        /// Whether its whole process tree is gone.
        tree_killed: TreeKill,
    },
}

impl Completion {
    /// True only for exit code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        matches!(self, Self::Exited { code: 0 })
    }

    /// The exit code, when the command exited by itself.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        match self {
            Self::Exited { code } => Some(*code),
            _ => None,
        }
    }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "exit code {code}"),
            Self::Signalled { signal } => write!(f, "killed by signal {signal}"),
            Self::DeadlineExceeded { tree_killed: TreeKill::Yes } => f.write_str("time limit exceeded"),
            Self::DeadlineExceeded { tree_killed } => {
                write!(f, "time limit exceeded (process tree killed: {tree_killed:?})")
            }
            Self::OutOfMemory => f.write_str("out of memory"),
            Self::SandboxLost => f.write_str("the sandbox was lost"),
            Self::TransportLost => f.write_str("the connection to the sandbox was lost"),
            Self::Cancelled { .. } => f.write_str("cancelled"),
        }
    }
}

/// What passed of one output stream. Truncation is a fact with byte counts, never silent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamReport {
    /// Bytes the command wrote, if the backend can know.
    pub total_bytes: Option<u64>,
    /// Bytes delivered to the sink.
    pub delivered_bytes: u64,
    /// Offset in the delivered bytes at which bytes are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_at: Option<u64>,
}

impl StreamReport {
    /// True when the sink did not get everything.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.gap_at.is_some() || self.total_bytes.is_some_and(|total| total > self.delivered_bytes)
    }
}

/// The outcome of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecReport {
    /// How it ended.
    pub completion: Completion,
    /// What passed of standard output (of both streams, where the backend cannot separate them).
    pub stdout: StreamReport,
    /// What passed of standard error.
    pub stderr: StreamReport,
    /// The command's duration measured inside the sandbox; host duration minus this is the backend's overhead.
    pub guest_time: Option<Duration>,
    /// How exactly the end was seen: the polling interval or clock step that bounds the error of the timing.
    pub resolution: Option<Duration>,
}

impl ExecReport {
    /// A report with nothing but a completion.
    #[must_use]
    pub fn bare(completion: Completion) -> Self {
        Self {
            completion,
            stdout: StreamReport::default(),
            stderr: StreamReport::default(),
            guest_time: None,
            resolution: None,
        }
    }
}
