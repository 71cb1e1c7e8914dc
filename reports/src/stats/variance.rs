//! Where the spread comes from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Variance between groups and within them, by the one-way random-effects analysis of variance; groups may differ in
/// size. In squares of the values' unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Components {
    /// Variance of the groups' true means. Estimates below 0 are 0.
    pub between: f64,
    /// Variance around a group's mean.
    pub within: f64,
    /// Number of groups.
    pub groups: u64,
    /// Number of values.
    pub n: u64,
}

impl Components {
    /// Of values in groups: trials by task, commands by sandbox. None below two groups, or if no group has two values.
    #[must_use]
    pub fn of(groups: &[Vec<f64>]) -> Option<Self> {
        let values = || groups.iter().flatten();
        Self::of_groups(groups, values().count() as u64, values().sum())
    }

    /// … of groups that come one after the other, with `n` values in all, which have this sum.
    pub fn of_groups<G: AsRef<[f64]>>(groups: impl IntoIterator<Item = G>, n: u64, sum: f64) -> Option<Self> {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (mut count, mut among, mut inside, mut squares) = (0, 0.0, 0.0, 0.0);
        let grand = sum / n as f64;
        for group in groups {
            let group = group.as_ref();
            if group.is_empty() {
                continue;
            }
            let (size, middle) = (group.len() as f64, mean(group));
            among += size * (middle - grand).powi(2);
            inside += group.iter().map(|value| (value - middle).powi(2)).sum::<f64>();
            squares += size * size;
            count += 1;
        }
        if count < 2 || n <= count {
            return None;
        }
        let (k, all) = (count as f64, n as f64);
        let within = inside / (all - k);
        let typical_size = (all - squares / all) / (k - 1.0);
        let between = ((among / (k - 1.0) - within) / typical_size).max(0.0);
        Some(Self { between, within, groups: count, n })
    }

    /// The share of the variance that lies between groups; none if nothing varies.
    #[must_use]
    pub fn between_share(&self) -> Option<f64> {
        let all = self.between + self.within;
        (all > 0.0).then(|| self.between / all)
    }
}
