//! Reading a run directory back.
//!
//! Journals are read as streams, line by line. A torn last line, left by a killed process or a full disk, is no error.
//! Any other damage is one, with its line. Evidence of a newer minor schema version is read as far as it is
//! understood; a newer major version is refused.

mod journal;
mod lines;
mod version;

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sandbox_bench_core::evidence::{Manifest, SCHEMA_VERSION};
use serde::Deserialize;

pub use journal::{Entry, JournalReader};
pub use lines::Lines;

/// Name of the manifest in a run directory.
pub const MANIFEST: &str = "manifest.json";

/// Name of the journal in a run directory.
pub const JOURNAL: &str = "journal.jsonl";

/// Why a run directory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// There is no manifest.
    #[error("{0} is no run directory: it has no {MANIFEST}")]
    NoRun(PathBuf),
    /// The manifest is not one.
    #[error("{path} is damaged: {why}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The directory is that of another kind of run.
    #[error("{path} is that of a {kind} run, which has no tasks: see it with `sandbox-bench report`")]
    OtherKind {
        /// The manifest.
        path: PathBuf,
        /// The kind, such as `fixture`.
        kind: String,
    },
    /// A derived file is not one.
    #[error("{path} is damaged: {why}; `sandbox-bench report` rebuilds it")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A line of the journal is not one.
    #[error("{path} is damaged at line {line}: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// The evidence was written by a version that this one does not understand.
    #[error(
        "{path} has schema version {found}, this program reads {SCHEMA_VERSION} and older: \
         use the sandbox-bench that wrote it, or a newer one"
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: String,
    },
}

impl EvidenceError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

/// What the manifest of another kind of run has.
#[derive(Deserialize)]
struct Kind {
    kind: String,
}

/// A run directory.
#[derive(Debug)]
pub struct Run {
    dir: PathBuf,
    /// What was asked.
    pub manifest: Manifest,
}

impl Run {
    /// Opens the run in `dir` by reading its manifest.
    ///
    /// # Errors
    /// `NoRun`, `Manifest`, `OtherKind`, `TooNew`, `Io`.
    pub fn open(dir: &Path) -> Result<Self, EvidenceError> {
        let path = dir.join(MANIFEST);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(EvidenceError::NoRun(dir.to_owned())),
            Err(error) => return Err(EvidenceError::io(&path, error)),
        };
        let damaged = |error: serde_json::Error| EvidenceError::Manifest { path: path.clone(), why: error.to_string() };
        // The version first: a manifest of another major version may lack what this one asks for.
        let version: version::Versioned = serde_json::from_slice(&text).map_err(damaged)?;
        version.check(&path)?;
        if let Ok(Kind { kind }) = serde_json::from_slice(&text) {
            return Err(EvidenceError::OtherKind { path, kind });
        }
        Ok(Self { dir: dir.to_owned(), manifest: serde_json::from_slice(&text).map_err(damaged)? })
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The journal, from its first line. A run that was killed before its first line has an empty one.
    ///
    /// # Errors
    /// `Io`.
    pub fn journal(&self) -> Result<JournalReader, EvidenceError> {
        JournalReader::open(&self.dir.join(JOURNAL))
    }
}
