//! Repetition, by the class of the error and the idempotency of the operation.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};

use super::{BoxFuture, Layer, Operation};
use crate::call::Call;
use crate::error::{Error, ErrorKind, Result};

/// How often and how patiently to repeat.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Most repetitions after the first attempt.
    pub max_retries: usize,
    /// Wait before the first repetition; it doubles, with jitter.
    pub min_wait: Duration,
    /// Longest wait between two attempts.
    pub max_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_retries: 4, min_wait: Duration::from_millis(250), max_wait: Duration::from_secs(20) }
    }
}

/// Repeats an operation when that is harmless: after an error that proves that nothing took effect, or, for an
/// idempotent operation, after a transport fault. A `create` or `exec` of unknown outcome is never repeated; from a
/// creating operation it becomes `UncertainSubmission`.
pub struct RetryLayer {
    policy: RetryPolicy,
}

impl RetryLayer {
    /// A layer with this policy.
    #[must_use]
    pub fn new(policy: RetryPolicy) -> Self {
        Self { policy }
    }
}

impl Layer for RetryLayer {
    async fn around<'a, T, F>(&'a self, operation: Operation<'a>, call: &'a Call, run: F) -> Result<T>
    where
        T: Send + 'a,
        F: Fn(Call) -> BoxFuture<'a, Result<T>> + Send + Sync + 'a,
    {
        let backoff = ExponentialBuilder::default()
            .with_jitter()
            .with_min_delay(self.policy.min_wait)
            .with_max_delay(self.policy.max_wait)
            .with_max_times(self.policy.max_retries);
        let cancelled = || Error::new(ErrorKind::Cancelled, format!("{} not repeated: cancelled", operation.name()));
        let attempt = || async { if call.cancel.is_cancelled() { Err(cancelled()) } else { run(call.clone()).await } };
        let cancel = call.cancel.clone();
        let wait = move |time| {
            let cancel = cancel.clone();
            async move {
                tokio::select! { () = tokio::time::sleep(time) => {}, () = cancel.cancelled() => {} }
            }
        };
        let result = attempt
            .retry(backoff)
            .sleep(wait)
            .when(move |error: &Error| may_repeat(operation, error))
            // A wait that outlasts the deadline is not begun: the caller gets the error that it would be waiting out.
            .adjust(|error: &Error, wait| {
                wait.map(|wait| asked_wait(error).unwrap_or(wait).max(wait)).filter(|wait| *wait < call.remaining())
            })
            .notify(|_, _| call.meter.retried())
            .await;
        match (result, operation.creates()) {
            (Err(error), Some(tag)) if *error.kind() == ErrorKind::Transport => {
                let kind = ErrorKind::UncertainSubmission { tag: tag.clone() };
                Err(Error::new(kind, format!("the answer to {} was lost", operation.name())).because(error))
            }
            (result, _) => result,
        }
    }
}

fn may_repeat(operation: Operation<'_>, error: &Error) -> bool {
    match error.kind() {
        ErrorKind::RateLimited { .. } | ErrorKind::Unavailable => true,
        ErrorKind::Transport => operation.idempotent(),
        _ => false,
    }
}

fn asked_wait(error: &Error) -> Option<Duration> {
    match error.kind() {
        ErrorKind::RateLimited { retry_after } => *retry_after,
        _ => None,
    }
}
