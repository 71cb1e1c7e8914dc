//! The rank test of Mann and Whitney, also over several tasks at once, and Holm's correction for many tests.

use statrs::distribution::{ContinuousCDF, Normal};

/// Most steps that the exact distribution may cost.
const AFFORDABLE: usize = 20_000_000;

/// The outcome of a rank test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankTest {
    /// Two-sided p: how often chance alone would give a difference at least as great.
    pub p: f64,
    /// The smallest p that samples of these sizes, with these ties, can give. A test whose floor is above the level
    /// that is asked for cannot find anything.
    pub floor: f64,
    /// True if both come from the exact distribution, false if from the normal one.
    pub exact: bool,
    /// How often a value of the second sample is the greater one (ties count half): 0.5 is no difference.
    pub second_greater: f64,
}

/// Tests whether the second sample of each stratum tends to be greater or smaller than the first.
///
/// With one stratum it is the Mann-Whitney test. With several, such as tasks, ranks are taken within each and their sums
/// added, so that tasks of different length do not blur the difference. Ties get the mean of their ranks and are part of
/// the exact distribution. Infinite values are allowed; NaN is not. None if no stratum has values on both sides.
#[must_use]
pub fn mann_whitney(strata: &[(Vec<f64>, Vec<f64>)]) -> Option<RankTest> {
    let mut sums = RankSums::default();
    strata.iter().for_each(|(a, b)| sums.add(a, b));
    sums.test()
}

/// [`mann_whitney`] of strata that come one after the other. Held of each are sums, and its ranks only as long as the exact
/// distribution can be afforded.
#[derive(Debug, Default)]
pub struct RankSums {
    pairs: f64,
    /// Twice the sum of ranks of the first samples, less its expectation: a whole number.
    observed: i64,
    variance: f64,
    exact: Exact,
}

impl RankSums {
    /// Takes in the two samples of a stratum; one without values on both sides tells nothing.
    pub fn add(&mut self, a: &[f64], b: &[f64]) {
        let Some(stratum) = Stratum::of(a, b) else { return };
        self.pairs += (stratum.first * stratum.second()) as f64;
        self.observed += stratum.observed - stratum.expected();
        self.variance += stratum.variance();
        self.exact.add(stratum);
    }

    /// The test over all of them; none if no stratum had values on both sides.
    #[must_use]
    pub fn test(self) -> Option<RankTest> {
        let Self { pairs, observed, variance, exact } = self;
        if pairs == 0.0 {
            return None;
        }
        let second_greater = 0.5 - observed as f64 / 2.0 / pairs;
        let (p, floor, exact) = match exact.distribution() {
            Some(null) => {
                let at_least = |least: i64| null.iter().filter(|(d, _)| d.abs() >= least).map(|(_, p)| p).sum::<f64>();
                let possible = null.iter().filter(|(_, p)| *p > 0.0).map(|(d, _)| d.abs()).max().unwrap_or(0);
                (at_least(observed.abs()), at_least(possible), true)
            }
            None => {
                let deviation = variance.sqrt();
                let p = |distance: f64| {
                    let z = (distance - 0.5).max(0.0) / deviation;
                    if deviation > 0.0 { 2.0 * Normal::standard().sf(z) } else { 1.0 }
                };
                (p(observed.abs() as f64 / 2.0), p(pairs / 2.0), false)
            }
        };
        Some(RankTest { p: p.min(1.0), floor: floor.min(1.0), exact, second_greater })
    }
}

/// Adjusts p-values for their number (Holm, "A Simple Sequentially Rejective Multiple Test Procedure", 1979): those that
/// are at most α afterwards are together wrong with a probability of at most α. In the order given.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = p.iter().copied().enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (mut adjusted, mut greatest) = (vec![0.0; p.len()], 0.0f64);
    for (rank, (index, p)) in order.into_iter().enumerate() {
        greatest = greatest.max((adjusted.len() - rank) as f64 * p).min(1.0);
        if let Some(slot) = adjusted.get_mut(index) {
            *slot = greatest;
        }
    }
    adjusted
}

/// One stratum: twice the ranks of all its values, in ascending order, and which of them the first sample has.
#[derive(Debug)]
struct Stratum {
    ranks: Vec<usize>,
    first: usize,
    observed: i64,
}

