//! The Kaplan-Meier estimate: how many are not done after a time, when some were given up on.

use statrs::distribution::{ContinuousCDF, Normal};

use super::Time;

/// The curve at one time at which something ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The time.
    pub time: f64,
    /// How many were still observed just before it.
    pub at_risk: u64,
    /// How many ended at it.
    pub events: u64,
    /// Estimated share that takes longer.
    pub survival: f64,
    /// Its pointwise interval (Greenwood's variance on the log-log scale); none where the share is 0 or 1.
    pub interval: Option<(f64, f64)>,
}

impl Step {
    /// True if the share `p` is done by then.
    #[must_use]
    pub fn has_done(&self, p: f64) -> bool {
        self.survival <= 1.0 - p + 1e-12
    }
}

/// Kaplan-Meier's estimate of the share that takes longer than a time.
#[derive(Debug, Clone, PartialEq)]
pub struct KaplanMeier {
    /// The steps, by time.
    pub steps: Vec<Step>,
    /// Number of times.
    pub n: usize,
    /// How many of them are censored.
    pub censored: usize,
}

impl KaplanMeier {
    /// Of these times, with pointwise intervals of this coverage (0 to 1). What was given up on at a time was still
    /// there when others ended at it.
    #[must_use]
    pub fn of(times: &[Time], confidence: f64) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_by(|a, b| a.value.total_cmp(&b.value));
        let (n, censored) = (sorted.len(), sorted.iter().filter(|time| time.censored).count());
        Self { steps: steps(sorted.into_iter(), n as u64, confidence).collect(), n, censored }
    }

    /// The smallest time by which the share `p` is done; none if the curve does not come down so far.
    #[must_use]
    pub fn quantile(&self, p: f64) -> Option<f64> {
        self.steps.iter().find(|step| step.has_done(p)).map(|step| step.time)
    }
}

/// The steps of the curve of `n` times that come in ascending order, one after the other.
pub fn steps(ascending: impl Iterator<Item = Time>, n: u64, confidence: f64) -> impl Iterator<Item = Step> {
    let z = Normal::standard().inverse_cdf(0.5 + confidence.clamp(0.0, 1.0) / 2.0);
    let (mut times, mut at_risk, mut survival, mut greenwood) = (ascending.peekable(), n, 1.0f64, 0.0);
    std::iter::from_fn(move || {
        loop {
            let first = times.next()?;
            let (mut events, mut all) = (u64::from(!first.censored), 1);
            while let Some(time) = times.next_if(|time| time.value == first.value) {
                events += u64::from(!time.censored);
                all += 1;
            }
            let before = at_risk;
            at_risk = at_risk.saturating_sub(all);
            if events == 0 {
                continue;
            }
            let (d, n) = (events as f64, before as f64);
            survival = if events == before { 0.0 } else { survival * (1.0 - d / n) };
            greenwood += d / (n * (n - d));
            let inside = survival > 0.0 && survival < 1.0;
            let interval = inside.then(|| {
                let spread = z * greenwood.sqrt() / survival.ln();
                let bound = |sign: f64| survival.powf((sign * spread).exp());
                (bound(-1.0), bound(1.0))
            });
            return Some(Step { time: first.value, at_risk: before, events, survival, interval });
        }
    })
}
