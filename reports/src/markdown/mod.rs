//! The report as Markdown pages, for places where HTML is not shown: a pull request, a terminal, a wiki.

mod pages;
mod text;

use crate::report::Report;

pub(crate) use text::{table, words};

/// The pages, in the order of [`MARKDOWN`](crate::report::MARKDOWN); the first one links to the others.
#[must_use]
pub(crate) fn pages(report: &Report) -> [String; crate::report::MARKDOWN.len()] {
    [
        pages::overview(report),
        pages::comparison(report),
        pages::times(report),
        pages::tasks(report),
        pages::backends(report),
        pages::failures(report),
        pages::cleanup(report),
        pages::gaps(report),
    ]
}
