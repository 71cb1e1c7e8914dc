//! A summary as a person reads it: one aligned table, then what the figures alone do not tell. It claims nothing that the
//! summary does not hold, and ranks nothing.

mod compare;
mod duration;
mod money;
mod notes;
mod plain;

#[cfg(test)]
mod tests;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use sandbox_bench_core::Phase;

use crate::percentile::Durations;
use crate::stats::Interval;
use crate::summary::{Cell, Summary};

pub use compare::comparison;
pub use duration::duration;
pub use money::{cost, usd};
pub use notes::notes;
pub(crate) use notes::{objects, p_value};
pub(crate) use plain::{one_line, plain};

const HEADER: [&str; 13] = [
    "backend",
    "condition",
    MODEL,
    VARIANT,
    "passed",
    "95 %",
    "create",
    "ready",
    "total",
    COST,
    "not passed",
    "proof",
    "cleanup",
];

/// Columns of figures, which are aligned to the right.
const FIGURES: std::ops::Range<usize> = 4..10;

/// The column that is left out if models are no dimension of the plan.
const MODEL: &str = "model";

/// The column that is left out if the plan has no further dimensions.
const VARIANT: &str = "variant";

/// The column that is left out if no cost is known.
const COST: &str = "cost/pass";

/// What a cell shows when there is nothing to tell.
const NOTHING_TO_TELL: &str = "-";

/// The table of a run and the notes beneath it, ending in a newline.
#[must_use]
pub fn table(summary: &Summary) -> String {
    let priced = summary.cells.iter().any(|cell| cell.cost.known_usd.is_some());
    let models = summary.cells.iter().any(|cell| cell.model.is_some());
    let variants = summary.cells.iter().any(|cell| !cell.variant.is_plain());
    let wanted = |name: &str| (priced || name != COST) && (models || name != MODEL) && (variants || name != VARIANT);
    let shown: Vec<usize> = (0..).zip(HEADER).filter(|(_, name)| wanted(name)).map(|(index, _)| index).collect();
    let pick = |all: [String; 13]| {
        let all = all.into_iter().enumerate();
        all.filter(|(index, _)| shown.contains(index)).map(|(_, text)| text).collect::<Vec<String>>()
    };
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(pick(HEADER.map(str::to_owned)));
    table.add_rows(summary.cells.iter().map(|cell| pick(row(cell))));
    for (column, index) in table.column_iter_mut().zip(&shown) {
        column.set_padding((0, 2));
        if FIGURES.contains(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    let notes = notes(summary);
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        text.push_str(&note);
        text.push('\n');
    }
    text
}

fn row(cell: &Cell) -> [String; 13] {
    let trials = &cell.trials;
    let failures = trials.failures.iter().map(|(class, n)| (*n, class.as_str()));
    let not_passed =
        [(trials.rejected, "rejected")].into_iter().chain(failures).chain([(trials.unavailable, "unavailable")]);
    let proof = [(cell.proof.proven, "proven"), (cell.proof.unproven, "unproven"), (cell.proof.violated, "violated")];
    let cleanup = [(cell.cleanup.confirmed, "confirmed"), (cell.cleanup.unconfirmed, "unconfirmed")];
    [
        cell.backend.clone(),
        cell.condition.to_string(),
        cell.model.clone().unwrap_or_default(),
        cell.variant.to_string(),
        format!("{}/{}", trials.accepted, trials.runnable()),
        cell.accepted_share.map_or_else(|| NOTHING_TO_TELL.to_owned(), percents),
        times(cell.completed(Phase::Create)),
        times(cell.completed(Phase::Ready)),
        times(cell.total.accepted),
        cost(&cell.cost),
        counts(not_passed),
        counts(proof),
        counts(cleanup),
    ]
}

/// "82–100 %"
pub(crate) fn percents(interval: Interval) -> String {
    let percent = |end: Option<f64>, beyond: f64| end.unwrap_or(beyond) * 100.0;
    format!("{:.0}–{:.0} %", percent(interval.low, 0.0), percent(interval.high, 1.0))
}

pub(crate) fn times(durations: Option<Durations>) -> String {
    durations.map_or_else(
        || NOTHING_TO_TELL.to_owned(),
        |durations| format!("{} / {}", duration(durations.p50_us), duration(durations.p95_us)),
    )
}

/// "2 proven, 1 unproven": what there is none of is not said.
pub(crate) fn counts<'a>(counts: impl IntoIterator<Item = (u64, &'a str)>) -> String {
    let told: Vec<String> = counts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if told.is_empty() { NOTHING_TO_TELL.to_owned() } else { told.join(", ") }
}
