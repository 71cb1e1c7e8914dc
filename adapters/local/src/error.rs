//! From the engine's errors to those of the contract.

use sandbox_bench_core::{Error, ErrorKind};

use crate::engine::{EngineError, NotStarted, TransferFault};

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        let kind = match &error {
            EngineError::Unavailable(obstacle) => {
                let message = format!("local: {} ({})", obstacle.symptom, obstacle.cause);
                return Error::unsupported(message).hint(obstacle.remedy.clone());
            }
            EngineError::Invalid(_) | EngineError::Transfer(TransferFault::TooLarge(_) | TransferFault::Refused(_)) => {
                ErrorKind::InvalidRequest
            }
            EngineError::NoSandbox(_)
            | EngineError::NoSnapshot(_)
            | EngineError::Transfer(TransferFault::NotFound(_)) => ErrorKind::NotFound,
            EngineError::Foreign(_) => ErrorKind::Unsupported,
            EngineError::Image { .. } => ErrorKind::Environment,
            EngineError::Lost { .. } => ErrorKind::SandboxLost,
            EngineError::Timeout { .. } => ErrorKind::Transport,
            EngineError::Io { .. } => ErrorKind::Failed,
        };
        Error::new(kind, format!("local: {error}"))
    }
}

impl From<NotStarted> for Error {
    fn from(why: NotStarted) -> Self {
        let kind = match why {
            NotStarted::NoDirectory { .. } | NotStarted::NoUser { .. } => ErrorKind::NotFound,
            NotStarted::NoProgram { .. } | NotStarted::NotExecutable { .. } | NotStarted::Other { .. } => {
                ErrorKind::Failed
            }
        };
        Error::new(kind, format!("local: command not started: {why}"))
    }
}
