//! Why something cannot be imported.

use std::io;
use std::path::{Path, PathBuf};

/// Why something cannot be imported. Nothing was written then.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// A pipe, a device, or the like.
    #[error("{0} is no regular file: it is read twice, so save it as one first")]
    NotAFile(PathBuf),
    /// The file ends too early.
    #[error("{path} is cut short: {why}; get the whole file")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where.
        why: String,
    },
    /// The file is no JSON, or not of the expected form.
    #[error("{path} cannot be read: {why}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// One part of the file is larger than any sensible one.
    #[error("{path} has a part of more than {limit} bytes near byte {at}: it is no result file, or not a sound one")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Where the part is.
        at: u64,
        /// The limit.
        limit: u64,
    },
    /// One result makes no sense.
    #[error("{path}, result {number}: {why}")]
    Result {
        /// The file.
        path: PathBuf,
        /// The result's number, from 1.
        number: u64,
        /// What is wrong.
        why: String,
    },
    /// The file is nothing that is known here.
    #[error(
        "{0} is nothing that can be imported: a result, matrix or prewarm file of code-sandbox-bench, or a job directory \
         of Harbor (with result.json and a directory for each trial)"
    )]
    Unknown(PathBuf),
    /// The file does not tell its condition, nor does its name.
    #[error("{0} tells no mode, and neither does its name: give --condition cold or --condition warm")]
    NoCondition(PathBuf),
    /// The sources make no one run.
    #[error("these make no one run, as their {what} differ: {one} and {other}; import them apart")]
    Mixed {
        /// In what they differ.
        what: String,
        /// As the first has it.
        one: String,
        /// As another has it.
        other: String,
    },
    /// A file changed between being checked and being imported.
    #[error("{0} changed while it was read; repeat when it is complete")]
    Changed(PathBuf),
    /// There are no results in any of the files.
    #[error("there is no result in {0}")]
    Nothing(String),
    /// The same files were imported before.
    #[error("these files were imported before: {0}; see it with `sandbox-bench report`, or remove it first")]
    Exists(PathBuf),
}

impl ImportError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    pub(super) fn invalid(path: &Path, why: impl ToString) -> Self {
        Self::Invalid { path: path.to_owned(), why: why.to_string() }
    }
}
