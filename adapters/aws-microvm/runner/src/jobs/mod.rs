//! Commands as jobs that outlive the connections of those who ask about them.

mod children;
mod job;
mod output;
mod request;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use self::children::Children;
pub(crate) use self::job::{Job, Position};
use self::request::JobRequest;
use crate::refusal::{Answer, Refusal};

/// Most jobs that run at one time, and most that are remembered: of those that have ended, the oldest are forgotten.
const MAX_RUNNING: usize = 256;
const MAX_KNOWN: usize = 1024;

/// All jobs of this MicroVM.
pub(crate) struct Jobs {
    directory: PathBuf,
    known: Mutex<HashMap<String, Arc<Job>>>,
    children: Arc<Children>,
}

impl Jobs {
    /// No jobs; what they write will be below `directory`, where nothing of an earlier process is left.
    pub(crate) fn new(directory: PathBuf) -> Arc<Self> {
        // Usually there is none; what cannot be removed shows when a job of the same id is made.
        let _ = std::fs::remove_dir_all(&directory);
        Arc::new(Self { directory, known: Mutex::default(), children: Children::new() })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<Job>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts what `body` asks for, or finds what the same body has started before; tells whether it is new. Blocks while
    /// the process is made.
    ///
    /// # Errors
    /// 400 for a bad request, 409 for another one with the same id, 429 if there is too much.
    pub(crate) fn submit(&self, body: &[u8]) -> Answer<(Arc<Job>, bool)> {
        let request: JobRequest = serde_json::from_slice(body).map_err(|e| Refusal::bad(e.to_string()))?;
        let digest: [u8; 32] = Sha256::digest(body).into();
        // Held until the job is there, so that two equal requests start one.
        let mut known = self.known();
        let running = known.values().filter(|job| job.running()).count();
        if known.len() >= MAX_KNOWN
            && let Some(oldest) = known.values().filter(|job| !job.running()).min_by_key(|job| job.ended_ms()).cloned()
        {
            oldest.forget();
            known.remove(&oldest.id);
        }
        match known.entry(request.job_id.clone()) {
            Entry::Occupied(job) if job.get().request == digest => Ok((job.get().clone(), false)),
            Entry::Occupied(_) => Err(Refusal::conflict(format!("job {} is another one", request.job_id))),
            Entry::Vacant(_) if running >= MAX_RUNNING => {
                Err(Refusal::busy(format!("{running} jobs run: wait for the end of some")))
            }
            Entry::Vacant(place) => {
                let prepared = request.prepare()?;
                let home = (self.directory.join(&request.job_id), &self.children);
                let job = Job::start(request.job_id.clone(), digest, &request, prepared, home)?;
                Ok((place.insert(job).clone(), true))
            }
        }
    }

    /// The job of this id.
    ///
    /// # Errors
    /// 404.
    pub(crate) fn get(&self, id: &str) -> Answer<Arc<Job>> {
        self.known().get(id).cloned().ok_or_else(|| Refusal::not_found(format!("no job {id:?}")))
    }

    /// All jobs, oldest id first.
    pub(crate) fn all(&self) -> Vec<Arc<Job>> {
        let mut all: Vec<_> = self.known().values().cloned().collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// Forgets a job that has ended.
    ///
    /// # Errors
    /// 404, or 409 while it runs.
    pub(crate) fn delete(&self, id: &str) -> Answer<()> {
        let mut known = self.known();
        match known.get(id) {
            None => return Err(Refusal::not_found(format!("no job {id:?}"))),
            Some(job) if job.running() => return Err(Refusal::conflict(format!("job {id} runs"))),
            Some(job) => job.forget(),
        }
        known.remove(id);
        Ok(())
    }

    /// How many run.
    pub(crate) fn running(&self) -> usize {
        self.known().values().filter(|job| job.running()).count()
    }

    /// Ends all at once, when the runner ends.
    pub(crate) fn kill_all(&self) {
        self.known().values().for_each(|job| job.end_now());
    }
}
