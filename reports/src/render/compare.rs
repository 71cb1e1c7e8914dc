//! A comparison as a person reads it: what is compared, in what else it differs, what changed, what became of the gates.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::notes::p_value;
use super::{NOTHING_TO_TELL, duration, usd};
use crate::compare::{CellComparison, CellName, Change, Comparison, GateState, Verdict};
use crate::stats::{Interval, Unit};

const HEADER: [&str; 8] = ["", "A", "B", "change", "95 %", "n", "p", "verdict"];

/// Columns of figures, which are aligned to the right.
const FIGURES: std::ops::Range<usize> = 1..7;

/// All pairs of cells, ending in a newline.
#[must_use]
pub fn comparison(comparison: &Comparison) -> String {
    let mut parts: Vec<String> = comparison.cells.iter().map(pair).collect();
    if !comparison.unmatched.is_empty() {
        let names: Vec<String> = comparison.unmatched.iter().map(name).collect();
        parts.push(format!("without a partner: {}\n", names.join(", ")));
    }
    parts.join("\n")
}

fn name(cell: &CellName) -> String {
    let model = cell.model.as_ref().map(|model| format!(" {model}")).unwrap_or_default();
    let variant = if cell.variant.is_plain() { String::new() } else { format!(" {}", cell.variant) };
    format!("{}:{}/{}{model}{variant}", cell.run, cell.backend, cell.condition)
}

fn pair(cells: &CellComparison) -> String {
    let mut text = format!("A {}\nB {}\n", name(&cells.a), name(&cells.b));
    for difference in &cells.differences {
        let of = difference.tasks.map(|tasks| format!(" of {tasks} tasks, such as")).unwrap_or_default();
        text += &format!("differs: {}{of}: {} → {}\n", difference.what, difference.a, difference.b);
    }
    for left_out in &cells.left_out {
        text += &format!("left out: {}: {}\n", left_out.task, left_out.why);
    }
    text += &format!("compared: {} {}\n\n", cells.tasks, if cells.tasks == 1 { "task" } else { "tasks" });
    text += &table(&cells.changes);
    text.push('\n');
    for note in notes(&cells.changes) {
        text += &format!("{note}\n");
    }
    for gate in &cells.gates {
        let state = match gate.state {
            GateState::Passed => "passed",
            GateState::Failed => "FAILED",
            GateState::Undecided => "undecided",
        };
        let why = gate.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        text += &format!("gate {state}: {}{why}\n", gate.gate);
    }
    text
}

fn table(changes: &[Change]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(HEADER);
    table.add_rows(changes.iter().filter(|change| has_figures(change)).map(row));
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if FIGURES.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}

fn has_figures(change: &Change) -> bool {
    change.b.is_some() || change.a.is_some() || change.change.is_some() || change.censored != (0, 0)
}

fn row(change: &Change) -> [String; 8] {
    let (a, b) = change.n;
    [
        change.metric.clone(),
        figure(change, change.a, change.censored.0),
        figure(change, change.b, change.censored.1),
        change.change.map_or_else(|| NOTHING_TO_TELL.to_owned(), |share| percent(change, share)),
        change.interval.map_or_else(|| NOTHING_TO_TELL.to_owned(), |interval| ends(change, interval)),
        if a == b { a.to_string() } else { format!("{a}/{b}") },
        change.p.map_or_else(|| NOTHING_TO_TELL.to_owned(), |p| p_value(p).trim_start_matches("= ").to_owned()),
        change.verdict.name().to_owned(),
    ]
}

/// A figure of a side. One that lies beyond all that was observed, as most of it was given up on, is ∞.
fn figure(change: &Change, value: Option<f64>, censored: u64) -> String {
    match (change.unit.as_deref(), value) {
        (Some("us"), Some(us)) => duration(us.round() as u64),
        (Some("usd"), Some(amount)) => usd(amount),
        (Some(_), Some(share)) => format!("{:.0} %", share * 100.0),
        (Some("us"), None) if censored > 0 => "∞".to_owned(),
        _ => NOTHING_TO_TELL.to_owned(),
    }
}

fn percent(change: &Change, share: f64) -> String {
    let unit = if change.unit.as_deref() == Some("share") { "pp" } else { "%" };
    let number = share * 100.0;
    if number.abs() < 9.95 { format!("{number:+.1} {unit}") } else { format!("{number:+.0} {unit}") }
}

fn ends(change: &Change, interval: Interval) -> String {
    let end = |end: Option<f64>| end.map_or_else(|| "∞".to_owned(), |share| percent(change, share));
    format!("{} … {}", end(interval.low), end(interval.high))
}

/// What the table does not tell. Each is there only if the data say so.
fn notes(changes: &[Change]) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(unit) = changes.iter().find_map(|change| change.resampled) {
        let drawn = if unit == Unit::Tasks { "tasks" } else { "trials of each task" };
        notes.push(format!(
            "intervals: bootstrap, {drawn} resampled; of passed, Newcombe; p: Mann-Whitney within tasks, Holm"
        ));
    }
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for change in changes.iter().filter(|change| change.verdict == Verdict::TooFew) {
        let why = change.why.as_deref().unwrap_or_default();
        if !has_figures(change) {
            notes.push(format!("{}: {why}", change.metric));
            continue;
        }
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, metrics)) => metrics.push(&change.metric),
            None => reasons.push((why, vec![&change.metric])),
        }
    }
    notes.extend(reasons.iter().map(|(why, metrics)| format!("too few ({}): {why}", metrics.join(", "))));
    let censored = changes.iter().filter(|change| change.censored != (0, 0) && change.metric.starts_with("p50"));
    notes.extend(censored.map(|change| {
        let (a, b) = change.censored;
        format!(
            "{}: {a} of A and {b} of B failed or were given up on; they count as longer, not as missing",
            change.metric
        )
    }));
    notes
}
