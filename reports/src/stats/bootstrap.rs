//! The bootstrap: how much a figure would differ if other units had been drawn.
//!
//! Units are drawn whole, with replacement, within their stratum. A unit is what is independent of the others: a task
//! with all its trials (the cluster bootstrap), or a trial among those of its task. The ends are percentiles of the
//! resampled figures, set outward as Student's t asks of so few units ("expanded percentile interval": Hesterberg, "What
//! Teachers Should Know About the Bootstrap", 2015); without that, intervals of 6 or 10 units cover too little. The
//! random numbers are ChaCha8's from a stated seed, so equal data give equal intervals on every machine.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::Interval;

/// How to resample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bootstrap {
    /// Number of resamples.
    pub resamples: u32,
    /// Stated coverage of the intervals, such as 0.95.
    pub confidence: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Bootstrap {
    /// 2000 resamples, coverage 0.95, seed 1.
    fn default() -> Self {
        Self { resamples: 2000, confidence: 0.95, seed: 1 }
    }
}

/// What one interval may cost: so many values looked at.
const AFFORDABLE: usize = 100_000_000;

/// Weights of resamples that are held at one time.
const DRAWN: usize = 1_000_000;

/// How often each unit is drawn in one resample.
fn draw(rng: &mut ChaCha8Rng, strata: &[usize], units: usize) -> Vec<u32> {
    let mut weights = vec![0; units];
    let mut rest = weights.as_mut_slice();
    for &size in strata {
        let (stratum, after) = rest.split_at_mut(size);
        for _ in 0..size {
            if let Some(weight) = stratum.get_mut(rng.random_range(0..size)) {
                *weight += 1;
            }
        }
        rest = after;
    }
    weights
}

impl Bootstrap {
    /// The default, with fewer resamples (at least 200) where each has to look at very many values.
    #[must_use]
    pub fn of(values: usize) -> Self {
        let affordable = u32::try_from(AFFORDABLE / values.max(1)).unwrap_or(u32::MAX);
        Self { resamples: affordable.clamp(200, Self::default().resamples), ..Self::default() }
    }

    /// The interval of a figure, and the figure itself.
    ///
    /// `strata` holds the number of units of each stratum; the units are numbered through, stratum by stratum.
    /// `figure` is given how often each unit is drawn. It may answer infinity ("beyond what was observed") and NaN ("no
    /// figure"), which is left out. None if there is no figure, or fewer than two units in a stratum.
    pub fn interval(&self, strata: &[usize], mut figure: impl FnMut(&[u32]) -> f64) -> Option<(f64, Interval)> {
        self.interval_at_once(strata, |drawn| drawn.iter().map(|weights| figure(weights)).collect())
    }

    /// [`Bootstrap::interval`] for values that are costly to go through: `figures` is given how often each unit is drawn in
    /// several resamples, as many as some megabytes hold, and answers a figure for each of them.
    pub fn interval_at_once(
        &self,
        strata: &[usize],
        mut figures: impl FnMut(&[Vec<u32>]) -> Vec<f64>,
    ) -> Option<(f64, Interval)> {
        let smallest = *strata.iter().min()?;
        if smallest < 2 {
            return None;
        }
        let units: usize = strata.iter().sum();
        let estimate = figures(&[vec![1; units]]).first().copied().filter(|estimate| !estimate.is_nan())?;
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut found: Vec<f64> = Vec::with_capacity(self.resamples as usize);
        let at_once = (DRAWN / units.max(1)).clamp(1, self.resamples.max(1) as usize);
        while found.len() < self.resamples as usize {
            let drawn: Vec<Vec<u32>> = (0..at_once.min(self.resamples as usize - found.len()))
                .map(|_| draw(&mut rng, strata, units))
                .collect();
            found.extend(figures(&drawn));
        }
        let mut figures = found;
        figures.retain(|figure| !figure.is_nan());
        figures.sort_by(f64::total_cmp);
        let freedom = strata.iter().map(|size| size - 1).sum();
        let tail = (self.tail(smallest, freedom) * figures.len() as f64) as usize;
        let (low, high) = (figures.get(tail)?, figures.get(figures.len().checked_sub(tail + 1)?)?);
        // Of few units the middle of the resamples may miss the figure; an interval without its estimate helps nobody.
        Some((estimate, Interval::new(low.min(estimate), high.max(estimate), self.confidence)))
    }

    /// The share of resamples to leave out at each end.
    fn tail(&self, units: usize, freedom: usize) -> f64 {
        let outside = (1.0 - self.confidence.clamp(0.0, 1.0)) / 2.0;
        let Ok(student) = StudentsT::new(0.0, 1.0, freedom as f64) else { return outside };
        let widened = student.inverse_cdf(outside) * (units as f64 / (units - 1) as f64).sqrt();
        Normal::standard().cdf(widened)
    }
}
