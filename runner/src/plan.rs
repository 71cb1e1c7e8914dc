//! The plan: the expanded matrix backend × condition × model × variant × task × replicate, in an order that is fair and
//! repeatable.

use std::collections::BTreeMap;
use std::str::FromStr;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use sandbox_bench_core::Condition;
use sandbox_bench_core::evidence::{TrialKey, Variant};

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
    /// Variants; at least one.
    pub variants: &'a [Variant],
    /// Tasks.
    pub tasks: &'a [TaskName],
    /// Trials of each task in each cell.
    pub replicates: u32,
    /// … and before them, those that only warm up.
    pub warm_up: u32,
}

/// One combination of backend, condition, model and variant.
type Cell<'a> = (&'a String, Condition, Option<&'a String>, &'a Variant);

impl Matrix<'_> {
    /// Number of trials, those that warm up included; none if it cannot be counted.
    #[must_use]
    pub fn size(&self) -> Option<usize> {
        let of_each_task = usize::try_from(u64::from(self.replicates) + u64::from(self.warm_up)).ok()?;
        [self.conditions.len(), self.models.len().max(1), self.variants.len(), self.tasks.len(), of_each_task]
            .into_iter()
            .try_fold(self.backends.len(), usize::checked_mul)
    }

    /// The cells, in blocks of one level of concurrency: levels cannot run side by side.
    fn blocks(&self) -> Vec<Vec<Cell<'_>>> {
        let models: Vec<Option<&String>> =
            if self.models.is_empty() { vec![None] } else { self.models.iter().map(Some).collect() };
        let mut levels: Vec<Option<u32>> = Vec::new();
        for variant in self.variants {
            if !levels.contains(&variant.concurrency) {
                levels.push(variant.concurrency);
            }
        }
        let block = |level: &Option<u32>| {
            let mut cells = Vec::new();
            for backend in self.backends {
                for condition in self.conditions {
                    for model in &models {
                        let of_level = self.variants.iter().filter(|variant| variant.concurrency == *level);
                        cells.extend(of_level.map(|variant| (backend, *condition, *model, variant)));
                    }
                }
            }
            cells
        };
        levels.iter().map(block).collect()
    }
}

/// Expands the matrix. Replicate 1 of every cell of a level comes before replicate 2 of any, in every order but `Random`;
/// what warms up comes first in all of them. Levels of concurrency come one after the other, in the order given.
#[must_use]
pub fn expand(matrix: &Matrix<'_>, order: Order, seed: u64) -> Vec<TrialKey> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut trials = Vec::new();
    for cells in matrix.blocks() {
        for _ in 0..matrix.warm_up {
            trials.extend(replicate(&cells, matrix.tasks, 0, order, &mut rng));
        }
        let begin = trials.len();
        for number in 1..=matrix.replicates {
            trials.extend(replicate(&cells, matrix.tasks, number, order, &mut rng));
        }
        if order == Order::Random {
            trials[begin..].shuffle(&mut rng);
        }
    }
    trials
}

/// One trial of each task in each cell.
fn replicate(cells: &[Cell<'_>], tasks: &[TaskName], number: u32, order: Order, rng: &mut ChaCha8Rng) -> Vec<TrialKey> {
    let key = |(backend, condition, model, variant): Cell<'_>, name: &TaskName| TrialKey {
        backend: backend.clone(),
        condition,
        dataset: name.dataset.clone(),
        task: name.task.clone(),
        replicate: number,
        model: model.cloned(),
        variant: variant.clone(),
    };
    match order {
        Order::Sequential | Order::Random => {
            cells.iter().flat_map(|cell| tasks.iter().map(move |task| key(*cell, task))).collect()
        }
        Order::Interleaved => {
            let mut trials = Vec::with_capacity(cells.len() * tasks.len());
            let mut shuffled: Vec<&TaskName> = tasks.iter().collect();
            shuffled.shuffle(rng);
            for task in shuffled {
                let mut side_by_side = cells.to_vec();
                side_by_side.shuffle(rng);
                trials.extend(side_by_side.into_iter().map(|cell| key(cell, task)));
            }
            trials
        }
    }
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
        let matrix = Matrix {
            backends: &backends,
            conditions: &conditions,
            models: &models,
            variants: &[Variant::default()],
            tasks: &tasks,
            replicates: 3,
            warm_up: 0,
        };
        expand(&matrix, order, seed)
    }

    #[test]
    fn levels_of_concurrency_follow_each_other_and_each_warms_up_first() {
        let tasks: Vec<TaskName> = (0..3).map(|n| TaskName { dataset: "d".into(), task: format!("t{n}") }).collect();
        let variant = |profile: &str, level| Variant {
            profile: Some(profile.to_owned()),
            concurrency: Some(level),
            input_bytes: None,
        };
        let matrix = Matrix {
            backends: &["a".into(), "b".into()],
            conditions: &[Condition::Cold],
            models: &[],
            variants: &[variant("s", 1), variant("s", 4), variant("m", 1), variant("m", 4)],
            tasks: &tasks,
            replicates: 2,
            warm_up: 1,
        };
        for order in [Order::Interleaved, Order::Random, Order::Sequential] {
            let trials = expand(&matrix, order, 5);
            // Each level: two backends, two profiles, three tasks; one warm-up and two replicates.
            assert_eq!(trials.len(), 2 * 36);
            let (one, four) = trials.split_at(36);
            for (level, block) in [(1, one), (4, four)] {
                assert!(block.iter().all(|trial| trial.variant.concurrency == Some(level)));
                assert!(block[..12].iter().all(TrialKey::is_warm_up));
                assert!(!block[12..].iter().any(TrialKey::is_warm_up));
            }
        }
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