impl Stratum {
    fn of(a: &[f64], b: &[f64]) -> Option<Self> {
        if a.is_empty() || b.is_empty() {
            return None;
        }
        let mut all: Vec<(f64, bool)> = a.iter().map(|v| (*v, true)).chain(b.iter().map(|v| (*v, false))).collect();
        all.sort_by(|x, y| x.0.total_cmp(&y.0));
        let (mut ranks, mut observed) = (Vec::with_capacity(all.len()), 0);
        for same in all.chunk_by(|x, y| x.0 == y.0) {
            // The mean of the ranks from + 1 to from + n, doubled.
            let rank = 2 * ranks.len() + same.len() + 1;
            observed += rank * same.iter().filter(|(_, first)| *first).count();
            ranks.extend(std::iter::repeat_n(rank, same.len()));
        }
        Some(Self { ranks, first: a.len(), observed: observed as i64 })
    }

    fn second(&self) -> usize {
        self.ranks.len() - self.first
    }

    fn expected(&self) -> i64 {
        (self.first * (self.ranks.len() + 1)) as i64
    }

    /// Variance of the sum of ranks, ties taken into account.
    fn variance(&self) -> f64 {
        let (a, b, n) = (self.first as f64, self.second() as f64, self.ranks.len() as f64);
        let tied: f64 =
            self.ranks.chunk_by(PartialEq::eq).map(|same| (same.len() as f64).powi(3) - same.len() as f64).sum();
        a * b / 12.0 * (n + 1.0 - tied / (n * (n - 1.0)))
    }

    /// The greatest sum of doubled ranks of as many values as the first sample has.
    fn greatest(&self) -> usize {
        self.ranks.iter().rev().take(self.first).sum()
    }

    /// The probability of each sum of doubled ranks, if every choice of the first sample is equally likely: counted one
    /// value after the other (the shift algorithm of Streitberg and Röhmel).
    fn null(&self) -> Vec<f64> {
        let sums = self.greatest() + 1;
        let mut ways = vec![vec![0.0; sums]; self.first + 1];
        if let Some(start) = ways.first_mut().and_then(|none| none.first_mut()) {
            *start = 1.0;
        }
        for (seen, &rank) in self.ranks.iter().enumerate() {
            for chosen in (1..=self.first.min(seen + 1)).rev() {
                let (fewer, these) = ways.split_at_mut(chosen);
                if let (Some(fewer), Some(these)) = (fewer.last(), these.first_mut()) {
                    for (to, from) in these.iter_mut().skip(rank).zip(fewer) {
                        *to += from;
                    }
                }
            }
        }
        let mut ways = ways.pop().unwrap_or_default();
        let all: f64 = ways.iter().sum();
        ways.iter_mut().for_each(|ways| *ways /= all);
        ways
    }
}

/// The strata of an exact distribution, until that costs too much.
#[derive(Debug)]
struct Exact {
    strata: Option<Vec<Stratum>>,
    cost: usize,
    length: usize,
}

impl Default for Exact {
    fn default() -> Self {
        Self { strata: Some(Vec::new()), cost: 0, length: 1 }
    }
}

impl Exact {
    fn add(&mut self, stratum: Stratum) {
        let Some(strata) = &mut self.strata else { return };
        let sums = stratum.greatest() + 1;
        let choices = stratum.ranks.len().saturating_mul(stratum.first).saturating_mul(sums);
        self.cost = self.cost.saturating_add(choices).saturating_add(self.length.saturating_mul(sums));
        self.length = self.length.saturating_add(sums);
        if self.cost > AFFORDABLE || stratum.ranks.len() > 500 {
            self.strata = None;
        } else {
            strata.push(stratum);
        }
    }

    /// The probability of each sum over all strata, less its expectation; none if it costs too much.
    fn distribution(self) -> Option<Vec<(i64, f64)>> {
        let strata = self.strata?;
        let mut sum = vec![1.0];
        for stratum in &strata {
            let null = stratum.null();
            let mut next = vec![0.0; sum.len() + null.len() - 1];
            for (offset, p) in null.iter().enumerate().filter(|(_, p)| **p > 0.0) {
                for (to, from) in next.iter_mut().skip(offset).zip(&sum) {
                    *to += p * from;
                }
            }
            sum = next;
        }
        let expected: i64 = strata.iter().map(Stratum::expected).sum();
        Some(sum.into_iter().enumerate().map(|(value, p)| (value as i64 - expected, p)).collect())
    }
}
