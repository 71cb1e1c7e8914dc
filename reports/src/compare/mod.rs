//! Two runs, or two cells of a run, side by side: what changed, by how much, and whether that can be said.
//!
//! Compared are tasks of equal id and content that both sides could run; what is left out is listed, and so is
//! everything else in which the sides differ: image, adapter, versions, host. What ended at a
//! time limit took "at least this long" (Kaplan-Meier), what failed never ends: neither is dropped, both rank behind all
//! that ended. Nothing is said of fewer than
//! [`MIN_REPLICATES`](crate::stats::MIN_REPLICATES) trials of a task.
//!
//! A change is *shown* if its 95 % interval leaves out 0, and, for medians and the pass rate, if the rank test within
//! tasks agrees after Holm's correction over the whole comparison. Intervals come from the bootstrap over tasks, or over
//! the trials of each task where there are fewer than six tasks; that of the pass rate is Newcombe's.

mod change;
mod gate;
mod metric;
mod provenance;
mod select;
mod side;

#[cfg(test)]
mod tests;

use sandbox_bench_core::Phase;
use sandbox_bench_core::evidence::SCHEMA_VERSION;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cost::RateCard;
use crate::evidence::EvidenceError;
use crate::stats::holm;
use crate::summary::RatesUsed;

use change::Pairing;
use side::Side;

pub use change::{CellName, Change, LEVEL, Verdict};
pub use gate::{Bound, Gate, GateError, Operator};
pub use metric::{Metric, Span};
pub use provenance::{Difference, LeftOut};
pub use select::Selector;

/// Two runs side by side, or two cells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Version of the evidence schemas.
    pub schema_version: String,
    /// The rate card by which costs are estimated.
    pub rates: RatesUsed,
    /// The pairs of cells.
    pub cells: Vec<CellComparison>,
    /// Cells that only one of the runs has.
    pub unmatched: Vec<CellName>,
}

/// Two cells side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellComparison {
    /// The first side: changes are relative to it.
    pub a: CellName,
    /// The second side.
    pub b: CellName,
    /// In what else the sides differ.
    pub differences: Vec<Difference>,
    /// Number of tasks that are compared.
    pub tasks: u64,
    /// Tasks that are not.
    pub left_out: Vec<LeftOut>,
    /// The figures.
    pub changes: Vec<Change>,
    /// What became of each gate.
    pub gates: Vec<GateResult>,
}

/// What became of a gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateResult {
    /// The gate.
    pub gate: String,
    /// Whether its condition holds.
    pub state: GateState,
    /// Why it cannot be decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Whether the condition of a gate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GateState {
    /// It does not hold.
    Passed,
    /// It holds.
    Failed,
    /// There is no telling.
    Undecided,
}

/// Why two things cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A run cannot be read.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// There is no such cell.
    #[error("{selector} has no recorded trial; the run has {there}")]
    NoCell {
        /// What was asked for.
        selector: String,
        /// The cells that have some.
        there: String,
    },
    /// It is not clear which cells to compare.
    #[error("{a} and {b} have no cell in common; name one of each as RUN:backend/condition")]
    NothingInCommon {
        /// The first run's cells.
        a: String,
        /// The second run's cells.
        b: String,
    },
}

/// Compares `a` with `b`: the two cells, or every pair of cells of the same name. Costs are estimated by `rates`.
///
/// # Errors
/// A run cannot be read, or there are no two cells to compare.
pub fn compare(a: &Selector, b: &Selector, rates: &RateCard, gates: &[Gate]) -> Result<Comparison, CompareError> {
    let (first, second) = (sides(a, rates)?, sides(b, rates)?);
    let chosen = a.cell.is_some() && b.cell.is_some();
    let alike = |a: &Side, b: &Side| {
        let same = a.cell.backend == b.cell.backend && a.cell.condition == b.cell.condition;
        (same || chosen) && a.cell.model == b.cell.model && a.cell.variant == b.cell.variant
    };
    let pairs: Vec<(&Side, &Side)> = match (first.as_slice(), second.as_slice()) {
        ([a], [b]) => vec![(a, b)],
        (first, second) => {
            first.iter().flat_map(|a| second.iter().filter(|b| alike(a, b)).map(move |b| (a, b))).collect()
        }
    };
    if pairs.is_empty() {
        return Err(CompareError::NothingInCommon { a: names(&first), b: names(&second) });
    }
    let matched = |side: &Side| pairs.iter().any(|(a, b)| a.cell == side.cell || b.cell == side.cell);
    let unmatched = first.iter().chain(&second).filter(|side| !matched(side)).map(|side| side.cell.clone()).collect();
    Ok(Comparison {
        schema_version: SCHEMA_VERSION.to_owned(),
        rates: RatesUsed::of(rates),
        cells: pairs.iter().map(|(a, b)| compare_cells(a, b, gates)).collect(),
        unmatched,
    })
}

