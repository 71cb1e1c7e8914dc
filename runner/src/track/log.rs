//! `tracking.jsonl`: what of a run is published where. One line for each step that is done; a torn last line, left by a killed
//! process, counts for nothing, and the step is done again.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, BufReader, Seek as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use sandbox_bench_core::Digest;
use sandbox_bench_core::evidence::SCHEMA_VERSION;
use sandbox_bench_reports::evidence::Lines;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Its name in the run directory.
pub const LOG: &str = "tracking.jsonl";

/// One line of `tracking.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// When the step was done.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// The step.
    #[serde(flatten)]
    pub step: Step,
}

/// A step that is done. All but the first kind are about the tracked run that was opened last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "step")]
pub enum Step {
    /// There is a tracked run.
    Opened {
        /// Version of the evidence schemas.
        schema_version: String,
        /// The tracker.
        tracker: String,
        /// Where its runs are, without credentials.
        place: String,
        /// The id of the tracked run there.
        id: String,
    },
    /// What was asked, and what came of it, was sent.
    Described {
        /// Digest of what was sent.
        digest: Digest,
    },
    /// A series of values was sent.
    Series {
        /// Its name.
        name: String,
        /// Digest of the values.
        digest: Digest,
    },
    /// A file was sent.
    Uploaded {
        /// Its path in the run directory.
        path: String,
        /// Digest of its content.
        digest: Digest,
    },
    /// A file or directory was entered into the lineage.
    Linked {
        /// Its path in the run directory.
        path: String,
        /// Digest of the entry.
        digest: Digest,
    },
    /// The status was sent.
    Status {
        /// The status.
        status: String,
    },
}

/// What a tracked run has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// Its id.
    pub id: String,
    /// Digest of the description.
    pub described: Option<Digest>,
    /// Series, by name.
    pub series: BTreeMap<String, Digest>,
    /// Files, by path.
    pub files: BTreeMap<String, Digest>,
    /// Entries of the lineage, by path.
    pub links: BTreeMap<String, Digest>,
    /// The last status.
    pub status: Option<String>,
}

impl Done {
    fn add(&mut self, step: Step) {
        match step {
            Step::Opened { id, .. } if self.id == id => {}
            Step::Opened { id, .. } => *self = Self { id, ..Self::default() },
            Step::Described { digest } => self.described = Some(digest),
            Step::Series { name, digest } => drop(self.series.insert(name, digest)),
            Step::Uploaded { path, digest } => drop(self.files.insert(path, digest)),
            Step::Linked { path, digest } => drop(self.links.insert(path, digest)),
            Step::Status { status } => self.status = Some(status),
        }
    }
}

/// The log of a run, for one tracker. While it is open, no other process publishes this run.
#[derive(Debug)]
pub struct Log {
    file: File,
    /// What is done; none if nothing was opened at this place.
    pub done: Option<Done>,
}

