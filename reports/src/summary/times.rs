//! Total times by task: the interval of their median, and the order of the cells.

use std::collections::BTreeMap;

use sandbox_bench_core::FailureClass;
use sandbox_bench_core::evidence::Attempt;

use super::builder::{CellBuilder, hash};
use super::kept::Told;
use super::{Median, RankedCell, Ranking};
use crate::spill::Series;
use crate::stats::{ByTask, MIN_REPLICATES, Time, Timed, rank, resampled_median};

/// Times in microseconds by the hash of their task.
#[derive(Debug, Default)]
struct TaskTimes(BTreeMap<u64, Vec<Time>>);

impl TaskTimes {
    fn add(&mut self, task: u64, time: Time) {
        self.0.entry(task).or_default().push(time);
    }

    /// The median of all times, none of them censored, with its interval; none if they are too few.
    fn median(&self) -> Option<Median> {
        let sizes: Vec<usize> = self.0.values().map(Vec::len).collect();
        let of_task = |(task, times): (usize, &Vec<Time>)| {
            let timed = |(trial, time): (usize, &Time)| Timed { time: *time, task, trial };
            times.iter().enumerate().map(timed).collect::<Vec<Timed>>()
        };
        let mut all: Vec<Timed> = self.0.values().enumerate().flat_map(of_task).collect();
        all.sort_by(|a, b| a.time.value.total_cmp(&b.time.value));
        resampled_median(&sizes, || all.iter().copied(), false).map(Median::of)
    }
}

/// The times of a cell to a verdict, as they are kept: in ascending order with the task, and by task.
pub(super) struct CellTimes<'a> {
    pub(super) ascending: Series<'a, 3>,
    pub(super) by_task: Series<'a, 3>,
}

impl ByTask for CellTimes<'_> {
    type Task = u64;

    fn by_task(&self) -> impl Iterator<Item = (u64, Vec<Time>)> {
        let groups = self.by_task.groups();
        groups.map(|(task, codes)| (task, codes.into_iter().map(Time::of_code).collect()))
    }

    fn ascending(&self) -> impl Iterator<Item = (u64, Time)> {
        self.ascending.iter().map(|[_, code, task]| (task, Time::of_code(code)))
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
pub(super) fn ranking(cells: &[CellBuilder], told: &Told) -> Option<Ranking> {
    let timed = cells.iter().enumerate().map(|(index, cell)| (cell, told.verdicts(index)));
    let (cells, times): (Vec<&CellBuilder>, Vec<CellTimes<'_>>) =
        timed.filter(|(_, times)| times.ascending.len() > 0).unzip();
    if cells.len() < 2 {
        return None;
    }
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
