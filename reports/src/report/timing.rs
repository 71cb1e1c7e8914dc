//! The tables of times, as both the page and the Markdown show them.

use crate::render::{duration, objects};
use crate::stats::Components;

use super::Report;

/// A table.
pub(crate) struct Table {
    pub(crate) title: &'static str,
    /// How to read it.
    pub(crate) note: &'static str,
    /// Names of the columns.
    pub(crate) columns: &'static [&'static str],
    /// How many of them, from the first, hold names; the others hold figures.
    pub(crate) names: usize,
    pub(crate) rows: Vec<Vec<Figure>>,
}

/// What stands in a cell of a table.
pub(crate) struct Figure {
    pub(crate) text: String,
    /// What to sort it by, if not by its text.
    pub(crate) sort: Option<f64>,
}

fn text(text: impl Into<String>) -> Figure {
    Figure { text: text.into(), sort: None }
}

fn nothing() -> Figure {
    text("–")
}

fn number(n: u64) -> Figure {
    Figure { text: n.to_string(), sort: Some(n as f64) }
}

/// A time in microseconds; infinite if most came to no end.
fn time(us: f64) -> Figure {
    match us.is_finite() {
        true => Figure { text: signed(us), sort: Some(us) },
        false => Figure { text: "∞".to_owned(), sort: Some(f64::MAX) },
    }
}

fn signed(us: f64) -> String {
    let size = duration(us.abs().round() as u64);
    if us < 0.0 { format!("−{size}") } else { size }
}

impl Report {
    /// The tables that have something to tell.
    pub(crate) fn timing(&self) -> Vec<Table> {
        let tables = [self.savings_table(), self.all_times(), self.verdicts(), self.spreads()];
        tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
    }

    fn savings_table(&self) -> Table {
        let name = |cell: usize| self.cells.get(cell).map_or_else(String::new, |cell| cell.name.clone());
        let rows = self.savings.iter().map(|saving| {
            let pays = match saving.pays_after() {
                Some(trials) => Figure { text: objects(trials, "trial"), sort: Some(trials as f64) },
                None if saving.saved_us <= 0.0 => Figure { text: "never".to_owned(), sort: Some(f64::MAX) },
                None => nothing(),
            };
            vec![
                text(format!("{} → {}", name(saving.cold), name(saving.warm))),
                number(saving.tasks),
                time(saving.cold_us),
                time(saving.warm_us),
                time(saving.saved_us),
                number(saving.artifacts),
                saving.build_us.map_or_else(nothing, |us| time(us as f64)),
                pays,
            ]
        });
        Table {
            title: "What warm artifacts save",
            note: "Medians over the tasks that have times in both, of the task's own median to a verdict. Made in: how long the \
                   artifacts took to make, all together, where these runs made them (a report may take in the run of prewarm, too). Pays \
                   after: that, divided by what a trial saves.",
            columns: &["cells", "tasks", "cold", "warm", "saved", "artifacts", "made in", "pays after"],
            names: 1,
            rows: rows.collect(),
        }
    }

    fn all_times(&self) -> Table {
        let known = self.cells.iter().filter_map(|cell| Some((cell, cell.figures.total.all?)));
        let rows = known.map(|(cell, all)| {
            vec![
                text(cell.name.clone()),
                number(all.n),
                time(all.sum_us as f64),
                time(all.mean_us),
                time(all.p50_us),
                time(all.p95_nearest_us as f64),
            ]
        });
        Table {
            title: "All attempts",
            note: "Whatever became of them, failed ones included: what was waited for, and no measure of speed. p95 by nearest rank: \
                   a value that occurred.",
            columns: &["cell", "n", "sum", "mean", "p50", "p95, nearest rank"],
            names: 1,
            rows: rows.collect(),
        }
    }

    fn verdicts(&self) -> Table {
        let known = self.cells.iter().filter(|cell| cell.verdict.curve.n > 0);
        let rows = known.map(|cell| {
            let verdict = &cell.verdict;
            let interval = verdict.interval.map_or_else(nothing, |(low, high)| {
                let share = format!("{:.0}–{:.0} %", (1.0 - high) * 100.0, (1.0 - low) * 100.0);
                Figure { text: share, sort: Some(1.0 - high) }
            });
            vec![
                text(cell.name.clone()),
                number(verdict.curve.n as u64),
                number(verdict.censored as u64),
                time(verdict.p50.unwrap_or(f64::INFINITY)),
                interval,
                time(verdict.p95.unwrap_or(f64::INFINITY)),
            ]
        });
        Table {
            title: "Time to a verdict",
            note: "Kaplan-Meier: what was given up on counts as longer than it was given, what failed as endless; neither is left \
                   out. The interval (95 %, Greenwood) is that of the share done by the median.",
            columns: &["cell", "n", "without", "p50", "done by then", "p95"],
            names: 1,
            rows: rows.collect(),
        }
    }

    fn spreads(&self) -> Table {
        let mut rows = Vec::new();
        for cell in &self.cells {
            let spread = &cell.spread;
            let parts = [
                ("create + ready, by task", spread.start_by_task),
                ("to a verdict, by task", spread.total_by_task),
                // One trial in each sandbox says nothing about what is within one.
                ("to a verdict, by sandbox", spread.total_by_sandbox),
            ];
            for (what, components) in parts {
                let Some(components) = components else { continue };
                rows.push(row(&cell.name, what, &components));
            }
        }
        Table {
            title: "Where the spread lies",
            note: "Components of variance (one-way random effects), as standard deviations: between groups, and within a group. \
                   By task, the rest lies between sandboxes that ran the same task; by sandbox, between the trials of one sandbox.",
            columns: &["cell", "times", "groups", "n", "between", "within", "share between"],
            names: 2,
            rows,
        }
    }
}

fn row(cell: &str, what: &str, components: &Components) -> Vec<Figure> {
    let share = components.between_share();
    vec![
        text(cell),
        text(what),
        number(components.groups),
        number(components.n),
        time(components.between.sqrt()),
        time(components.within.sqrt()),
        share.map_or_else(nothing, |share| Figure { text: format!("{:.0} %", share * 100.0), sort: Some(share) }),
    ]
}
