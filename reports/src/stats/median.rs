//! The median of the times of a cell, with its interval, in memory that does not grow with their number.

use super::sample::Reading;
use super::{Bootstrap, Interval, Time, Unit, Units};

/// Times that are looked at together.
const TOGETHER: usize = 4096;

/// A time with the trial that it is of: the number of the task, and that of the trial among those of the task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timed {
    /// The time.
    pub time: Time,
    /// Number of the task, from 0.
    pub task: usize,
    /// Number of the trial among those of its task, from 0.
    pub trial: usize,
}

/// A median with what a bootstrap says of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resampled {
    /// The median.
    pub median: f64,
    /// Its interval.
    pub interval: Interval,
    /// What was resampled.
    pub unit: Unit,
    /// How it was.
    pub bootstrap: Bootstrap,
}

/// The median of times, given how many each task has. `ascending` goes through them, least first, as often as it is asked;
/// by Kaplan-Meier if `censoring`, else by R-7. NaN of no times.
pub fn median<I: Iterator<Item = Timed>>(tasks: &[usize], ascending: impl Fn() -> I, censoring: bool) -> f64 {
    let mut reading = Reading::new(0.5, tasks.iter().sum::<usize>() as u64, censoring);
    for timed in ascending() {
        reading.add(timed.time, 1);
        if reading.done() {
            break;
        }
    }
    reading.value()
}

/// … with its interval; none if they are too few for that.
pub fn resampled_median<I: Iterator<Item = Timed>>(
    tasks: &[usize],
    ascending: impl Fn() -> I,
    censoring: bool,
) -> Option<Resampled> {
    let units = Units::of(&[tasks.to_vec()])?;
    let bootstrap = Bootstrap::of(tasks.iter().sum());
    let count = |weights: &[u32]| -> u64 {
        match units.unit {
            Unit::Tasks => weights.iter().zip(tasks).map(|(weight, n)| u64::from(*weight) * *n as u64).sum(),
            Unit::Trials => weights.iter().copied().map(u64::from).sum(),
        }
    };
    let figures = |drawn: &[Vec<u32>]| {
        let mut readings: Vec<Reading> =
            drawn.iter().map(|weights| Reading::new(0.5, count(weights), censoring)).collect();
        let mut times = ascending().map(|timed| (timed.time, units.number(0, timed.task, timed.trial)));
        let mut some: Vec<(Time, usize)> = Vec::with_capacity(TOGETHER);
        loop {
            some.clear();
            some.extend(times.by_ref().take(TOGETHER));
            for (reading, weights) in readings.iter_mut().zip(drawn).filter(|(reading, _)| !reading.done()) {
                for (time, unit) in &some {
                    reading.add(*time, u64::from(weights.get(*unit).copied().unwrap_or(0)));
                }
            }
            if some.len() < TOGETHER || readings.iter().all(Reading::done) {
                return readings.into_iter().map(Reading::value).collect();
            }
        }
    };
    let (median, interval) = bootstrap.interval_at_once(&units.strata, figures)?;
    Some(Resampled { median, interval, unit: units.unit, bootstrap })
}
