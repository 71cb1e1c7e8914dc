//! No call waits without bound: the deadline of the call is enforced from outside, as a backstop to the adapter's own.

use std::time::Duration;

use super::{BoxFuture, Layer, Operation};
use crate::call::Call;
use crate::error::{Error, ErrorKind, Result};

/// How long an adapter may take to wind up after the caller cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(15);
/// How long after the deadline a command may take to be killed and to deliver what it wrote.
const EXEC_GRACE: Duration = Duration::from_secs(10);

/// Ends a call at its deadline (a command 10 seconds later: its adapter ends it in time and needs that to deliver partial
/// output), or 15 seconds after its cancellation. What the operation may have made by then is not forgotten: the error
/// of a creating operation is `UncertainSubmission`.
pub struct DeadlineLayer;

impl Layer for DeadlineLayer {
    async fn around<'a, T, F>(&'a self, operation: Operation<'a>, call: &'a Call, run: F) -> Result<T>
    where
        T: Send + 'a,
        F: Fn(Call) -> BoxFuture<'a, Result<T>> + Send + Sync + 'a,
    {
        let name = operation.name();
        if call.cancel.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, format!("{name} not started: the call was cancelled")));
        }
        if call.remaining().is_zero() {
            return Err(Error::new(ErrorKind::DeadlineExceeded, format!("{name} not started: no time left")));
        }
        let cut = |kind, why: &str| {
            let kind = operation.creates().map_or(kind, |tag| ErrorKind::UncertainSubmission { tag: tag.clone() });
            Err(Error::new(kind, format!("{name} did not return {why}")))
        };
        let grace = if matches!(operation, Operation::Exec(_)) { EXEC_GRACE } else { Duration::ZERO };
        let cancelled = async {
            call.cancel.cancelled().await;
            tokio::time::sleep(CANCEL_GRACE).await;
        };
        tokio::select! {
            biased;
            result = run(call.clone()) => result,
            () = tokio::time::sleep_until(call.deadline + grace) => cut(ErrorKind::DeadlineExceeded, "by its deadline"),
            () = cancelled => cut(ErrorKind::Cancelled, "after its cancellation"),
        }
    }
}
