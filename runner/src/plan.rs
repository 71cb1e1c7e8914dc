//! The plan: the expanded matrix backend × condition × model × task × replicate, in an order that is fair and repeatable.

use std::collections::BTreeMap;
use std::str::FromStr;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use sandbox_bench_core::Condition;
use sandbox_bench_core::evidence::TrialKey;

/// The order of trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Tasks in seeded random order; for each, all backends and conditions side by side, also in seeded random order,
    /// so that time of day favours none of them.
    Interleaved,
    /// Everything in seeded random order.
    Random,
    /// As given: backend by backend, condition by condition, task by task.
    Sequential,
}

impl Order {
    /// The name on the command line and in evidence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Interleaved => "interleaved",
            Self::Random => "random",
            Self::Sequential => "sequential",
        }
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Interleaved, Self::Random, Self::Sequential]
            .into_iter()
            .find(|order| order.name() == text)
            .ok_or_else(|| format!("unknown order {text:?}: use interleaved, random or sequential"))
    }
}

/// A task of the plan: its data set and id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskName {
    /// Data set name.
    pub dataset: String,
    /// Task id.
    pub task: String,
}

/// What a plan is expanded from.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    /// Backend names.
    pub backends: &'a [String],
    /// Conditions.
    pub conditions: &'a [Condition],
    /// Models; empty where the solver is none.
    pub models: &'a [String],
    /// Tasks.
    pub tasks: &'a [TaskName],
    /// Trials of each task in each cell.
    pub replicates: u32,
}

/// One combination of backend, condition and model.
type Cell<'a> = (&'a String, Condition, Option<&'a String>);

impl Matrix<'_> {
    fn cells(&self) -> Vec<Cell<'_>> {
        let models: Vec<Option<&String>> =
            if self.models.is_empty() { vec![None] } else { self.models.iter().map(Some).collect() };
        let mut cells = Vec::new();
        for backend in self.backends {
            for condition in self.conditions {
                cells.extend(models.iter().map(|model| (backend, *condition, *model)));
            }
        }
        cells
    }
}

/// Expands the matrix. Replicate 1 of every cell comes before replicate 2 of any, in every order but `Random`.
#[must_use]
pub fn expand(matrix: &Matrix<'_>, order: Order, seed: u64) -> Vec<TrialKey> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (cells, tasks) = (matrix.cells(), matrix.tasks);
    let key = |(backend, condition, model): Cell<'_>, name: &TaskName, replicate| TrialKey {
        backend: backend.clone(),
        condition,
        dataset: name.dataset.clone(),
        task: name.task.clone(),
        replicate,
        model: model.cloned(),
    };
    let mut trials = Vec::with_capacity(cells.len() * tasks.len() * matrix.replicates as usize);
    for replicate in 1..=matrix.replicates {
        match order {
            Order::Sequential | Order::Random => {
                trials.extend(cells.iter().flat_map(|cell| tasks.iter().map(move |task| key(*cell, task, replicate))));
            }
            Order::Interleaved => {
                let mut shuffled: Vec<&TaskName> = tasks.iter().collect();
                shuffled.shuffle(&mut rng);
                for task in shuffled {
                    let mut side_by_side = cells.clone();
                    side_by_side.shuffle(&mut rng);
                    trials.extend(side_by_side.into_iter().map(|cell| key(cell, task, replicate)));
                }
            }
        }
    }
    if order == Order::Random {
        trials.shuffle(&mut rng);
    }
    trials
}

/// Counts trials by backend, for display.
#[must_use]
pub fn by_backend(trials: &[TrialKey]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for trial in trials {
        *counts.entry(trial.backend.clone()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn plan(order: Order, seed: u64) -> Vec<TrialKey> {
        let tasks: Vec<TaskName> = (0..5).map(|n| TaskName { dataset: "d".into(), task: format!("t{n}") }).collect();
        let (backends, conditions) = (["a".into(), "b".into()], [Condition::Cold, Condition::Warm]);
        let models = ["m".into(), "n".into()];
        let matrix =
            Matrix { backends: &backends, conditions: &conditions, models: &models, tasks: &tasks, replicates: 3 };
        expand(&matrix, order, seed)
    }

    #[test]
    fn every_order_holds_every_trial_exactly_once() {
        let all: BTreeSet<TrialKey> = plan(Order::Sequential, 0).into_iter().collect();
        assert_eq!(all.len(), 2 * 2 * 2 * 5 * 3);
        for order in [Order::Interleaved, Order::Random, Order::Sequential] {
            let trials = plan(order, 7);
            assert_eq!(trials.len(), all.len());
            assert_eq!(trials.into_iter().collect::<BTreeSet<_>>(), all);
        }
    }

    #[test]
    fn the_seed_decides_the_order() {
        assert_eq!(plan(Order::Interleaved, 1), plan(Order::Interleaved, 1));
        assert_ne!(plan(Order::Interleaved, 1), plan(Order::Interleaved, 2));
    }

    #[test]
    fn interleaving_puts_all_cells_of_a_task_side_by_side() {
        for group in plan(Order::Interleaved, 3).chunks(8) {
            let tasks: BTreeSet<_> = group.iter().map(|t| (&t.task, t.replicate)).collect();
            assert_eq!(tasks.len(), 1);
        }
    }
}
