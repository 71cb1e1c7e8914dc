//! Percentiles, by one method that is named: R-7, linear interpolation between closest ranks (Hyndman and Fan,
//! "Sample Quantiles in Statistical Packages", 1996; the default of R and NumPy). Nothing is trimmed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `p`-quantile (0 ≤ `p` ≤ 1) of values that are sorted in ascending order; none of no values.
#[must_use]
pub fn r7(sorted: &[u64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    #[allow(clippy::cast_precision_loss)]
    let position = last as f64 * p.clamp(0.0, 1.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let below = position.floor() as usize;
    #[allow(clippy::cast_precision_loss)]
    let at = |index: usize| sorted.get(index.min(last)).map(|&value| value as f64);
    let (low, high) = (at(below)?, at(below + 1)?);
    Some(low + (position - position.floor()) * (high - low))
}

/// What is told of a set of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Durations {
    /// Number of values.
    pub n: u64,
    /// Median in microseconds.
    pub p50_us: u64,
    /// 95th percentile in microseconds. Of fewer than 20 values it says little more than the greatest one.
    pub p95_us: u64,
    /// Greatest value in microseconds.
    pub max_us: u64,
}

impl Durations {
    /// The figures of these values in microseconds; none of no values.
    #[must_use]
    pub fn of(mut values: Vec<u64>) -> Option<Self> {
        values.sort_unstable();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let rounded = |p: f64| r7(&values, p).map(|value| value.round() as u64);
        Some(Self { n: values.len() as u64, p50_us: rounded(0.5)?, p95_us: rounded(0.95)?, max_us: *values.last()? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_values_of_r_and_numpy() {
        // R: quantile(c(...), p, type = 7)
        let ten: Vec<u64> = (1..=10).collect();
        for (p, expected) in [(0.0, 1.0), (0.25, 3.25), (0.5, 5.5), (0.9, 9.1), (0.95, 9.55), (1.0, 10.0)] {
            assert!((r7(&ten, p).unwrap() - expected).abs() < 1e-9, "{p}");
        }
        assert_eq!(r7(&[15, 20, 35, 40, 50], 0.4), Some(29.0));
        assert_eq!(r7(&[3, 7], 0.95), Some(6.8));
        assert_eq!(r7(&[42], 0.95), Some(42.0));
        assert_eq!(r7(&[], 0.5), None);
    }

    #[test]
    fn durations_state_their_n_and_are_rounded_to_microseconds() {
        let durations = Durations::of((1..=10).rev().collect()).unwrap();
        assert_eq!(durations, Durations { n: 10, p50_us: 6, p95_us: 10, max_us: 10 });
        assert_eq!(Durations::of(Vec::new()), None);
    }

    proptest! {
        #[test]
        fn quantiles_lie_between_neighbours_and_grow_with_p(mut values in prop::collection::vec(0u64..1 << 40, 1..60), p in 0.0f64..=1.0) {
            values.sort_unstable();
            let value = r7(&values, p).unwrap();
            let below = values.iter().filter(|&&v| (v as f64) <= value + 0.01).count();
            prop_assert!(value >= values[0] as f64 && value <= values[values.len() - 1] as f64 + 0.01);
            prop_assert!(below as f64 >= (values.len() - 1) as f64 * p);
            prop_assert!(r7(&values, p / 2.0).unwrap() <= value + 0.01);
        }
    }
}
