//! A journal as a stream of events.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sandbox_bench_core::evidence::{Attempt, Event, JournalLine};
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
        let (seq, entry) = match line_of(line) {
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

/// The end of an attempt: lines that hold most of a journal, in a form that needs no second look at their fields.
#[derive(Deserialize)]
struct Finished {
    seq: u64,
    at: Timestamp,
    #[serde(rename = "event")]
    _event: AttemptFinished,
    attempt: Box<Attempt>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum AttemptFinished {
    AttemptFinished,
}

/// A line as it is. Reading a [`JournalLine`] makes a tree of its fields before it knows what they are; where the start of the line
/// tells that, they are read at once.
fn line_of(line: &[u8]) -> serde_json::Result<JournalLine> {
    const NAME: &[u8] = b"\"attempt_finished\"";
    let start = line.get(..line.len().min(128)).unwrap_or_default();
    if start.windows(NAME.len()).any(|part| part == NAME)
        && let Ok(Finished { seq, at, attempt, .. }) = serde_json::from_slice(line)
    {
        return Ok(JournalLine { seq, at, event: Event::AttemptFinished { attempt } });
    }
    serde_json::from_slice(line)
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
