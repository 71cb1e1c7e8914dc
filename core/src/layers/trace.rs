//! One log event per operation: what, for which tag, how long, how it ended. Never arguments, never secrets.

use tokio::time::Instant;

use super::{BoxFuture, Layer, Operation};
use crate::call::Call;
use crate::error::Result;

/// Emits a `debug` event at the end of each operation and a `warn` event when it failed.
pub struct TraceLayer;

impl Layer for TraceLayer {
    async fn around<'a, T, F>(&'a self, operation: Operation<'a>, call: &'a Call, run: F) -> Result<T>
    where
        T: Send + 'a,
        F: Fn(Call) -> BoxFuture<'a, Result<T>> + Send + Sync + 'a,
    {
        let start = Instant::now();
        let result = run(call.clone()).await;
        let elapsed_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        match &result {
            Ok(_) => tracing::debug!(operation = operation.name(), tag = %call.tag, elapsed_us, "done"),
            Err(error) => tracing::warn!(
                operation = operation.name(), tag = %call.tag, elapsed_us, kind = error.kind().name(), %error, "failed"
            ),
        }
        result
    }
}
