//! Pieces of tables.

use maud::{Markup, html};

use crate::render::duration;
use crate::report::Table;
use crate::summary::{End, Outcome};

/// A column: its head, and whether it holds figures.
pub(super) type Column = (&'static str, bool);

/// A table that can be sorted by its heads.
pub(super) fn sortable(columns: &[Column], rows: &Markup) -> Markup {
    html! {
        div .wide { table .sort {
            thead { tr { @for (name, figures) in columns { th class=[figures.then_some("n")] scope="col" { (name) } } } }
            tbody { (rows) }
        } }
    }
}

/// A table of times.
pub(super) fn figures(table: &Table) -> Markup {
    let figures = |column: usize| column >= table.names;
    html! {
        div .wide { table .sort {
            thead { tr { @for (column, name) in table.columns.iter().enumerate() {
                th class=[figures(column).then_some("n")] scope="col" { (name) }
            } } }
            tbody { @for row in &table.rows { tr { @for (column, cell) in row.iter().enumerate() {
                @let sort = figures(column).then(|| cell.sort.map(|value| value.to_string()).unwrap_or_default());
                td class=(if figures(column) { "n" } else { "nowrap" }) data-v=[sort] { (cell.text) }
            } } } }
        } }
    }
}

/// A time, with microseconds to sort by.
pub(super) fn time(us: Option<f64>) -> Markup {
    match us {
        Some(us) if us.is_finite() => html! { td .n data-v=(format!("{us:.0}")) { (duration(us.round() as u64)) } },
        // Most attempts came to no end: longer than all that was seen.
        Some(_) => html! { td .n data-v="1e18" { "∞" } },
        None => html! { td .n data-v="" { "–" } },
    }
}

pub(super) fn count(n: u64, link: &str) -> Markup {
    html! { td .n data-v=(n) { @if n > 0 { a href=(link) { (n) } } @else { "0" } } }
}

pub(super) fn outcome(outcome: Outcome) -> Markup {
    let (class, word) = match outcome {
        Outcome::Accepted => ("good", "accepted"),
        Outcome::Rejected => ("bad", "rejected"),
        Outcome::Infrastructure => ("odd", "infrastructure"),
        Outcome::Cleanup => ("bad", "cleanup"),
        Outcome::Interrupted => ("odd", "interrupted"),
    };
    html! { span class=(format!("badge {class}")) { (word) } }
}

/// The class of how an attempt ended.
pub(super) fn end(end: End) -> &'static str {
    match end {
        End::Accepted => "good",
        End::Rejected => "bad",
        End::Failed(sandbox_bench_core::FailureClass::Unavailable) => "none",
        End::Failed(_) => "odd",
    }
}
