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

    /// A number whose order is that of the times, for times that are whole numbers.
    #[must_use]
    pub(crate) fn code(self) -> u64 {
        match self.value.is_finite() {
            // Below the code of what never ends.
            true => (self.value as u64).min((u64::MAX >> 1) - 1) << 1 | u64::from(self.censored),
            false => u64::MAX,
        }
    }

    /// The time that has this code.
    #[must_use]
    pub(crate) fn of_code(code: u64) -> Self {
        match code {
            u64::MAX => Self::never(),
            _ => Self { value: (code >> 1) as f64, censored: code & 1 == 1 },
        }
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
        let mut reading = Reading::new(p, total, censoring);
        for (time, unit) in &self.sorted {
            reading.add(*time, weight(*unit));
            if reading.done() {
                break;
            }
        }
        reading.value()
    }
}

/// A quantile that is read off times while they pass in ascending order, each counted as often as is said.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    p: f64,
    total: u64,
    passed: u64,
    by: By,
    found: Option<f64>,
}

#[derive(Debug, Clone)]
enum By {
    /// the value at the position, once it has passed.
    Rank { low: Option<f64> },
    /// Kaplan-Meier: the share that lasts, and what passed of equal times.
    Survival { share: f64, same: Option<Same> },
}

#[derive(Debug, Clone, Copy)]
struct Same {
    value: f64,
    events: u64,
    all: u64,
}

impl Reading {
    /// Of times that together count `total` times; by Kaplan-Meier if `censoring`, else by R-7.
    pub(super) fn new(p: f64, total: u64, censoring: bool) -> Self {
        let by = if censoring { By::Survival { share: 1.0, same: None } } else { By::Rank { low: None } };
        Self { p: p.clamp(0.0, 1.0), total, passed: 0, by, found: None }
    }

    pub(super) fn add(&mut self, time: Time, weight: u64) {
        if weight == 0 || self.found.is_some() {
            return;
        }
        match &mut self.by {
            By::Rank { low } => {
                self.passed += weight;
                let position = (self.total - 1) as f64 * self.p;
                if low.is_none() && self.passed > position as u64 {
                    *low = Some(time.value);
                }
                if let Some(low) = *low
                    && (self.passed > position as u64 + 1 || self.passed == self.total)
                {
                    self.found = Some(low + position.fract() * (time.value - low));
                }
            }
            By::Survival { same: Some(same), .. } if same.value == time.value => {
                same.events += if time.censored { 0 } else { weight };
                same.all += weight;
            }
            By::Survival { .. } => {
                self.close();
                if let By::Survival { same, .. } = &mut self.by {
                    let events = if time.censored { 0 } else { weight };
                    *same = Some(Same { value: time.value, events, all: weight });
                }
            }
        }
    }

    /// Takes equal times into account, all of which have passed.
    fn close(&mut self) {
        let By::Survival { share, same } = &mut self.by else { return };
        let Some(Same { value, events, all }) = same.take() else { return };
        if events > 0 {
            *share *= 1.0 - events as f64 / (self.total - self.passed) as f64;
            if *share <= 1.0 - self.p + 1e-12 {
                self.found = Some(value);
            }
        }
        self.passed += all;
    }

    /// True if what is still to come changes nothing.
    pub(super) fn done(&self) -> bool {
        self.found.is_some()
    }

    /// The quantile; infinite if the curve does not come down so far, NaN of no times.
    pub(super) fn value(mut self) -> f64 {
        if !self.done() {
            self.close();
        }
        let beyond = if self.total == 0 || matches!(self.by, By::Rank { .. }) { f64::NAN } else { f64::INFINITY };
        self.found.unwrap_or(beyond)
    }
}
