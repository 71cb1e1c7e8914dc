//! A journal as a stream of events.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use sandbox_bench_core::evidence::{Event, JournalLine};
use serde::Deserialize;

use super::version::Versioned;
use super::{EvidenceError, Lines};

/// One complete line of a journal.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// A line that this program understands.
    Known(Box<JournalLine>),
    /// A line of a newer minor schema version that it does not. Nothing can be concluded from it.
    Unknown {
        /// Number of the line.
        seq: u64,
        /// Name of the event.
        event: String,
    },
}

/// Reads a journal line by line, in memory bounded by its longest line. After an error it ends.
#[derive(Debug)]
pub struct JournalReader {
    path: PathBuf,
    lines: Lines<BufReader<File>>,
    /// True if the writer's minor version is newer than ours.
    newer: bool,
    ended: bool,
}

/// What every line has, in any version.
#[derive(Deserialize)]
struct Header {
    seq: u64,
    event: String,
    schema_version: Option<String>,
}

impl JournalReader {
    /// Reads the journal at `path`, from its first line.
    ///
    /// # Errors
    /// `Io`.
    pub fn open(path: &Path) -> Result<Self, EvidenceError> {
        let file = File::open(path).map_err(|e| EvidenceError::io(path, e))?;
        Ok(Self { path: path.to_owned(), lines: Lines::new(BufReader::new(file)), newer: false, ended: false })
    }

    /// Bytes of a torn last line, known when the end was reached. They are not read as a line.
    #[must_use]
    pub fn torn(&self) -> u64 {
        self.lines.torn()
    }

    fn read(&mut self) -> Result<Option<Entry>, EvidenceError> {
        let number = self.lines.count() + 1;
        let damaged = |why: String| EvidenceError::Line { path: self.path.clone(), line: number, why };
        let line = match self.lines.next_line() {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(damaged(error.to_string())),
            Err(error) => return Err(EvidenceError::io(&self.path, error)),
        };
        let (seq, entry) = match serde_json::from_slice::<JournalLine>(line) {
            Ok(line) => {
                if let Event::RunStarted { schema_version, .. } = &line.event {
                    self.newer |= Versioned::new(schema_version).check(&self.path)?;
                }
                (line.seq, Entry::Known(Box::new(line)))
            }
            Err(error) => {
                let header: Header = serde_json::from_slice(line).map_err(|e| damaged(e.to_string()))?;
                if let Some(version) = &header.schema_version {
                    self.newer |= Versioned::new(version).check(&self.path)?;
                }
                if !self.newer {
                    return Err(damaged(error.to_string()));
                }
                (header.seq, Entry::Unknown { seq: header.seq, event: header.event })
            }
        };
        if seq != number {
            return Err(damaged(format!("it carries the number {seq}: lines are missing or were changed")));
        }
        Ok(Some(entry))
    }
}

impl Iterator for JournalReader {
    type Item = Result<Entry, EvidenceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.read().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}
