//! What every interval estimate says of itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An interval estimate. An end that is none lies above everything that was observed: what failed or was given up on may
/// take any time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower end.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Stated coverage, such as 0.95.
    pub confidence: f64,
}

impl Interval {
    /// The interval between two ends, each a number or positive infinity.
    #[must_use]
    pub fn new(low: f64, high: f64, confidence: f64) -> Self {
        let end = |value: f64| value.is_finite().then_some(value);
        Self { low: end(low), high: end(high), confidence }
    }

    /// True if `value` does not lie outside.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.low.is_some_and(|low| low <= value) && self.high.is_none_or(|high| value <= high)
    }
}
