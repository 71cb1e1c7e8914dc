//! The report of one or more runs: one HTML page and a set of Markdown pages, from the derived files of the runs.
//!
//! Equal evidence gives equal bytes: nothing here asks the clock. Attempts are read as a stream; kept are a few numbers
//! of each, beyond some megabytes in files without names beside the report, and all of [`LISTED`] attempts of either kind,
//! accepted and not. Memory and pages grow with the tasks and the cells, but not with the trials. Nothing is left out of a figure;
//! curves are drawn with some of their steps. Links are relative and lead to files that are there.

mod collect;
mod comparable;
mod curve;
mod findings;
mod gaps;
mod kept;
mod links;
mod model;
mod ramp;
mod saving;
mod spread;
mod timing;

#[cfg(test)]
mod tests;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::evidence::EvidenceError;
use crate::files::Replacement;
use crate::{html, markdown};

pub(crate) use comparable::{Comparable, Order};
pub(crate) use curve::{Curve, Verdicts};
pub(crate) use model::{
    AttemptView, CellView, CleanupLine, FailureMode, Report, RunView, TaskCell, TaskView, Tasks, cleanup_word,
};
pub(crate) use ramp::Ramp;
pub(crate) use saving::{Saving, median};
pub(crate) use timing::Table;

/// Name of the directory of a report within that of its run.
pub const DIRECTORY: &str = "report";

/// The HTML page of a report.
pub const PAGE: &str = "index.html";

/// Its Markdown pages, in the order in which they are read.
pub const MARKDOWN: [&str; 8] =
    ["overview.md", "comparison.md", "times.md", "tasks.md", "backends.md", "failures.md", "cleanup.md", "gaps.md"];

/// Attempts that a report lists one by one: so many accepted ones, and so many others.
pub const LISTED: usize = 500;

/// Writes the report of the runs in these directories to `directory`, which is made if it is not there. The derived
/// files of the runs must be up to date ([`write_derived`](crate::derived::write_derived)). Returns the HTML page.
///
/// # Errors
/// What is wrong with the evidence, and what writing fails with.
pub fn write_report(runs: &[PathBuf], directory: &Path) -> Result<PathBuf, EvidenceError> {
    fs::create_dir_all(directory).map_err(|error| EvidenceError::io(directory, error))?;
    let report = collect::collect(runs, directory)?;
    let write = |name: &str, text: &str| -> Result<PathBuf, EvidenceError> {
        let path = directory.join(name);
        let written = Replacement::new(&path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.commit()
        });
        written.map_err(|error| EvidenceError::io(&path, error)).map(|()| path)
    };
    for (name, text) in MARKDOWN.iter().zip(markdown::pages(&report)) {
        write(name, &text)?;
    }
    write(PAGE, &html::page(&report))
}
