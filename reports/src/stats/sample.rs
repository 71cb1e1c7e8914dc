//! Times of which some may be censored, each belonging to a unit that is resampled as a whole.

/// A measured value, or a lower bound of one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Time {
    /// The value, in any unit.
    pub value: f64,
    /// True if what was measured had not ended by then: "at least this long".
    pub censored: bool,
}

impl Time {
    /// A value that was seen.
    #[must_use]
    pub fn seen(value: f64) -> Self {
        Self { value, censored: false }
    }

    /// A lower bound of a value that was not.
    #[must_use]
    pub fn at_least(value: f64) -> Self {
        Self { value, censored: true }
    }

    /// What failed and so never ends: unlike what was given up on, it is known to outlast everything.
    #[must_use]
    pub fn never() -> Self {
        Self::at_least(f64::INFINITY)
    }

    /// The value for rank tests: what did not end ranks behind everything that did.
    #[must_use]
    pub fn rank_value(self) -> f64 {
        if self.censored { f64::INFINITY } else { self.value }
    }
}

/// Sorted times with their units. Its quantiles take a weight per unit, so that a resample needs no sorting.
#[derive(Debug, Clone)]
pub struct Sample {
    sorted: Vec<(Time, usize)>,
    censored: bool,
}

impl Sample {
    /// Of times with the number of the unit that each belongs to.
    #[must_use]
    pub fn new(times: impl IntoIterator<Item = (Time, usize)>) -> Self {
        let mut sorted: Vec<(Time, usize)> = times.into_iter().collect();
        sorted.sort_by(|(a, _), (b, _)| a.value.total_cmp(&b.value));
        let censored = sorted.iter().any(|(time, _)| time.censored);
        Self { sorted, censored }
    }

    /// True if any of the times is censored, so that quantiles must be Kaplan-Meier's.
    #[must_use]
    pub fn has_censored(&self) -> bool {
        self.censored
    }

    /// Number of times.
    #[must_use]
    pub fn n(&self) -> usize {
        self.sorted.len()
    }

    /// The `p`-quantile with every unit counted as often as `weights` says; a unit without a weight counts as 0.
    /// By R-7, or by Kaplan-Meier if `censoring`: then it is infinite where the curve does not come down so far. NaN of
    /// no times.
    #[must_use]
    pub fn quantile(&self, p: f64, weights: &[u32], censoring: bool) -> f64 {
        let weight = |unit: usize| u64::from(weights.get(unit).copied().unwrap_or(0));
        let total: u64 = self.sorted.iter().map(|(_, unit)| weight(*unit)).sum();
        if total == 0 {
            return f64::NAN;
        }
        if censoring { self.kaplan_meier(p, total, weight) } else { self.r7(p, total, weight) }
    }

    fn r7(&self, p: f64, total: u64, weight: impl Fn(usize) -> u64) -> f64 {
        let position = (total - 1) as f64 * p.clamp(0.0, 1.0);
        let (mut passed, mut low) = (0, None);
        for (time, unit) in &self.sorted {
            passed += weight(*unit);
            if low.is_none() && passed > position as u64 {
                low = Some(time.value);
            }
            if let Some(low) = low
                && (passed > position as u64 + 1 || passed == total)
            {
                return low + position.fract() * (time.value - low);
            }
        }
        f64::NAN
    }

    fn kaplan_meier(&self, p: f64, total: u64, weight: impl Fn(usize) -> u64) -> f64 {
        let (mut at_risk, mut survival) = (total, 1.0);
        for same in self.sorted.chunk_by(|(a, _), (b, _)| a.value == b.value) {
            let events: u64 = same.iter().filter(|(time, _)| !time.censored).map(|(_, unit)| weight(*unit)).sum();
            let left: u64 = same.iter().map(|(_, unit)| weight(*unit)).sum();
            if at_risk > 0 {
                survival *= 1.0 - events as f64 / at_risk as f64;
            }
            at_risk -= left;
            if let Some((time, _)) = same.first()
                && events > 0
                && survival <= 1.0 - p + 1e-12
            {
                return time.value;
            }
        }
        f64::INFINITY
    }
}
