//! When a backend asks one caller to slow down, all callers do.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{BoxFuture, Layer, Operation};
use crate::call::Call;
use crate::error::{Error, ErrorKind, Result};

/// How long to hold back when the backend names no time.
const DEFAULT_HOLD: Duration = Duration::from_secs(1);

/// Holds every operation back until the time that the backend's last rate-limit answer asked for. It does not repeat
/// anything: that is the retry layer's part.
#[derive(Default)]
pub struct RateLimitLayer {
    not_before: Mutex<Option<Instant>>,
}

impl RateLimitLayer {
    fn hold(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut slot = self.not_before.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(slot.map_or(until, |old| old.max(until)));
    }

    fn until(&self) -> Option<Instant> {
        *self.not_before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Layer for RateLimitLayer {
    async fn around<'a, T, F>(&'a self, operation: Operation<'a>, call: &'a Call, run: F) -> Result<T>
    where
        T: Send + 'a,
        F: Fn(Call) -> BoxFuture<'a, Result<T>> + Send + Sync + 'a,
    {
        if let Some(until) = self.until().filter(|until| *until > Instant::now()) {
            if until >= call.deadline {
                let wait = until.saturating_duration_since(Instant::now());
                return Err(Error::new(
                    ErrorKind::RateLimited { retry_after: Some(wait) },
                    format!("{} not started: the backend's rate limit outlasts the deadline", operation.name()),
                ));
            }
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = call.cancel.cancelled() => {
                    return Err(Error::new(ErrorKind::Cancelled, format!("{} not started: cancelled", operation.name())));
                }
            }
        }
        let result = run(call.clone()).await;
        if let Err(error) = &result
            && let ErrorKind::RateLimited { retry_after } = error.kind()
        {
            self.hold(retry_after.unwrap_or(DEFAULT_HOLD));
        }
        result
    }
}
