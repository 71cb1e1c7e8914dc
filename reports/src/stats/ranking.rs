//! Putting cells in order, where the data allow it.

use std::collections::BTreeMap;

use super::{Sample, Time, holm, mann_whitney};

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

/// The cells by their median, least first, on the tasks that all of them have. Neighbours whose p is above the level
/// that the reader asks for share a place.
///
/// # Errors
/// A common task has fewer than [`MIN_REPLICATES`] times in a cell, or there is none.
pub fn rank<K: Ord>(cells: &[BTreeMap<K, Vec<Time>>]) -> Result<Vec<Place>, TooFew> {
    let Some((first, others)) = cells.split_first() else { return Ok(Vec::new()) };
    let common: Vec<&K> = first.keys().filter(|task| others.iter().all(|cell| cell.contains_key(*task))).collect();
    let times = |cell: &BTreeMap<K, Vec<Time>>| -> Vec<Vec<Time>> {
        common.iter().filter_map(|task| cell.get(*task)).cloned().collect()
    };
    let cells: Vec<Vec<Vec<Time>>> = cells.iter().map(times).collect();
    enough(cells.iter().flatten().map(|times| times.len() as u64).min().unwrap_or(0))?;
    let censoring = cells.iter().flatten().flatten().any(|time| time.censored);
    let mut order: Vec<(usize, f64, &Vec<Vec<Time>>)> = cells
        .iter()
        .enumerate()
        .map(|(index, cell)| {
            let sample = Sample::new(cell.iter().flatten().map(|time| (*time, 0)));
            (index, sample.quantile(0.5, &[1], censoring), cell)
        })
        .collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let values = |times: &[Time]| times.iter().map(|time| time.rank_value()).collect::<Vec<f64>>();
    let steps: Vec<f64> = order
        .windows(2)
        .filter_map(|pair| {
            let [(_, _, a), (_, _, b)] = pair else { return None };
            let strata: Vec<_> = a.iter().zip(*b).map(|(a, b)| (values(a), values(b))).collect();
            mann_whitney(&strata).map(|test| test.p)
        })
        .collect();
    let p = std::iter::once(None).chain(holm(&steps).into_iter().map(Some));
    Ok(order.iter().zip(p).map(|((cell, median, _), p)| Place { cell: *cell, median: *median, p }).collect())
}
