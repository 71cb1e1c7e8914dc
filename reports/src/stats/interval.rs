//! What every interval estimate says of itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An interval estimate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower end; none if it lies beyond everything that was observed.
    pub low: Option<f64>,
    /// Upper end; none if it lies beyond everything that was observed.
    pub high: Option<f64>,
    /// Stated coverage, such as 0.95.
    pub confidence: f64,
}

impl Interval {
    /// The interval between two ends, of which infinite ones are beyond everything that was observed.
    #[must_use]
    pub fn new(low: f64, high: f64, confidence: f64) -> Self {
        let end = |value: f64| value.is_finite().then_some(value);
        Self { low: end(low), high: end(high), confidence }
    }

    /// True if `value` does not lie outside.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.low.is_none_or(|low| low <= value) && self.high.is_none_or(|high| value <= high)
    }
}
