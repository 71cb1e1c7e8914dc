//! Background tasks with an owner.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Tasks that end with their owner: state transitions, expiry timers, log pumps.
#[derive(Default)]
pub struct Tasks {
    running: Mutex<JoinSet<()>>,
    closing: CancellationToken,
}

impl Tasks {
    /// Starts a task. Must be called within a tokio runtime.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // What has ended is let go of, so that the set holds only what runs.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Cancelled when all tasks are aborted: for what a library has started, such as an upgraded connection.
    pub fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    /// Aborts all.
    pub fn abort(&self) {
        self.closing.cancel();
        self.running.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}
