//! Publishes the evidence of a run to a tracker: inputs, figures, series, files with their lineage, and how it ended.
//!
//! What it promises:
//!
//! * The run directory is the truth, and is complete before anything is published. Publishing changes nothing in it but
//!   `tracking.jsonl`, where each step is noted when it is done ([`log`]).
//! * Publishing again sends only what is missing or has changed, also after the process was killed in the middle of it; a final
//!   status is sent last, when all else is there.
//! * It never fails or holds up a run: every request has a limit, and a tracker that does not answer is given up ([`publish`]). What is
//!   missing is told, with the command that sends it.

mod content;
mod figures;
mod files;
mod log;
mod publish;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use sandbox_bench_core::Tracker;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::exit::Fault;
use crate::say;

pub use publish::Published;

/// Where the evidence of a run goes. Made before anything is run, so that a mistake in the configuration costs nothing.
pub struct Tracking {
    tracker: Arc<dyn Tracker>,
    /// What announces the run while it goes on.
    announcing: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Tracking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracking").field("place", &self.tracker.place()).finish_non_exhaustive()
    }
}

impl Tracking {
    /// With the tracker `name`. Sends nothing.
    ///
    /// # Errors
    /// There is no such tracker, or its configuration makes no sense.
    pub fn new(name: &str, config: &Config) -> Result<Self, Fault> {
        let own = config.track.get(name).cloned().unwrap_or_default();
        let tracker = sandbox_bench_registry::tracker(name, &own, &config.backend(name)).map_err(Fault::usage)?;
        Ok(Self { tracker, announcing: Mutex::default() })
    }

    /// Announces the run in `directory`, whose manifest is there, beside what goes on.
    pub fn begin(&self, directory: &Path) {
        let (tracker, directory) = (self.tracker.clone(), directory.to_owned());
        let task = tokio::spawn(async move {
            if let Err(error) = publish::announce(tracker.as_ref(), &directory).await {
                tracing::warn!(%error, "the run is not announced to the tracker; it is tried again at its end");
            }
        });
        *self.announcing.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Publishes the finished run in `directory`.
    ///
    /// # Errors
    /// Its evidence cannot be read, or nothing can be published at all.
    pub async fn publish(&self, directory: &Path) -> anyhow::Result<Published> {
        let announcing = self.announcing.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = announcing {
            // It ends by its own limits, and what it could not do is done below.
            let _ = task.await;
        }
        publish::publish(self.tracker.as_ref(), directory).await
    }

    /// As [`Tracking::publish`], at the end of a run, whose result it does not change: what happens is told on stderr.
    pub async fn finish(&self, directory: &Path) {
        let next = format!("sandbox-bench track {} --tracker {}", directory.display(), self.tracker.name());
        match self.publish(directory).await {
            Ok(published) => {
                say::aside(&published);
                if !published.complete() {
                    say::aside(format_args!("next:     {next} sends what is missing"));
                }
            }
            Err(error) => {
                say::aside(format_args!("not tracked: {:#}", error));
                say::aside(format_args!("next:     {next} tries again"));
            }
        }
    }
}
