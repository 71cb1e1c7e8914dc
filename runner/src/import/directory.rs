//! Writing the run directory: complete or not there.

use std::fs::{self, File, Permissions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sandbox_bench_core::OutputRef;
use sandbox_bench_core::evidence::{Attempt, Event, JournalLine, Manifest, SCHEMA_VERSION};
use sandbox_bench_reports::evidence::{JOURNAL, MANIFEST};
use sandbox_bench_reports::files::replace_json;
use tempfile::TempDir;

use super::ImportError;
use crate::outputs::OutputStore;

/// A run directory in the making, beside its place.
pub(super) struct RunDirectory {
    place: PathBuf,
    making: TempDir,
    journal: BufWriter<File>,
    outputs: OutputStore,
    seq: u64,
    at: Timestamp,
}

impl RunDirectory {
    /// Begins the directory of the run `run` below `results`. All lines of its journal carry the time `at`.
    pub(super) fn begin(results: &Path, run: &str, at: Timestamp) -> Result<Self, ImportError> {
        let place = results.join(run);
        if place.exists() {
            return Err(ImportError::Exists(place));
        }
        fs::create_dir_all(results).map_err(|error| ImportError::io(results, error))?;
        let making = tempfile::Builder::new()
            .prefix(".unfinished-import-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(results);
        let making = making.map_err(|error| ImportError::io(results, error))?;
        let open = || Ok((File::create(making.path().join(JOURNAL))?, OutputStore::open(making.path())?));
        let (journal, outputs) = open().map_err(|error| ImportError::io(&place, error))?;
        let mut directory = Self { place, making, journal: BufWriter::new(journal), outputs, seq: 0, at };
        directory.event(Event::RunStarted { run: run.to_owned(), schema_version: SCHEMA_VERSION.into() })?;
        Ok(directory)
    }

    /// Keeps bytes as an object.
    pub(super) fn keep(&self, name: &str, bytes: &[u8], media_type: &str) -> Result<OutputRef, ImportError> {
        self.outputs.bytes(name, None, bytes, media_type).map_err(|error| ImportError::io(&self.place, error))
    }

    /// Adds an event to the journal.
    pub(super) fn event(&mut self, event: Event) -> Result<(), ImportError> {
        self.seq += 1;
        let line = JournalLine { seq: self.seq, at: self.at, event };
        let written = serde_json::to_writer(&mut self.journal, &line).map_err(Into::into);
        let written = written.and_then(|()| self.journal.write_all(b"\n"));
        written.map_err(|error| ImportError::io(&self.place, error))
    }

    /// Adds an attempt.
    pub(super) fn attempt(&mut self, attempt: Attempt) -> Result<(), ImportError> {
        self.event(Event::AttemptFinished { attempt: Box::new(attempt) })
    }

    /// Ends the journal, and puts the directory in its place.
    pub(super) fn finish(mut self, manifest: &Manifest) -> Result<PathBuf, ImportError> {
        self.event(Event::RunFinished { interrupted: false })?;
        let place = self.place;
        let finish = || {
            self.journal.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_data()?;
            replace_json(&self.making.path().join(MANIFEST), manifest)?;
            fs::remove_dir(self.making.path().join("outputs/unfinished"))?;
            fs::rename(self.making.path(), &place)?;
            // Its old name is no longer there to be removed.
            let _ = self.making.keep();
            Ok(())
        };
        match finish() {
            Ok(()) => Ok(place),
            Err(error) => Err(ImportError::io(&place, error)),
        }
    }
}
