//! Why an attempt stopped before its verdict, as a failure class.

use std::io;

use sandbox_bench_core::evidence::Failure;
use sandbox_bench_core::{Completion, Error, ErrorKind, FailureClass, Phase};

/// The reason why an attempt ends here.
#[derive(Debug)]
pub enum Stop {
    /// The trial failed; the run goes on.
    Failed(Failure),
    /// The evidence cannot be written: the run must end.
    Evidence(io::Error),
}

impl Stop {
    /// A failure of `class` in `phase`.
    #[must_use]
    pub fn new(class: FailureClass, phase: Phase, message: impl Into<String>) -> Self {
        Self::Failed(Failure { class, phase, message: message.into(), error_kind: None, retryable: false })
    }

    /// The sandbox or the connection to it was lost.
    #[must_use]
    pub fn lost(phase: Phase, message: String) -> Self {
        Self::Failed(Failure { class: FailureClass::Transport, phase, message, error_kind: None, retryable: true })
    }

    /// The user ended the run.
    #[must_use]
    pub fn interrupted(phase: Phase) -> Self {
        Self::new(FailureClass::Interrupted, phase, "the run was interrupted")
    }

    /// Evidence cannot be written.
    #[must_use]
    pub fn evidence(error: io::Error) -> Self {
        Self::Evidence(error)
    }

    /// The failure that a contract error means in this phase. Whether a further attempt makes sense follows from the
    /// error's kind: passing faults, yes; wrong requests, no.
    #[must_use]
    pub fn from_error(phase: Phase, what: &str, error: &Error) -> Self {
        let starting = matches!(phase, Phase::Environment | Phase::Create | Phase::Ready);
        let (class, retryable) = match error.kind() {
            ErrorKind::Cancelled => (FailureClass::Interrupted, false),
            ErrorKind::Unsupported => (FailureClass::Unavailable, false),
            ErrorKind::Environment => (FailureClass::Environment, false),
            ErrorKind::DeadlineExceeded => (FailureClass::Timeout, starting),
            ErrorKind::RateLimited { .. } | ErrorKind::Capacity | ErrorKind::Unavailable if starting => {
                (FailureClass::Startup, true)
            }
            ErrorKind::RateLimited { .. }
            | ErrorKind::Capacity
            | ErrorKind::Unavailable
            | ErrorKind::Transport
            | ErrorKind::SandboxLost => (FailureClass::Transport, true),
            ErrorKind::UncertainSubmission { .. } => (FailureClass::Startup, true),
            _ if starting => (FailureClass::Startup, false),
            _ => (FailureClass::Environment, false),
        };
        Self::Failed(Failure {
            class,
            phase,
            message: format!("{what}: {error}"),
            error_kind: Some(error.kind().name().to_owned()),
            retryable,
        })
    }

    /// The failure that an unsuccessful harness command means: `class`, unless it ran out of time or memory.
    #[must_use]
    pub fn from_completion(
        class: FailureClass,
        phase: Phase,
        what: &str,
        completion: &Completion,
        words: &str,
    ) -> Self {
        let class = match completion {
            Completion::DeadlineExceeded { .. } => FailureClass::Timeout,
            _ => class,
        };
        let words = if words.is_empty() { String::new() } else { format!(": {words}") };
        Self::new(class, phase, format!("{what}: {completion}{words}"))
    }
}
