//! The lines of a journal file, whatever happened to its writer.
//!
//! A line counts when its newline is there. What follows the last newline is *torn*: the writer was killed or the disk
//! was full in the middle of it. Nothing was promised for it, and it is never read as a line.

use std::io::{self, BufRead, Read};

/// No line of ours comes near this; without it a damaged file could ask for any amount of memory.
const MAX_LINE: u64 = 64 << 20;

/// Reads the complete lines of a journal, one at a time, in memory bounded by the longest line.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    line: Vec<u8>,
    count: u64,
    end: u64,
    torn: u64,
}

impl<R: BufRead> Lines<R> {
    /// Reads from the start of a journal.
    pub fn new(reader: R) -> Self {
        Self { reader, line: Vec::new(), count: 0, end: 0, torn: 0 }
    }

    /// The next complete line, without its newline; none at the end.
    ///
    /// # Errors
    /// What reading fails with, and `InvalidData` for a line beyond any sensible length.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let read = self.reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut self.line)? as u64;
        match self.line.pop() {
            Some(b'\n') => {
                self.count += 1;
                self.end += read;
                Ok(Some(&self.line))
            }
            Some(_) if read == MAX_LINE => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "a line without an end: this is not a journal"))
            }
            _ => {
                self.torn = read;
                Ok(None)
            }
        }
    }

    /// How many lines were read.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The position after the last line read, in bytes.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of a torn last line; 0 before the end was reached.
    #[must_use]
    pub fn torn(&self) -> u64 {
        self.torn
    }
}
