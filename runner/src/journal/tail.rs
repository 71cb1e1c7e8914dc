//! Where an earlier writer stopped.

use std::fs::File;
use std::io::{self, BufReader};

use sandbox_bench_reports::evidence::Lines;
use serde::Deserialize;

/// The end of the complete lines of a journal.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// Bytes up to and with the last newline.
    pub(super) length: u64,
    /// Number of the last line; 0 if there is none.
    pub(super) seq: u64,
}

/// Finds the end of the complete lines.
pub(super) fn find(file: &File) -> io::Result<End> {
    #[derive(Deserialize)]
    struct Numbered {
        seq: u64,
    }
    let mut lines = Lines::new(BufReader::new(file));
    let mut last = Vec::new();
    while let Some(line) = lines.next_line()? {
        last.clear();
        last.extend_from_slice(line);
    }
    if last.is_empty() && lines.count() == 0 {
        return Ok(End::default());
    }
    match serde_json::from_slice(&last) {
        Ok(Numbered { seq }) if seq == lines.count() => Ok(End { length: lines.end(), seq }),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("line {} is damaged: it is not journal line {0}", lines.count()),
        )),
    }
}
