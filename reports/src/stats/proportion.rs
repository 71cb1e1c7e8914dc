//! Shares, such as pass rates.

use statrs::distribution::{ContinuousCDF, Normal};

use super::Interval;

/// Wilson's interval of the share `hits` of `n`; none of nothing. Unlike the textbook interval it says something of 0
/// and of all, and stays within 0 and 1 ("Probable Inference, the Law of Succession, and Statistical Inference", 1927).
#[must_use]
pub fn wilson(hits: u64, n: u64, confidence: f64) -> Option<Interval> {
    let (low, high) = wilson_ends(hits, n, confidence)?;
    Some(Interval::new(low, high, confidence))
}

/// Newcombe's interval of the difference `hits.1 / n.1 - hits.0 / n.0`, made from two of Wilson's (method 10 of
/// "Interval Estimation for the Difference Between Independent Proportions", 1998); none if either is of nothing.
#[must_use]
pub fn difference(hits: (u64, u64), n: (u64, u64), confidence: f64) -> Option<Interval> {
    let (low_a, high_a) = wilson_ends(hits.0, n.0, confidence)?;
    let (low_b, high_b) = wilson_ends(hits.1, n.1, confidence)?;
    let (a, b) = (hits.0 as f64 / n.0 as f64, hits.1 as f64 / n.1 as f64);
    let low = b - a - (b - low_b).hypot(high_a - a);
    let high = b - a + (high_b - b).hypot(a - low_a);
    Some(Interval::new(low, high, confidence))
}

fn wilson_ends(hits: u64, n: u64, confidence: f64) -> Option<(f64, f64)> {
    if n == 0 || hits > n {
        return None;
    }
    let z = Normal::standard().inverse_cdf(0.5 + confidence.clamp(0.0, 1.0) / 2.0);
    let (n, p) = (n as f64, hits as f64 / n as f64);
    let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt() / (1.0 + z * z / n);
    // At 0 and at all, rounding must not leave the share just outside.
    Some(((middle - half).clamp(0.0, p), (middle + half).clamp(p, 1.0)))
}
