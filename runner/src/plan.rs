//! The plan: the expanded matrix backend × condition × task × replicate, in an order that is fair and repeatable.

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

/// Expands the matrix. Replicate 1 of every cell comes before replicate 2 of any, in every order but `Random`.
#[must_use]
pub fn expand(
    backends: &[String],
    conditions: &[Condition],
    tasks: &[TaskName],
    replicates: u32,
    order: Order,
    seed: u64,
) -> Vec<TrialKey> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let cells: Vec<(&String, Condition)> =
        backends.iter().flat_map(|backend| conditions.iter().map(move |condition| (backend, *condition))).collect();
    let key = |(backend, condition): (&String, Condition), name: &TaskName, replicate| TrialKey {
        backend: backend.clone(),
        condition,
        dataset: name.dataset.clone(),
        task: name.task.clone(),
        replicate,
    };
    let mut trials = Vec::with_capacity(cells.len() * tasks.len() * replicates as usize);
    for replicate in 1..=replicates {
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

/// Counts trials by backend and condition, for display.
#[must_use]
pub fn cells(trials: &[TrialKey]) -> BTreeMap<(String, Condition), usize> {
    let mut cells = BTreeMap::new();
    for trial in trials {
        *cells.entry((trial.backend.clone(), trial.condition)).or_default() += 1;
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn plan(order: Order, seed: u64) -> Vec<TrialKey> {
        let tasks: Vec<TaskName> = (0..5).map(|n| TaskName { dataset: "d".into(), task: format!("t{n}") }).collect();
        expand(&["a".into(), "b".into()], &[Condition::Cold, Condition::Warm], &tasks, 3, order, seed)
    }

    #[test]
    fn every_order_holds_every_trial_exactly_once() {
        let all: BTreeSet<TrialKey> = plan(Order::Sequential, 0).into_iter().collect();
        assert_eq!(all.len(), 2 * 2 * 5 * 3);
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
        for group in plan(Order::Interleaved, 3).chunks(4) {
            let tasks: BTreeSet<_> = group.iter().map(|t| (&t.task, t.replicate)).collect();
            assert_eq!(tasks.len(), 1);
        }
    }
}
