//! Quantiles, by one of two methods that are named.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a quantile is read off sorted values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Method {
    /// Linear interpolation between closest ranks: type 7 of Hyndman and Fan, "Sample Quantiles in Statistical
    /// Packages", 1996; the default of R and NumPy.
    #[default]
    #[serde(rename = "R-7")]
    R7,
    /// The smallest value that at least the share `p` of all values does not exceed.
    #[serde(rename = "nearest-rank")]
    NearestRank,
}

/// The `p`-quantile (0 ≤ `p` ≤ 1) of values that are sorted in ascending order; none of no values.
#[must_use]
pub fn quantile(sorted: &[f64], p: f64, method: Method) -> Option<f64> {
    quantile_at(sorted.len(), p, method, |index| sorted.get(index).copied())
}

/// … of `n` such values, wherever they are: `at` gives the one at an index, from 0.
pub fn quantile_at(n: usize, p: f64, method: Method, at: impl Fn(usize) -> Option<f64>) -> Option<f64> {
    let last = n.checked_sub(1)?;
    let p = p.clamp(0.0, 1.0);
    match method {
        Method::R7 => {
            let position = last as f64 * p;
            let (low, high) = (at(position as usize)?, at((position as usize + 1).min(last))?);
            Some(low + position.fract() * (high - low))
        }
        Method::NearestRank => {
            // A product like 20 · 0.95 must not land just above the whole number that it stands for.
            let rank = (n as f64 * p - 1e-9).ceil();
            at(((rank.max(1.0) - 1.0) as usize).min(last))
        }
    }
}
