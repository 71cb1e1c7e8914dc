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
        let groups: Vec<&Vec<f64>> = groups.iter().filter(|group| !group.is_empty()).collect();
        let (k, n) = (groups.len() as f64, groups.iter().map(|group| group.len()).sum::<usize>() as f64);
        if k < 2.0 || n <= k {
            return None;
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let grand = groups.iter().flat_map(|group| group.iter()).sum::<f64>() / n;
        let (mut among, mut inside, mut squares) = (0.0, 0.0, 0.0);
        for group in &groups {
            let (size, middle) = (group.len() as f64, mean(group));
            among += size * (middle - grand).powi(2);
            inside += group.iter().map(|value| (value - middle).powi(2)).sum::<f64>();
            squares += size * size;
        }
        let within = inside / (n - k);
        let typical_size = (n - squares / n) / (k - 1.0);
        let between = ((among / (k - 1.0) - within) / typical_size).max(0.0);
        Some(Self { between, within, groups: groups.len() as u64, n: n as u64 })
    }

    /// The share of the variance that lies between groups; none if nothing varies.
    #[must_use]
    pub fn between_share(&self) -> Option<f64> {
        let all = self.between + self.within;
        (all > 0.0).then(|| self.between / all)
    }
}
