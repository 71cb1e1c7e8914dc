//! What can go wrong with the engine, in words that name the next step.

use std::io;
use std::time::Duration;

use super::job::TransferFault;

/// Result of engine operations.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// Everything that can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// This machine does not let us build sandboxes.
    #[error(transparent)]
    Unavailable(#[from] Obstacle),
    /// The request makes no sense; nothing was done.
    #[error("{0}")]
    Invalid(String),
    /// No sandbox of this id is in the state directory.
    #[error("there is no sandbox {0}")]
    NoSandbox(String),
    /// The sandbox belongs to another process, and its pipes with it.
    #[error("sandbox {0} was made by another process; only that process can run commands in it")]
    Foreign(String),
    /// No snapshot of this id is in the state directory.
    #[error("there is no snapshot {0}")]
    NoSnapshot(String),
    /// The image cannot be used.
    #[error("image {path}: {why}")]
    Image {
        /// The source.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// A transfer failed in the sandbox.
    #[error("transfer: {0}")]
    Transfer(TransferFault),
    /// The sandbox ended under the operation.
    #[error("sandbox {id} has ended: {why}")]
    Lost {
        /// Which.
        id: String,
        /// What is known about it.
        why: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not finish within {limit:?}")]
    Timeout {
        /// What.
        what: String,
        /// How long we waited.
        limit: Duration,
    },
    /// The host refused a file operation.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl EngineError {
    /// For `map_err`: names what was attempted.
    pub(crate) fn io(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> EngineError {
        let what = what.to_string();
        |source| EngineError::Io { what, source }
    }
}

/// Why sandboxes cannot be built here, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{symptom}. Likely cause: {cause}. Remedy: {remedy}")]
pub struct Obstacle {
    /// What was refused, and how.
    pub symptom: String,
    /// The most likely reason on this machine.
    pub cause: String,
    /// What the user can do.
    pub remedy: String,
}
