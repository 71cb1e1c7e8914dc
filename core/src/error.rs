//! One error type for the whole contract. It promises to say what happened to what, and what the caller may do next.

use std::fmt;
use std::time::Duration;

use crate::tag::Tag;

/// The result of every contract operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, sorted by what the caller may do about it ([`ErrorKind::next`]).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request itself is wrong: repeating it unchanged fails again.
    InvalidRequest,
    /// Credentials are missing, expired or may not do this.
    Credentials,
    /// The grants of this call do not allow the operation. Nothing was sent to the backend.
    Denied,
    /// The named sandbox, artifact, image or path does not exist.
    NotFound,
    /// The backend asks to slow down. Nothing took effect.
    RateLimited {
        /// How long the backend asked to wait, if it said so.
        retry_after: Option<Duration>,
    },
    /// A quota or capacity limit of the backend is reached. Nothing took effect. The caller decides whether to wait for
    /// room: the retry layer does not.
    Capacity,
    /// The backend could not be reached or answered with a passing fault, and nothing took effect.
    Unavailable,
    /// The connection or the backend failed, and it is unknown whether the request took effect. From a creating
    /// operation the layers make it [`ErrorKind::UncertainSubmission`].
    Transport,
    /// The answer to a `create` or `build_artifact` was lost. Resolve with [`crate::Backend::find`] or
    /// [`crate::Backend::artifacts`] for this tag before anything more is launched.
    UncertainSubmission {
        /// The tag under which the object exists, if it does.
        tag: Tag,
    },
    /// The sandbox is gone or unusable; its work is lost.
    SandboxLost,
    /// The call's deadline passed.
    DeadlineExceeded,
    /// The call was cancelled by the caller.
    Cancelled,
    /// This backend cannot do that at all.
    Unsupported,
    /// The task's environment could not be built or started (image missing, build step failed).
    Environment,
    /// The backend refused or failed for good, for a reason of its own.
    Failed,
}

/// What a caller may do after an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// Change the request; the hint says how.
    FixRequest,
    /// Provide or renew credentials.
    FixCredentials,
    /// Wait (for the given time, if known), then repeat.
    Wait(Option<Duration>),
    /// Repeat at once or with a backoff: nothing took effect.
    RetrySafely,
    /// Find out what happened before doing anything else.
    Reconcile(Option<Tag>),
    /// Stop: a repetition will not help.
    GiveUp,
    /// Choose another backend or leave this trial out.
    Unsupported,
}

impl ErrorKind {
    /// What the caller may do next.
    #[must_use]
    pub fn next(&self) -> NextStep {
        match self {
            Self::InvalidRequest | Self::Denied | Self::NotFound | Self::Environment => NextStep::FixRequest,
            Self::Credentials => NextStep::FixCredentials,
            Self::RateLimited { retry_after } => NextStep::Wait(*retry_after),
            Self::Capacity => NextStep::Wait(None),
            Self::Unavailable => NextStep::RetrySafely,
            Self::Transport => NextStep::Reconcile(None),
            Self::UncertainSubmission { tag } => NextStep::Reconcile(Some(tag.clone())),
            Self::SandboxLost | Self::DeadlineExceeded | Self::Cancelled | Self::Failed => NextStep::GiveUp,
            Self::Unsupported => NextStep::Unsupported,
        }
    }

    /// A stable lower-case name for evidence and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::Credentials => "credentials",
            Self::Denied => "denied",
            Self::NotFound => "not_found",
            Self::RateLimited { .. } => "rate_limited",
            Self::Capacity => "capacity",
            Self::Unavailable => "unavailable",
            Self::Transport => "transport",
            Self::UncertainSubmission { .. } => "uncertain_submission",
            Self::SandboxLost => "sandbox_lost",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Cancelled => "cancelled",
            Self::Unsupported => "unsupported",
            Self::Environment => "environment",
            Self::Failed => "failed",
        }
    }
}

/// An error of the contract: a kind, what failed, and what to do.
///
/// `message` is a lower-case fragment naming the object ("container 3f2a…: exec failed"); it never holds a secret.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl Error {
    /// An error of `kind` about what `message` says.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, source: None }
    }

    /// Shorthand for [`ErrorKind::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Shorthand for [`ErrorKind::InvalidRequest`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, message)
    }

    /// Adds what the user can do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the underlying cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// What the caller may do next.
    #[must_use]
    pub fn next(&self) -> NextStep {
        self.kind.next()
    }
}
