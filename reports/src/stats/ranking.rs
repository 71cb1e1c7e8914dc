//! Putting cells in order, where the data allow it.

use std::collections::BTreeMap;

use super::sample::Reading;
use super::{RankSums, Time, holm};

/// Fewest trials of each task, on each side, for which any order is claimed.
pub const MIN_REPLICATES: u64 = 6;

/// There are too few trials to claim an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a task has {replicates} of the {MIN_REPLICATES} trials that this needs")]
pub struct TooFew {
    /// The fewest trials that a task has on a side; 0 also if there is no common task.
    pub replicates: u64,
}

/// One cell's place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// Which of the given cells.
    pub cell: usize,
    /// Its median over all trials of the common tasks; infinite if its curve does not come down so far.
    pub median: f64,
    /// Holm-adjusted p of the rank test, within tasks, against the place before; none for the first.
    pub p: Option<f64>,
}

/// Checks that `replicates` suffice for a claim.
///
/// # Errors
/// They are fewer than [`MIN_REPLICATES`].
pub fn enough(replicates: u64) -> Result<(), TooFew> {
    if replicates < MIN_REPLICATES { Err(TooFew { replicates }) } else { Ok(()) }
}

/// The times of one cell by task, in whatever way they are kept.
pub trait ByTask {
    /// What tells tasks apart.
    type Task: Ord;

    /// The tasks in ascending order, each with its times.
    fn by_task(&self) -> impl Iterator<Item = (Self::Task, Vec<Time>)>;

    /// All times, least first, each with its task.
    fn ascending(&self) -> impl Iterator<Item = (Self::Task, Time)>;
}

impl<K: Ord + Clone> ByTask for BTreeMap<K, Vec<Time>> {
    type Task = K;

    fn by_task(&self) -> impl Iterator<Item = (K, Vec<Time>)> {
        self.iter().map(|(task, times)| (task.clone(), times.clone()))
    }

    fn ascending(&self) -> impl Iterator<Item = (K, Time)> {
        let mut all: Vec<(K, Time)> =
            self.iter().flat_map(|(task, times)| times.iter().map(|time| (task.clone(), *time))).collect();
        all.sort_by(|(_, a), (_, b)| a.value.total_cmp(&b.value));
        all.into_iter()
    }
}

/// The cells by their median, least first, on the tasks that all of them have. Neighbours whose p is above the level
/// that the reader asks for share a place. Held at one time are the tasks, and the times of one of them in two cells.
///
/// # Errors
/// A common task has fewer than [`MIN_REPLICATES`] times in a cell, or there is none.
pub fn rank<C: ByTask>(cells: &[C]) -> Result<Vec<Place>, TooFew> {
    if cells.is_empty() {
        return Ok(Vec::new());
    }
    // In how many cells a task is, and what holds for it in all of them.
    let mut tasks: BTreeMap<C::Task, Common> = BTreeMap::new();
    for cell in cells {
        for (task, times) in cell.by_task() {
            let known = tasks.entry(task).or_default();
            known.cells += 1;
            known.fewest = known.fewest.min(times.len() as u64);
            known.censored |= times.iter().any(|time| time.censored);
        }
    }
    tasks.retain(|_, known| known.cells == cells.len());
    enough(tasks.values().map(|known| known.fewest).min().unwrap_or(0))?;
    let censoring = tasks.values().any(|known| known.censored);
    let is_common = |task: &C::Task| tasks.contains_key(task);
    let median = |cell: &C| {
        let common = || cell.ascending().filter(|(task, _)| is_common(task)).map(|(_, time)| time);
        let mut reading = Reading::new(0.5, common().count() as u64, censoring);
        common()
            .take_while(|time| {
                reading.add(*time, 1);
                !reading.done()
            })
            .for_each(drop);
        reading.value()
    };
    let mut order: Vec<(usize, f64)> = cells.iter().map(median).enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let values = |times: Vec<Time>| times.into_iter().map(Time::rank_value).collect::<Vec<f64>>();
    let steps: Vec<f64> = order
        .windows(2)
        .filter_map(|pair| {
            let [(a, _), (b, _)] = pair else { return None };
            let common = |cell: &usize| {
                let cell = cells.get(*cell).into_iter();
                cell.flat_map(ByTask::by_task).filter(|(task, _)| is_common(task)).map(|(_, times)| values(times))
            };
            let mut sums = RankSums::default();
            common(a).zip(common(b)).for_each(|(a, b)| sums.add(&a, &b));
            sums.test().map(|test| test.p)
        })
        .collect();
    let p = std::iter::once(None).chain(holm(&steps).into_iter().map(Some));
    Ok(order.into_iter().zip(p).map(|((cell, median), p)| Place { cell, median, p }).collect())
}

/// What holds for a task in all cells.
struct Common {
    cells: usize,
    fewest: u64,
    censored: bool,
}

impl Default for Common {
    fn default() -> Self {
        Self { cells: 0, fewest: u64::MAX, censored: false }
    }
}
