//! The attempts of runs as a stream of rows, and as tables for other programs.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use sandbox_bench_core::evidence::Attempt;
use serde::Deserialize;

use super::columns;
use super::parquet::TrialsParquet;
use super::{TRIALS, TrialRow};
use crate::cost::Cost;
use crate::evidence::{EvidenceError, Lines};

/// The rows of `trials.jsonl`, one at a time, each with the number of its line, from 1. After an error it ends.
#[derive(Debug)]
pub struct TrialRows {
    path: PathBuf,
    lines: Lines<BufReader<File>>,
    ended: bool,
}

impl TrialRows {
    /// Of the run in `directory`, whose derived files must be up to date.
    ///
    /// # Errors
    /// `Io`.
    pub fn open(directory: &Path) -> Result<Self, EvidenceError> {
        let path = directory.join(TRIALS);
        let file = File::open(&path).map_err(|error| EvidenceError::io(&path, error))?;
        Ok(Self { lines: Lines::new(BufReader::with_capacity(256 << 10, file)), path, ended: false })
    }

    fn read(&mut self) -> Result<Option<(u64, TrialRow)>, EvidenceError> {
        let line = self.lines.count() + 1;
        let Some(text) = self.lines.next_line().map_err(|error| EvidenceError::io(&self.path, error))? else {
            return Ok(None);
        };
        let damaged =
            |error: serde_json::Error| EvidenceError::Line { path: self.path.clone(), line, why: error.to_string() };
        // The fields of a row are those of an attempt and one more: looked at twice, for reading them in one go ("flatten") makes a
        // tree of everything first, which takes three times as long.
        let attempt: Attempt = serde_json::from_slice(text).map_err(damaged)?;
        let Costed { cost } = serde_json::from_slice(text).map_err(damaged)?;
        Ok(Some((line, TrialRow { attempt, cost })))
    }
}

/// What a row has beside its attempt.
#[derive(Deserialize)]
struct Costed {
    #[serde(default)]
    cost: Option<Cost>,
}

impl Iterator for TrialRows {
    type Item = Result<(u64, TrialRow), EvidenceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.read().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Why a table is not written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A run cannot be read.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// The table cannot be written.
    #[error("cannot write the table")]
    Write(#[from] io::Error),
}

/// Writes the attempts of these runs as CSV (RFC 4180), with the names of the columns first: those of `trials.parquet`.
///
/// # Errors
/// A run cannot be read, or `to` cannot be written.
pub fn write_csv(runs: &[PathBuf], to: impl Write) -> Result<(), TableError> {
    let columns = columns::all();
    let mut table = csv::Writer::from_writer(to);
    let told = |error: csv::Error| match error.into_kind() {
        csv::ErrorKind::Io(error) => TableError::Write(error),
        other => TableError::Write(io::Error::other(format!("{other:?}"))),
    };
    table.write_record(columns.iter().map(columns::Column::name)).map_err(told)?;
    for run in runs {
        for row in TrialRows::open(run)? {
            let (_, row) = row?;
            table.write_record(columns.iter().map(|column| column.text(&row))).map_err(told)?;
        }
    }
    Ok(table.flush()?)
}

/// Writes the attempts of these runs as one Parquet file.
///
/// # Errors
/// A run cannot be read, or `to` cannot be written.
pub fn write_parquet(runs: &[PathBuf], to: impl Write + Send) -> Result<(), TableError> {
    let mut table = TrialsParquet::new(to)?;
    for run in runs {
        for row in TrialRows::open(run)? {
            table.push(row?.1)?;
        }
    }
    Ok(table.finish()?.flush()?)
}
