//! The cells on the tasks that all of them could run: only there their figures mean the same.

use std::collections::BTreeMap;

use crate::stats::proportion::wilson;
use crate::stats::{Bootstrap, Interval, MIN_REPLICATES, Place, Sample, Time, Unit, Units, paired, rank};

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
    pub(super) fn of(tasks: &[TaskView], cells: usize) -> Self {
        let ran = |task: &TaskView, cell: usize| task.cells.get(cell).is_some_and(|c| c.counts().runnable() > 0);
        let compared: Vec<usize> = (0..cells).filter(|&cell| tasks.iter().any(|task| ran(task, cell))).collect();
        let common: Vec<&TaskView> = tasks.iter().filter(|task| compared.iter().all(|&cell| ran(task, cell))).collect();
        let attempted = tasks.iter().filter(|task| compared.iter().any(|&cell| ran(task, cell))).count();
        let of_cell = |cell: usize| common.iter().filter_map(move |task| task.cells.get(cell)).enumerate();
        let times: Vec<BTreeMap<usize, Vec<Time>>> = compared
            .iter()
            .map(|&cell| {
                of_cell(cell).filter(|(_, c)| !c.times.is_empty()).map(|(i, c)| (i, c.times.clone())).collect()
            })
            .collect();
        let rows = compared
            .iter()
            .zip(&times)
            .map(|(&cell, own)| {
                row(cell, of_cell(cell).map(|(_, c)| c), own, times.first().filter(|_| Some(&cell) != compared.first()))
            })
            .collect();
        Self { tasks: common.len(), left_out: attempted - common.len(), rows, order: order(&compared, &times) }
    }
}

fn order(compared: &[usize], times: &[BTreeMap<usize, Vec<Time>>]) -> Order {
    if compared.len() < 2 {
        return Order::Single;
    }
    match rank(times) {
        Err(too_few) => Order::Refused(too_few.to_string()),
        Ok(places) => Order::Ranked(
            places.into_iter().filter_map(|p| Some(Place { cell: *compared.get(p.cell)?, ..p })).collect(),
        ),
    }
}

fn row<'a>(
    cell: usize,
    tasks: impl Iterator<Item = &'a TaskCell>,
    times: &BTreeMap<usize, Vec<Time>>,
    first: Option<&BTreeMap<usize, Vec<Time>>>,
) -> Row {
    let (accepted, trials) = tasks
        .map(TaskCell::counts)
        .fold((0, 0), |(accepted, trials), counts| (accepted + counts.accepted, trials + counts.runnable()));
    let (median, interval) = median(times);
    Row {
        cell,
        accepted,
        trials,
        share: wilson(accepted, trials, Bootstrap::default().confidence),
        median,
        interval,
        change: first.and_then(|first| change(first, times)),
    }
}

fn median(times: &BTreeMap<usize, Vec<Time>>) -> (Option<f64>, Option<(Interval, Unit)>) {
    let sizes: Vec<usize> = times.values().map(Vec::len).collect();
    let n = sizes.iter().sum();
    if n == 0 {
        return (None, None);
    }
    let units = Units::of(&[sizes]);
    let number = |task, trial| units.as_ref().map_or(0, |units| units.number(0, task, trial));
    let of_task = times.values().enumerate().flat_map(|(task, times)| {
        let number = &number;
        times.iter().enumerate().map(move |(trial, time)| (*time, number(task, trial)))
    });
    let sample = Sample::new(of_task);
    let quantile = |weights: &[u32]| sample.quantile(0.5, weights, sample.has_censored());
    match &units {
        None => (Some(quantile(&[1])), None),
        Some(units) => match Bootstrap::of(n).interval(&units.strata, quantile) {
            Some((median, interval)) => (Some(median), Some((interval, units.unit))),
            None => (None, None),
        },
    }
}

/// A change that leads beyond all that was observed is infinite, not missing.
fn change(a: &BTreeMap<usize, Vec<Time>>, b: &BTreeMap<usize, Vec<Time>>) -> Option<(f64, Option<Interval>)> {
    let changes = paired(a, b).into_iter().map(|pair| pair.change()).filter(|change| !change.is_nan());
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
