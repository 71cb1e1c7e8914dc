//! Total times by task: the interval of their median, and the order of the cells.

use std::collections::BTreeMap;

use sandbox_bench_core::FailureClass;
use sandbox_bench_core::evidence::Attempt;

use super::builder::{CellBuilder, hash};
use super::{Median, RankedCell, Ranking};
use crate::stats::{Bootstrap, MIN_REPLICATES, Sample, Time, Units, rank};

/// Times in microseconds by the hash of their task.
#[derive(Debug, Default)]
pub(super) struct TaskTimes(BTreeMap<u64, Vec<Time>>);

impl TaskTimes {
    pub(super) fn add(&mut self, task: u64, time: Time) {
        self.0.entry(task).or_default().push(time);
    }

    /// The median of all times, none of them censored, with its interval; none if they are too few.
    pub(super) fn median(&self) -> Option<Median> {
        let sizes: Vec<usize> = self.0.values().map(Vec::len).collect();
        let n: usize = sizes.iter().sum();
        let units = Units::of(&[sizes])?;
        let of_task = |(task, times): (usize, &Vec<Time>)| {
            let units = &units;
            times.clone().into_iter().enumerate().map(move |(trial, time)| (time, units.number(0, task, trial)))
        };
        let sample = Sample::new(self.0.values().enumerate().flat_map(of_task));
        let bootstrap = Bootstrap::of(n);
        let (p50_us, interval) = bootstrap.interval(&units.strata, |weights| sample.quantile(0.5, weights, false))?;
        Some(Median { p50_us, interval, resampled: units.unit, bootstrap })
    }
}

/// The total times of a cell while it is run, for a run that ends once they are known well enough.
#[derive(Debug, Default)]
pub struct Watched {
    times: TaskTimes,
    n: usize,
}

impl Watched {
    /// Takes in an accepted attempt.
    pub fn add(&mut self, attempt: &Attempt) {
        let task = hash(&(&attempt.trial.dataset, &attempt.trial.task));
        self.times.add(task, Time::seen(attempt.total_us as f64));
        self.n += 1;
    }

    /// How wide the interval of the median total time is, as a share of the median. None while a task has fewer than
    /// [`MIN_REPLICATES`], and between whole rounds through the tasks: nothing is gained by looking after each trial.
    #[must_use]
    pub fn relative_width(&self) -> Option<f64> {
        let tasks = self.times.0.len();
        let fewest = self.times.0.values().map(|times| times.len() as u64).min()?;
        if fewest < MIN_REPLICATES || !self.n.is_multiple_of(tasks) {
            return None;
        }
        let median = self.times.median()?;
        Some((median.interval.high? - median.interval.low?) / median.p50_us)
    }
}

/// The time of something that did not end well after `us` microseconds.
pub(crate) fn unfinished(attempt: &Attempt, us: u64) -> Time {
    match attempt.failure.as_ref().map(|failure| failure.class) {
        // It would have ended some time.
        Some(FailureClass::Timeout | FailureClass::Interrupted) => Time::at_least(us as f64),
        _ => Time::never(),
    }
}

/// The order of the cells that have times; none if there is only one.
pub(super) fn ranking(cells: &[CellBuilder]) -> Option<Ranking> {
    let cells: Vec<&CellBuilder> = cells.iter().filter(|cell| !cell.to_verdict.0.is_empty()).collect();
    if cells.len() < 2 {
        return None;
    }
    let times: Vec<BTreeMap<u64, Vec<Time>>> = cells.iter().map(|cell| cell.to_verdict.0.clone()).collect();
    let places = match rank(&times) {
        Ok(places) => places,
        Err(too_few) => return Some(Ranking::Refused { why: too_few.to_string() }),
    };
    let place = |place: crate::stats::Place| {
        let cell = cells.get(place.cell)?;
        let p50_us = place.median.is_finite().then_some(place.median);
        Some(RankedCell {
            backend: cell.backend.clone(),
            condition: cell.condition,
            model: cell.model.clone(),
            variant: cell.variant.clone(),
            p50_us,
            p: place.p,
        })
    };
    Some(Ranking::Ranked { places: places.into_iter().filter_map(place).collect() })
}
