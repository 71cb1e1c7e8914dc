//! A summary as a person reads it: one aligned table, then what the figures alone do not tell. It claims nothing that the
//! summary does not hold, and ranks nothing.

mod duration;
mod notes;

#[cfg(test)]
mod tests;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use sandbox_bench_core::Phase;

use crate::percentile::Durations;
use crate::summary::{Cell, Summary};

pub use duration::duration;

const HEADER: [&str; 10] =
    ["backend", "condition", "model", "passed", "create", "ready", "total", "not passed", "proof", "cleanup"];

/// The column that is there only if models are a dimension of the plan.
const MODEL: usize = 2;

/// Columns of figures, which are aligned to the right.
const FIGURES: [&str; 4] = ["passed", "create", "ready", "total"];

/// What a cell shows when there is nothing to tell.
const NOTHING_TO_TELL: &str = "-";

/// The table of a run and the notes beneath it, ending in a newline.
#[must_use]
pub fn table(summary: &Summary) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let models = summary.cells.iter().any(|cell| cell.model.is_some());
    let shown = |index: &usize| models || *index != MODEL;
    let header: Vec<&str> = (0..).zip(HEADER).filter(|(index, _)| shown(index)).map(|(_, name)| name).collect();
    table.set_header(header.clone());
    let cells = |cell| (0..).zip(row(cell)).filter(|(index, _)| shown(index)).map(|(_, text)| text).collect::<Vec<_>>();
    table.add_rows(summary.cells.iter().map(cells));
    for (name, column) in header.iter().zip(table.column_iter_mut()) {
        column.set_padding((0, 2));
        if FIGURES.contains(name) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    let notes = notes::notes(summary);
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        text.push_str(&note);
        text.push('\n');
    }
    text
}

fn row(cell: &Cell) -> [String; 10] {
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
        format!("{}/{}", trials.accepted, trials.runnable()),
        times(cell.completed(Phase::Create)),
        times(cell.completed(Phase::Ready)),
        times(cell.total.accepted),
        counts(not_passed),
        counts(proof),
        counts(cleanup),
    ]
}

fn times(durations: Option<Durations>) -> String {
    durations.map_or_else(
        || NOTHING_TO_TELL.to_owned(),
        |durations| format!("{} / {}", duration(durations.p50_us), duration(durations.p95_us)),
    )
}

/// "2 proven, 1 unproven": what there is none of is not said.
fn counts<'a>(counts: impl IntoIterator<Item = (u64, &'a str)>) -> String {
    let told: Vec<String> = counts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if told.is_empty() { NOTHING_TO_TELL.to_owned() } else { told.join(", ") }
}
