//! Curves of shares, as they are drawn: of many steps, some.

use crate::stats::{Timed, ecdf, steps};

/// Steps that are drawn of a curve.
const STEPS: usize = 200;

/// The share up to each time.
#[derive(Debug, Default)]
pub(crate) struct Curve {
    /// Number of values.
    pub(crate) n: usize,
    /// Some of its steps, among them the first and the last, in ascending order: microseconds, and the share.
    pub(crate) steps: Vec<(f64, f64)>,
}

impl Curve {
    /// The empirical distribution of `n` times in microseconds, which come least first as often as they are asked for.
    pub(super) fn of<I: Iterator<Item = f64>>((n, ascending): (usize, impl Fn() -> I)) -> Self {
        Self { n, steps: thinned(ecdf(ascending(), n).count(), ecdf(ascending(), n)) }
    }
}

/// Times to a verdict: what was given up on is censored (Kaplan-Meier).
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// How many have one by each time.
    pub(crate) curve: Curve,
    /// Attempts without one.
    pub(crate) censored: usize,
    /// Median and 95th percentile in microseconds; none if the curve does not come down so far.
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
    /// Interval of the share without a verdict at the median.
    pub(crate) interval: Option<(f64, f64)>,
}

impl Verdicts {
    /// Of times that come least first as often as they are asked for.
    pub(super) fn of<I: Iterator<Item = Timed>>(ascending: impl Fn() -> I, confidence: f64) -> Self {
        let (n, censored) =
            ascending().fold((0, 0), |(n, censored), timed| (n + 1, censored + usize::from(timed.time.censored)));
        let all = || steps(ascending().map(|timed| timed.time), n as u64, confidence);
        let (mut p50, mut p95, mut middle, mut count) = (None, None, None, 0);
        for step in all() {
            count += 1;
            p50 = p50.or(step.has_done(0.5).then_some(step.time));
            p95 = p95.or(step.has_done(0.95).then_some(step.time));
            middle = middle.or((step.survival <= 0.5).then_some(step));
        }
        let steps = thinned(count, all().map(|step| (step.time, 1.0 - step.survival)));
        Self { curve: Curve { n, steps }, censored, p50, p95, interval: middle.and_then(|step| step.interval) }
    }
}

/// Of so many steps at most [`STEPS`], and the last.
fn thinned(count: usize, steps: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let every = count.div_ceil(STEPS).max(1);
    let kept = steps.enumerate().filter(|(index, _)| index % every == 0 || index + 1 == count);
    kept.map(|(_, step)| step).collect()
}
