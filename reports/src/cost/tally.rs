//! Costs of many attempts together.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bound, Cost};

/// What the sandboxes of a cell cost. Failed and repeated attempts count: they were paid for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellCost {
    /// Attempts of which the backend said the cost.
    pub measured: u64,
    /// Attempts whose cost was estimated.
    pub estimated: u64,
    /// Attempts whose cost is unknown.
    pub unknown: u64,
    /// Sum of the known costs in US dollars; none if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_usd: Option<f64>,
    /// US dollars for each accepted trial, all attempts included; none if there is no accepted trial, or if the cost of
    /// any attempt is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_success_usd: Option<f64>,
    /// Set if all that is not exact is on the same side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Why costs are unknown, or estimates are bounds, with the number of attempts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub why: BTreeMap<String, u64>,
}

/// Adds up costs.
#[derive(Debug, Default)]
pub struct CostTally {
    sum: CellCost,
    usd: f64,
    lower: u64,
    upper: u64,
}

impl CostTally {
    /// Adds the cost of an attempt.
    pub fn add(&mut self, cost: &Cost) {
        let (reasons, bound): (&[String], _) = match cost {
            Cost::Measured { .. } => {
                self.sum.measured += 1;
                (&[], None)
            }
            Cost::Estimated { bound, why, .. } => {
                self.sum.estimated += 1;
                (why, *bound)
            }
            Cost::Unknown { why } => {
                self.sum.unknown += 1;
                (std::slice::from_ref(why), None)
            }
        };
        match (bound, cost) {
            (Some(Bound::Lower), _) => self.lower += 1,
            (Some(Bound::Upper), _) => self.upper += 1,
            // An estimate that errs both ways, or one that is exact as far as the card is.
            (None, Cost::Estimated { why, .. }) if !why.is_empty() => {
                (self.lower, self.upper) = (self.lower + 1, self.upper + 1)
            }
            (None, _) => {}
        }
        for why in reasons {
            *self.sum.why.entry(why.clone()).or_default() += 1;
        }
        self.usd += cost.usd().unwrap_or(0.0);
    }

    /// The sum, given how many trials were accepted.
    #[must_use]
    pub fn finish(self, accepted: u64) -> CellCost {
        let Self { sum, usd, lower, upper, .. } = self;
        let known = sum.measured + sum.estimated > 0;
        let complete = known && sum.unknown == 0;
        let bound = match (lower, upper) {
            (1.., 0) => Some(Bound::Lower),
            (0, 1..) => Some(Bound::Upper),
            _ => None,
        };
        CellCost {
            known_usd: known.then_some(usd),
            per_success_usd: (complete && accepted > 0).then(|| usd / accepted as f64),
            bound,
            ..sum
        }
    }
}
