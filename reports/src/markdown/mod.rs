//! The report as Markdown pages, for places where HTML is not shown: a pull request, a terminal, a wiki.

mod pages;
mod text;

use crate::report::Report;

/// Each page with the name of its file; the first one links to the others.
#[must_use]
pub(crate) fn pages(report: &Report) -> Vec<(&'static str, String)> {
    vec![
        ("overview.md", pages::overview(report)),
        ("comparison.md", pages::comparison(report)),
        ("tasks.md", pages::tasks(report)),
        ("backends.md", pages::backends(report)),
        ("failures.md", pages::failures(report)),
        ("cleanup.md", pages::cleanup(report)),
        ("gaps.md", pages::gaps(report)),
    ]
}
