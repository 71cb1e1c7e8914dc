//! What is drawn when trials are resampled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MIN_REPLICATES;

/// What is drawn in a resample: what an interval therefore speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Whole tasks, each with all its trials: the interval speaks of tasks like these.
    Tasks,
    /// Trials within each task, where there are too few tasks: the interval speaks of these tasks alone.
    Trials,
}

/// The units of a set of trials, numbered through. Both sides of a comparison have the same tasks.
#[derive(Debug, Clone)]
pub struct Units {
    /// What is drawn.
    pub unit: Unit,
    /// Number of units in each stratum.
    pub strata: Vec<usize>,
    tasks: usize,
    starts: Vec<usize>,
}

impl Units {
    /// Of trials, given how many each task has on each side. None if they are too few to resample: fewer than
    /// [`MIN_REPLICATES`] tasks, of which one has fewer than that many trials on a side.
    #[must_use]
    pub fn of(sides: &[Vec<usize>]) -> Option<Self> {
        let tasks = sides.first()?.len();
        let sizes: Vec<usize> = sides.iter().flatten().copied().collect();
        if tasks as u64 >= MIN_REPLICATES {
            return Some(Self { unit: Unit::Tasks, strata: vec![tasks], tasks, starts: Vec::new() });
        }
        let least = sizes.iter().copied().min()?;
        let starts = sizes.iter().scan(0, |next, size| Some(std::mem::replace(next, *next + size))).collect();
        (least as u64 >= MIN_REPLICATES).then_some(Self { unit: Unit::Trials, strata: sizes, tasks, starts })
    }

    /// The number of the unit that this trial of this task belongs to; all count from 0.
    #[must_use]
    pub fn number(&self, side: usize, task: usize, trial: usize) -> usize {
        match self.unit {
            Unit::Tasks => task,
            Unit::Trials => self.starts.get(side * self.tasks + task).map_or(0, |start| start + trial),
        }
    }
}
