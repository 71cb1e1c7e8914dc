//! What warm artifacts save, and after how many trials they have paid for their making.

use std::collections::BTreeSet;

use sandbox_bench_core::Condition;

use crate::stats::{Method, quantile};

use super::{CellView, RunView, TaskView};

/// A warm cell against a cold one of the same backend and model.
#[derive(Debug)]
pub(crate) struct Saving {
    pub(crate) cold: usize,
    pub(crate) warm: usize,
    /// Tasks that have times to a verdict in both.
    pub(crate) tasks: u64,
    /// Medians over these tasks of the task's own median, in microseconds.
    pub(crate) cold_us: f64,
    pub(crate) warm_us: f64,
    /// Median over tasks of what a trial of the task saves, in microseconds; below zero if warm takes longer.
    pub(crate) saved_us: f64,
    /// How long the artifacts took to make in all, in microseconds; none if one of them was not made in these runs.
    pub(crate) build_us: Option<u64>,
    /// Number of artifacts that trials of the warm cell started from.
    pub(crate) artifacts: u64,
}

impl Saving {
    /// After so many trials, spread over the artifacts as these were, making them has taken less time than it saved.
    /// None if that is not known or never comes.
    pub(crate) fn pays_after(&self) -> Option<u64> {
        let build = self.build_us? as f64;
        (self.saved_us > 0.0).then(|| (build / self.saved_us).ceil().max(1.0) as u64)
    }
}

/// Every warm cell with a cold one, of the same run if that has one.
pub(super) fn savings(
    runs: &[RunView],
    cells: &[CellView],
    tasks: &[TaskView],
    artifacts: &[BTreeSet<String>],
) -> Vec<Saving> {
    let conditions = |cell: &CellView| {
        let of = &cell.figures;
        (of.condition, of.backend.clone(), of.model.clone(), of.variant.clone())
    };
    let warm = cells.iter().enumerate().filter(|(_, cell)| cell.figures.condition == Condition::Warm);
    warm.filter_map(|(warm, view)| {
        let (_, backend, model, variant) = conditions(view);
        let like = (Condition::Cold, backend, model, variant);
        let mut cold = cells.iter().enumerate().filter(|(_, cell)| conditions(cell) == like);
        let (cold, _) = cold.clone().find(|(_, cell)| cell.run == view.run).or_else(|| cold.next())?;
        let medians: Vec<(f64, f64)> = tasks
            .iter()
            .filter_map(|task| Some((median(task, cold)?, median(task, warm)?)))
            .filter(|(cold, warm)| cold.is_finite() && warm.is_finite())
            .collect();
        let over = |of: &dyn Fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = medians.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            quantile(&values, 0.5, Method::R7)
        };
        let own = artifacts.get(warm)?;
        let builds: Option<Vec<u64>> = own.iter().map(|id| build(runs, &view.figures.backend, id)).collect();
        Some(Saving {
            cold,
            warm,
            tasks: medians.len() as u64,
            cold_us: over(&|pair| pair.0)?,
            warm_us: over(&|pair| pair.1)?,
            saved_us: over(&|pair| pair.0 - pair.1)?,
            build_us: builds.filter(|builds| !builds.is_empty()).map(|builds| builds.iter().sum()),
            artifacts: own.len() as u64,
        })
    })
    .collect()
}

/// How long it took to make the artifact, in whichever of the runs made it.
fn build(runs: &[RunView], backend: &str, id: &str) -> Option<u64> {
    let mut known = runs.iter().flat_map(|run| &run.summary.artifacts);
    known.find(|artifact| artifact.backend == backend && artifact.id == id && artifact.build_us.is_some())?.build_us
}

/// The median time of a task to a verdict in a cell, in microseconds; infinite if most of its attempts came to none, none
/// of no attempts.
pub(crate) fn median(task: &TaskView, cell: usize) -> Option<f64> {
    task.cells.get(cell)?.median
}
