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
        let mut steps: Vec<(f64, f64)> = Vec::new();
        for (value, count) in values.into_iter().zip(1..) {
            let share = f64::from(count) / n as f64;
            match steps.last_mut() {
                Some(last) if last.0 == value => last.1 = share,
                _ => steps.push((value, share)),
            }
        }
        Self { steps, n }
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
