//! Differences by task, on the tasks that both sides have.

use std::collections::BTreeMap;

use super::{Sample, Time};

/// One task on both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair<K> {
    /// The task.
    pub task: K,
    /// Median on the first side; infinite if its curve does not come down so far.
    pub a: f64,
    /// Median on the second side.
    pub b: f64,
    /// Number of times on the first side and on the second.
    pub n: (usize, usize),
}

impl<K> Pair<K> {
    /// The second side's median, relative to the first's: 0.1 is 10 % more. NaN if there is no telling.
    #[must_use]
    pub fn change(&self) -> f64 {
        if self.a > 0.0 { self.b / self.a - 1.0 } else { f64::NAN }
    }
}

/// The pairs of medians of the tasks that have times on both sides, in the order of the tasks. Medians are R-7's, or
/// Kaplan-Meier's for a task with censored times on either side.
#[must_use]
pub fn paired<K: Ord + Clone>(a: &BTreeMap<K, Vec<Time>>, b: &BTreeMap<K, Vec<Time>>) -> Vec<Pair<K>> {
    let both = a.iter().filter_map(|(task, first)| Some((task, first, b.get(task)?)));
    both.filter(|(_, first, second)| !first.is_empty() && !second.is_empty())
        .map(|(task, first, second)| {
            let censoring = first.iter().chain(second).any(|time| time.censored);
            let median =
                |times: &[Time]| Sample::new(times.iter().map(|time| (*time, 0))).quantile(0.5, &[1], censoring);
            Pair { task: task.clone(), a: median(first), b: median(second), n: (first.len(), second.len()) }
        })
        .collect()
}
