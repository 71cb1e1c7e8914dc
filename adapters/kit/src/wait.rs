//! Waits that end.

use std::future::Future;
use std::time::Duration;

use sandbox_bench_core::{Call, Error, ErrorKind, Result};

/// Waits for `future`, at most until the call's deadline or cancellation.
///
/// # Errors
/// `Cancelled` or `DeadlineExceeded`; `what` begins the message ("sandbox 3f2a…: start").
pub async fn bounded<T>(call: &Call, what: &str, future: impl Future<Output = T>) -> Result<T> {
    tokio::select! {
        biased;
        () = call.cancel.cancelled() => Err(Error::new(ErrorKind::Cancelled, format!("{what}: cancelled"))),
        () = tokio::time::sleep_until(call.deadline) => {
            Err(Error::new(ErrorKind::DeadlineExceeded, format!("{what}: no answer by the deadline")))
        }
        done = future => Ok(done),
    }
}

/// The same call without the caller's cancellation, for requests whose answer must be known.
#[must_use]
pub fn uncancelled(call: &Call, limit: Duration) -> Call {
    call.within(limit).with_cancel(Default::default())
}

/// A call for bringing to an end what the caller has ended: with a limit of its own, and not cancelled.
#[must_use]
pub fn winding_up(call: &Call, limit: Duration) -> Call {
    call.with_limit(limit).with_cancel(Default::default())
}