impl Log {
    /// Opens the log of the run in `directory`, and reads what of it is published at `place`.
    ///
    /// # Errors
    /// It cannot be read or written, it is damaged, or another process publishes the run.
    pub fn open(directory: &Path, (tracker, place): (&str, &str)) -> anyhow::Result<Self> {
        let path = directory.join(LOG);
        let shown = path.display();
        let file = File::options().read(true).append(true).create(true).open(&path);
        let file = file.with_context(|| shown.to_string())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another process publishes {} at this moment", directory.display()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("cannot lock {shown}")),
        }
        let (mut done, mut here) = (BTreeMap::<(String, String), Done>::new(), None);
        let mut lines = Lines::new(BufReader::new(&file));
        let mut number = 0;
        while let Some(line) = lines.next_line().with_context(|| shown.to_string())? {
            number += 1;
            let damaged = || format!("{shown} is damaged at line {number}; remove it, and all is published again");
            let Entry { step, .. } = serde_json::from_slice(line).with_context(damaged)?;
            if let Step::Opened { tracker, place, .. } = &step {
                here = Some((tracker.clone(), place.clone()));
            }
            let Some(place) = &here else { bail!(damaged()) };
            done.entry(place.clone()).or_default().add(step);
        }
        let end = lines.end();
        // What follows the last newline is no line, and the next one must not continue it.
        file.set_len(end).with_context(|| shown.to_string())?;
        let mut log = Self { file, done: done.remove(&(tracker.to_owned(), place.to_owned())) };
        let elsewhere = here.is_some_and(|(t, p)| (t.as_str(), p.as_str()) != (tracker, place));
        if let Some(id) = log.done.as_ref().map(|done| done.id.clone()).filter(|_| elsewhere) {
            log.opened(tracker, place, &id).with_context(|| shown.to_string())?;
        }
        Ok(log)
    }

    /// Notes that the tracked run `id` is there.
    ///
    /// # Errors
    /// The disk failed.
    pub fn opened(&mut self, tracker: &str, place: &str, id: &str) -> io::Result<()> {
        let (tracker, place, id) = (tracker.to_owned(), place.to_owned(), id.to_owned());
        self.note(Step::Opened { schema_version: SCHEMA_VERSION.into(), tracker, place, id })?;
        self.file.sync_data()
    }

    /// Notes a step. Should the line be lost with the machine, the step is done again.
    ///
    /// # Errors
    /// The disk failed.
    pub fn note(&mut self, step: Step) -> io::Result<()> {
        let entry = Entry { at: Timestamp::now(), step };
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        self.file.seek(io::SeekFrom::End(0))?;
        self.file.write_all(&line)?;
        self.done.get_or_insert_default().add(entry.step);
        Ok(())
    }

    /// What is done so far.
    pub fn done(&mut self) -> &Done {
        self.done.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HERE: (&str, &str) = ("t", "https://here");

    fn uploaded(path: &str) -> Step {
        Step::Uploaded { path: path.into(), digest: Digest::of(path.as_bytes()) }
    }

    #[test]
    fn the_shipped_schema_is_up_to_date() {
        crate::schemas::check::<Entry>("tracking-line");
    }

    #[test]
    fn what_is_noted_is_known_afterwards_at_its_place_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = Log::open(directory.path(), HERE).unwrap();
        assert_eq!(log.done, None);
        log.opened(HERE.0, HERE.1, "one").unwrap();
        log.note(uploaded("a")).unwrap();
        let error = Log::open(directory.path(), HERE).unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
        drop(log);

        let mut elsewhere = Log::open(directory.path(), ("t", "https://there")).unwrap();
        assert_eq!(elsewhere.done, None);
        elsewhere.opened("t", "https://there", "two").unwrap();
        drop(elsewhere);

        let mut log = Log::open(directory.path(), HERE).unwrap();
        assert_eq!(log.done().files.keys().collect::<Vec<_>>(), ["a"]);
        log.note(uploaded("b")).unwrap();
        drop(log);
        let mut log = Log::open(directory.path(), HERE).unwrap();
        let done = log.done();
        assert_eq!((done.id.as_str(), done.files.len()), ("one", 2));
        // Another tracked run in its place has nothing.
        log.opened(HERE.0, HERE.1, "three").unwrap();
        let done = log.done();
        assert_eq!((done.id.as_str(), done.files.len()), ("three", 0));
    }

    #[test]
    fn a_torn_line_is_cut_off_and_a_damaged_one_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = Log::open(directory.path(), HERE).unwrap();
        log.opened(HERE.0, HERE.1, "one").unwrap();
        log.note(uploaded("a")).unwrap();
        drop(log);
        let path = directory.path().join(LOG);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], br#"{"at":"2026"#].concat()).unwrap();
        let mut log = Log::open(directory.path(), HERE).unwrap();
        log.note(uploaded("b")).unwrap();
        drop(log);
        assert_eq!(Log::open(directory.path(), HERE).unwrap().done().files.len(), 2);
        std::fs::write(&path, [&whole[..], b"{}\n"].concat()).unwrap();
        let error = Log::open(directory.path(), HERE).unwrap_err();
        assert!(error.to_string().contains("damaged at line 3"), "{error:#}");
    }
}
