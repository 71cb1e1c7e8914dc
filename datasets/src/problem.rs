//! What is wrong with a data set, in words that name the file, the task, the fault and the way out.

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How bad a [`Problem`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The task loads, but something about it deserves a look.
    Warning,
    /// The task cannot be used.
    Error,
}

/// One fault of a data set. Its display is one line: `file: task: what; remedy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The file or directory.
    pub file: String,
    /// The task's id, or its position in the file (`line 7`) when the id is not known.
    pub task: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
    /// How bad it is.
    pub severity: Severity,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, &self.file)?;
        if let Some(task) = &self.task {
            f.write_str(": ")?;
            write_line(f, task)?;
        }
        f.write_str(": ")?;
        write_line(f, &self.what)?;
        f.write_str("; ")?;
        write_line(f, &self.remedy)
    }
}

impl std::error::Error for Problem {}

/// Writes text from a data set so that it stays on one line and cannot drive a terminal.
fn write_line(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for c in text.chars() {
        if c.is_control() {
            write!(f, "{}", c.escape_default())?;
        } else {
            f.write_char(c)?;
        }
    }
    Ok(())
}

/// A data set cannot be opened at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// Nothing is there.
    #[error("no data set at {} (give a file or directory, or the name `smoke` for the bundled tasks)", path.display())]
    NotFound {
        /// What was asked for.
        path: PathBuf,
    },
    /// It is there but cannot be read.
    #[error("cannot read {}: {source} (check the permissions)", path.display())]
    Unreadable {
        /// What was asked for.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is not a data set in any known form.
    #[error("{} is not a data set: {why}", path.display())]
    Unrecognised {
        /// What was asked for.
        path: PathBuf,
        /// What is missing, and what to do.
        why: String,
    },
    /// The bundled data set cannot be unpacked.
    #[error("cannot unpack the bundled data set: {0}")]
    Bundled(String),
}

/// A fault whose place is not known yet: what is wrong, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) what: String,
    pub(crate) remedy: String,
}

impl Fault {
    pub(crate) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }

    /// A fault of the host's file system.
    pub(crate) fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "it disappeared while it was read; start again",
            io::ErrorKind::PermissionDenied => "check the permissions",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space",
            _ => "check the file system",
        };
        Self::new(format!("cannot {doing} {}: {error}", path.display()), remedy)
    }

    /// Says where the fault is.
    pub(crate) fn at(self, file: &Path, task: Option<&str>) -> Problem {
        Problem {
            file: file.display().to_string(),
            task: task.map(str::to_owned),
            what: self.what,
            remedy: self.remedy,
            severity: Severity::Error,
        }
    }
}

/// The start of a value, for messages: at most 60 characters.
pub(crate) fn excerpt(text: &str) -> String {
    let mut out: String = text.chars().take(60).collect();
    if out.len() < text.len() {
        out.push('…');
    }
    format!("{out:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_whatever_the_data_says() {
        let problem =
            Fault::new("bad name \"a\nb\u{1b}[31m\"", "rename it").at(Path::new("x/rows.jsonl"), Some("line 2"));
        let line = problem.to_string();
        assert_eq!(line, "x/rows.jsonl: line 2: bad name \"a\\nb\\u{1b}[31m\"; rename it");
    }

    #[test]
    fn an_excerpt_is_short() {
        assert_eq!(excerpt("short"), "\"short\"");
        assert!(excerpt(&"é".repeat(10_000)).chars().count() < 70);
    }
}
