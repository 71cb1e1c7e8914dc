//! Every child of this process: those of jobs, and the orphans that it adopts.

use std::collections::HashSet;
use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::sys::{self, Exit};

/// How long a dead orphan may stay a zombie.
const ROUND: Duration = Duration::from_millis(500);

/// Processes of jobs that have not been reaped. The lock is held while one is started, because the standard library reaps
/// by itself what it could not start.
#[derive(Debug, Default)]
pub(crate) struct Children(Mutex<HashSet<i32>>);

impl Children {
    /// With a thread that reaps orphans for as long as the process lives.
    pub(crate) fn new() -> Arc<Self> {
        let children = Arc::new(Self::default());
        let watched = children.clone();
        thread::spawn(move || {
            loop {
                thread::sleep(ROUND);
                watched.reap_orphans();
            }
        });
        children
    }

    fn of_jobs(&self) -> MutexGuard<'_, HashSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process that the caller will reap.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<i32> {
        let mut of_jobs = self.of_jobs();
        let pid = i32::try_from(command.spawn()?.id()).map_err(io::Error::other)?;
        of_jobs.insert(pid);
        Ok(pid)
    }

    /// Reaps a process of a job that has ended.
    pub(crate) fn reap(&self, pid: i32) -> io::Result<Exit> {
        let mut of_jobs = self.of_jobs();
        of_jobs.remove(&pid);
        sys::reap(pid)
    }

    fn reap_orphans(&self) {
        let of_jobs = self.of_jobs();
        // One of a job is reaped by its own thread in a moment; what it hides is found in the next round.
        while let Some(pid) = sys::ended_child().filter(|pid| !of_jobs.contains(pid)) {
            if sys::reap(pid).is_err() {
                break;
            }
        }
    }
}
