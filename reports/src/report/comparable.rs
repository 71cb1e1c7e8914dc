//! The cells on the tasks that all of them could run: only there their figures mean the same.

use crate::stats::proportion::wilson;
use crate::stats::{
    self, Bootstrap, Interval, MIN_REPLICATES, Pair, Place, Sample, Time, Timed, Unit, Units, rank, resampled_median,
};

use super::kept::{OfTasks, Told};
use super::{TaskCell, TaskView};

/// The comparison on the comparable subset.
#[derive(Debug)]
pub(crate) struct Comparable {
    /// Number of tasks that all compared cells could run.
    pub(crate) tasks: usize,
    /// Number of tasks that some of them could not.
    pub(crate) left_out: usize,
    /// One for each cell that could run anything.
    pub(crate) rows: Vec<Row>,
    pub(crate) order: Order,
}

/// Whether the cells can be put in order.
#[derive(Debug)]
pub(crate) enum Order {
    /// There is nothing to compare.
    Single,
    /// Too few trials, and why.
    Refused(String),
    /// Least median first; `cell` is an index of all cells.
    Ranked(Vec<Place>),
}

/// One cell on the comparable subset.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) cell: usize,
    pub(crate) accepted: u64,
    pub(crate) trials: u64,
    pub(crate) share: Option<Interval>,
    /// Median time to a verdict in microseconds; infinite if most attempts came to none, none of no times.
    pub(crate) median: Option<f64>,
    pub(crate) interval: Option<(Interval, Unit)>,
    /// Median over tasks of the relative change of the task's own median, against the first row.
    pub(crate) change: Option<(f64, Option<Interval>)>,
}

impl Comparable {
    /// Of tasks with their numbers, by which what is known of their times is kept.
    pub(super) fn of(tasks: &[TaskView], numbers: &[usize], cells: usize, told: &Told) -> Self {
        let ran = |task: &TaskView, cell: usize| task.cells.get(cell).is_some_and(|c| c.counts().runnable() > 0);
        let compared: Vec<usize> = (0..cells).filter(|&cell| tasks.iter().any(|task| ran(task, cell))).collect();
        let is_common = |task: &TaskView| compared.iter().all(|&cell| ran(task, cell));
        let common: Vec<(usize, &TaskView)> =
            numbers.iter().copied().zip(tasks).filter(|(_, task)| is_common(task)).collect();
        let attempted = tasks.iter().filter(|task| compared.iter().any(|&cell| ran(task, cell))).count();
        let mut some = vec![false; tasks.len()];
        for (number, _) in &common {
            if let Some(slot) = some.get_mut(*number) {
                *slot = true;
            }
        }
        let times: Vec<OfTasks<'_>> = compared.iter().map(|&cell| OfTasks { told, cell, some: &some }).collect();
        let first = compared.first().copied();
        let rows = times.iter().map(|own| row(own, &common, first.filter(|first| *first != own.cell))).collect();
        Self { tasks: common.len(), left_out: attempted - common.len(), rows, order: order(&times) }
    }
}

fn order(times: &[OfTasks<'_>]) -> Order {
    if times.len() < 2 {
        return Order::Single;
    }
    match rank(times) {
        Err(too_few) => Order::Refused(too_few.to_string()),
        Ok(places) => {
            let of_all = |place: Place| Some(Place { cell: times.get(place.cell)?.cell, ..place });
            Order::Ranked(places.into_iter().filter_map(of_all).collect())
        }
    }
}

fn row(own: &OfTasks<'_>, common: &[(usize, &TaskView)], first: Option<usize>) -> Row {
    let of_cell = |cell: usize| common.iter().filter_map(move |(_, task)| task.cells.get(cell));
    let (accepted, trials) = of_cell(own.cell)
        .map(TaskCell::counts)
        .fold((0, 0), |(accepted, trials), counts| (accepted + counts.accepted, trials + counts.runnable()));
    let (median, interval) = median_of(own, common);
    Row {
        cell: own.cell,
        accepted,
        trials,
        share: wilson(accepted, trials, Bootstrap::default().confidence),
        median,
        interval,
        change: first.and_then(|first| change(of_cell(first).zip(of_cell(own.cell)))),
    }
}

fn median_of(own: &OfTasks<'_>, common: &[(usize, &TaskView)]) -> (Option<f64>, Option<(Interval, Unit)>) {
    // Only tasks with times are units; they are numbered in the order of their names.
    let (mut places, mut sizes, mut censored) = (vec![0; own.some.len()], Vec::new(), false);
    for (number, task) in common {
        let Some(cell) = task.cells.get(own.cell).filter(|cell| cell.times > 0) else { continue };
        if let Some(place) = places.get_mut(*number) {
            *place = sizes.len();
        }
        sizes.push(cell.times);
        censored |= cell.censored;
    }
    if sizes.is_empty() {
        return (None, None);
    }
    let ascending = || own.timed().map(|timed| Timed { task: places.get(timed.task).copied().unwrap_or(0), ..timed });
    if Units::of(std::slice::from_ref(&sizes)).is_none() {
        return (Some(stats::median(&sizes, ascending, censored)), None);
    }
    match resampled_median(&sizes, ascending, censored) {
        Some(found) => (Some(found.median), Some((found.interval, found.unit))),
        None => (None, None),
    }
}

/// A change that leads beyond all that was observed is infinite, not missing.
fn change<'a>(tasks: impl Iterator<Item = (&'a TaskCell, &'a TaskCell)>) -> Option<(f64, Option<Interval>)> {
    let pairs = tasks.filter_map(|(a, b)| {
        let censored = a.censored || b.censored;
        let median = |cell: &TaskCell| if censored { cell.survival_median } else { cell.median };
        Some(Pair { task: (), a: median(a)?, b: median(b)?, n: (a.times, b.times) })
    });
    let changes = pairs.map(|pair| pair.change()).filter(|change| !change.is_nan());
    let time = |change: f64| if change.is_finite() { Time::seen(change) } else { Time::never() };
    let sample = Sample::new(changes.map(time).enumerate().map(|(unit, time)| (time, unit)));
    let n = sample.n();
    let figure = |weights: &[u32]| sample.quantile(0.5, weights, sample.has_censored());
    match n {
        0 => None,
        n if (n as u64) < MIN_REPLICATES => Some((figure(&vec![1; n]), None)),
        n => Bootstrap::of(n).interval(&[n], figure).map(|(change, interval)| (change, Some(interval))),
    }
}