fn sides(selector: &Selector, rates: &RateCard) -> Result<Vec<Side>, CompareError> {
    let all = side::read(&selector.run, rates)?;
    let there = names(&all);
    let asked = |side: &Side| {
        selector
            .cell
            .as_ref()
            .is_none_or(|(backend, condition)| side.cell.backend == *backend && side.cell.condition == *condition)
    };
    let chosen: Vec<Side> = all.into_iter().filter(asked).collect();
    if chosen.is_empty() {
        return Err(CompareError::NoCell { selector: selector.to_string(), there });
    }
    Ok(chosen)
}

fn names(sides: &[Side]) -> String {
    let names: Vec<String> =
        sides.iter().map(|side| format!("{}/{}", side.cell.backend, side.cell.condition)).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn compare_cells(a: &Side, b: &Side, gates: &[Gate]) -> CellComparison {
    let (tasks, left_out) = provenance::tasks(a, b);
    let pairing = Pairing::new(a, b, &tasks);
    let mut metrics = standard();
    metrics.extend(gates.iter().map(|gate| gate.metric).filter(|metric| !standard().contains(metric)));
    let known = metrics.into_iter().filter_map(|metric| Some((metric, pairing.change(metric)?)));
    let (metrics, mut changes): (Vec<Metric>, Vec<Change>) = known.unzip();
    let tested: Vec<f64> = changes.iter().filter_map(|change| change.p).collect();
    let mut adjusted = holm(&tested).into_iter();
    for (change, metric) in changes.iter_mut().zip(&metrics) {
        change.p = change.p.and_then(|_| adjusted.next());
        change.judge(*metric);
    }
    let gates = gates
        .iter()
        .map(|gate| decide(gate, metrics.iter().position(|m| *m == gate.metric).and_then(|i| changes.get(i))))
        .collect();
    CellComparison {
        a: a.cell.clone(),
        b: b.cell.clone(),
        differences: provenance::differences(a, b, &tasks),
        tasks: tasks.len() as u64,
        left_out,
        changes,
        gates,
    }
}

/// The figures that every comparison has.
fn standard() -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Span::all().map(|span| Metric::Percentile(50, span)).collect();
    metrics.extend([Phase::Create, Phase::Ready].map(|phase| Metric::Percentile(95, Span::Phase(phase))));
    metrics.extend([Metric::Percentile(95, Span::Total), Metric::Paired(Span::Total), Metric::Passed, Metric::Cost]);
    metrics
}

fn decide(gate: &Gate, change: Option<&Change>) -> GateResult {
    let result = |state, why| GateResult { gate: gate.to_string(), state, why };
    let undecided = |why: &str| result(GateState::Undecided, Some(why.to_owned()));
    let Some(change) = change else {
        return undecided("one of the sides has no such value");
    };
    let about_change = !matches!(gate.bound, Bound::Value(_));
    if about_change && change.verdict == Verdict::TooFew {
        return undecided(change.why.as_deref().unwrap_or("too few values"));
    }
    let unproven = about_change && change.verdict == Verdict::Same;
    // A change that has no number, but is shown, leads beyond everything that was observed.
    let beyond = if change.b.is_none() { f64::INFINITY } else { f64::NAN };
    let (value, bound) = match gate.bound {
        Bound::Relative(bound) => (change.change.unwrap_or(beyond), bound),
        Bound::Difference(bound) if gate.metric == Metric::Passed => (change.change.unwrap_or(f64::NAN), bound),
        Bound::Difference(bound) => (change.a.zip(change.b).map_or(beyond, |(a, b)| b - a), bound),
        Bound::Value(bound) => (change.b.unwrap_or(f64::NAN), bound),
    };
    let value = if unproven { 0.0 } else { value };
    match value {
        value if value.is_nan() => undecided(change.why.as_deref().unwrap_or("there is no figure")),
        value if gate.operator.holds(value, bound) => result(GateState::Failed, None),
        _ => result(GateState::Passed, None),
    }
}
