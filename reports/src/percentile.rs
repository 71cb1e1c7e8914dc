//! What is told of a set of durations. Percentiles are those of R-7 ([`Method::R7`]). Nothing is trimmed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::{Method, quantile_at};

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
    /// The figures of `n` values in microseconds in ascending order, of which `at` gives the one at an index, from 0; none of
    /// no values.
    pub fn of_sorted(n: usize, at: impl Fn(usize) -> Option<u64>) -> Option<Self> {
        let max_us = at(n.checked_sub(1)?)?;
        let rounded = |p: f64| {
            quantile_at(n, p, Method::R7, |index| at(index).map(|us| us as f64)).map(|value| value.round() as u64)
        };
        Some(Self { n: n as u64, p50_us: rounded(0.5)?, p95_us: rounded(0.95)?, max_us })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn durations_state_their_n_and_are_rounded_to_microseconds() {
        let durations = Durations::of_sorted(10, |index| Some(index as u64 + 1)).unwrap();
        assert_eq!(durations, Durations { n: 10, p50_us: 6, p95_us: 10, max_us: 10 });
        assert_eq!(Durations::of_sorted(0, |_| None), None);
    }
}
