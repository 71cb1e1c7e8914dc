//! The empirical distribution function.

/// The share of values up to each value: a step function.
#[derive(Debug, Clone, PartialEq)]
pub struct Ecdf {
    steps: Vec<(f64, f64)>,
    n: usize,
}

impl Ecdf {
    /// Of these values, in any order.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let n = values.len();
        Self { steps: ecdf(values.into_iter(), n).collect(), n }
    }

    /// The share of values that are at most `x`; 0 of no values.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        let above = self.steps.partition_point(|(value, _)| *value <= x);
        above.checked_sub(1).and_then(|index| self.steps.get(index)).map_or(0.0, |step| step.1)
    }

    /// Each distinct value with the share of values up to it, in ascending order.
    #[must_use]
    pub fn steps(&self) -> &[(f64, f64)] {
        &self.steps
    }

    /// Number of values.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }
}

/// The steps of `n` values that come in ascending order: each distinct one with the share of values up to it.
pub fn ecdf(ascending: impl Iterator<Item = f64>, n: usize) -> impl Iterator<Item = (f64, f64)> {
    let (mut values, mut count) = (ascending.peekable(), 0u64);
    std::iter::from_fn(move || {
        let value = values.next()?;
        count += 1;
        while values.next_if(|next| *next == value).is_some() {
            count += 1;
        }
        Some((value, count as f64 / n as f64))
    })
}
