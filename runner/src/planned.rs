//! What the plan knows of tasks, without holding their content: a data set may have tens of thousands of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sandbox_bench_core::evidence::Failure;
use sandbox_bench_core::{Backend, Digest};
use sandbox_bench_datasets::task::Task;
use sandbox_bench_datasets::{Dataset, Problem, TaskEntry};

use crate::bases::Bases;
use crate::environment::{self, Setup};
use crate::plan::TaskName;
use crate::solver::Solver;
use crate::ways::Missing;

/// Where the plan's tasks are to run.
pub struct Targets<'a> {
    /// The backends, by name.
    pub backends: &'a BTreeMap<String, Arc<dyn Backend>>,
    /// What stands in for images there, by backend name.
    pub bases: &'a BTreeMap<String, Bases>,
}

/// One task of the plan.
pub struct PlannedTask {
    /// Its data set.
    pub dataset: Arc<Dataset>,
    /// Where it is in there.
    pub entry: TaskEntry,
    /// Its name in the plan.
    pub name: TaskName,
    /// Its digest.
    pub digest: Digest,
    /// The ways to its environment on each backend, best first, or why it is unavailable there.
    ways: BTreeMap<String, Result<Vec<Arc<Setup>>, String>>,
}

impl PlannedTask {
    /// Reads a task once and keeps what the plan needs.
    ///
    /// # Errors
    /// The task is not valid.
    pub fn new(
        dataset: &Arc<Dataset>,
        entry: TaskEntry,
        on: &Targets<'_>,
        solver: &Solver,
        install: Option<&Bytes>,
    ) -> Result<Self, Problem> {
        let task = dataset.load(&entry)?;
        let none = Bases::default();
        let ways = on
            .backends
            .iter()
            .map(|(name, backend)| {
                let bases = on.bases.get(name).unwrap_or(&none);
                let ways = solvable(dataset.name(), &task, solver, backend.as_ref())
                    .and_then(|()| environment::choose(&task, backend.info(), bases));
                (name.clone(), ways.map(|ways| ways.into_iter().map(|way| Arc::new(way.installing(install))).collect()))
            })
            .collect();
        let name = TaskName { dataset: dataset.name().to_owned(), task: task.id.clone() };
        Ok(Self { dataset: dataset.clone(), entry, name, digest: task.digest, ways })
    }

    /// How its environment is made on a backend, given which images are known to be missing.
    ///
    /// # Errors
    /// Why the task is unavailable there.
    pub fn setup(&self, backend: &str, missing: &Missing) -> Result<&Arc<Setup>, &str> {
        let unplanned = "the backend is not part of the plan";
        let ways = self.ways.get(backend).ok_or(unplanned)?.as_ref().map_err(String::as_str)?;
        missing.best(backend, ways).ok_or(unplanned)
    }

    /// Takes note of a failure to start from `setup`; true if it is a missing image and there is another way.
    pub fn other_way(&self, backend: &str, setup: &Setup, failure: &Failure, missing: &Missing) -> bool {
        missing.note(backend, setup, failure)
            && self.setup(backend, missing).is_ok_and(|next| next.fingerprint != setup.fingerprint)
    }

    /// Reads the task again, to run it.
    ///
    /// # Errors
    /// It is not valid any more.
    pub fn load(&self) -> Result<Arc<Task>, Problem> {
        self.dataset.load(&self.entry).map(Arc::new)
    }
}

/// Whether the solver can do anything about the task on that backend: a reference solution or a recording can only be run
/// where there is one, and a model writes files through stdin.
fn solvable(dataset: &str, task: &Task, solver: &Solver, backend: &dyn Backend) -> Result<(), String> {
    let id = &task.id;
    match solver {
        Solver::Gold if task.solution.is_none() => {
            Err(format!("task {id}: has no reference solution for the solver gold"))
        }
        Solver::Replay(replay) if replay.steps(dataset, id).is_none() => {
            Err(format!("task {id}: the recording {} has no steps for it", replay.name))
        }
        Solver::Agent(_) if !backend.info().capabilities.stdin => Err(format!(
            "task {id} on {}: commands take no stdin there, through which the agent writes files",
            backend.info().name
        )),
        _ => Ok(()),
    }
}
