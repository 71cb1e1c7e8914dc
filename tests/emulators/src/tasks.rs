//! Background tasks with an owner.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::task::JoinSet;

/// Tasks that end with their owner: state transitions, expiry timers, log pumps.
#[derive(Default)]
pub struct Tasks(Mutex<JoinSet<()>>);

impl Tasks {
    /// Starts a task. Must be called within a tokio runtime.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What has ended is let go of, so that the set holds only what runs.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Aborts all.
    pub fn abort(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}
