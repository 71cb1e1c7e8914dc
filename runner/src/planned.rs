//! What the plan knows of tasks, without holding their content: a data set may have tens of thousands of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandbox_bench_core::{Backend, Digest};
use sandbox_bench_datasets::task::Task;
use sandbox_bench_datasets::{Dataset, Problem, TaskEntry};

use crate::environment::{self, Setup};
use crate::plan::TaskName;
use crate::solver::Solver;

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
    /// How its environment is made on each backend, or why it is unavailable there.
    pub setups: BTreeMap<String, Result<Arc<Setup>, String>>,
}

impl PlannedTask {
    /// Reads a task once and keeps what the plan needs.
    ///
    /// # Errors
    /// The task is not valid.
    pub fn new(
        dataset: &Arc<Dataset>,
        entry: TaskEntry,
        backends: &BTreeMap<String, Arc<dyn Backend>>,
        solver: &Solver,
    ) -> Result<Self, Problem> {
        let task = dataset.load(&entry)?;
        let setups = backends
            .iter()
            .map(|(name, backend)| {
                let setup = solvable(&task, solver).and_then(|()| environment::choose(&task, backend.info()));
                (name.clone(), setup.map(Arc::new))
            })
            .collect();
        let name = TaskName { dataset: dataset.name().to_owned(), task: task.id.clone() };
        Ok(Self { dataset: dataset.clone(), entry, name, digest: task.digest, setups })
    }

    /// Reads the task again, to run it.
    ///
    /// # Errors
    /// It is not valid any more.
    pub fn load(&self) -> Result<Arc<Task>, Problem> {
        self.dataset.load(&self.entry).map(Arc::new)
    }
}

/// The reference solution can only be run where there is one.
fn solvable(task: &Task, solver: &Solver) -> Result<(), String> {
    if *solver == Solver::Gold && task.solution.is_none() {
        return Err(format!("task {}: has no reference solution for the solver gold", task.id));
    }
    Ok(())
}
