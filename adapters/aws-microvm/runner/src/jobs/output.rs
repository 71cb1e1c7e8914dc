//! One stream of a command, bounded on disk and addressed by the offset of each byte in all that was written.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

const BUFFER: usize = 64 << 10;

/// Which part survives when there is more than may be kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Keep {
    /// The last bytes.
    #[default]
    Tail,
    /// The first bytes.
    Head,
}

/// What was written of one stream.
#[derive(Debug)]
pub(crate) struct Output {
    ring: Mutex<Ring>,
    /// Tells of every change.
    changes: watch::Sender<()>,
}

#[derive(Debug)]
struct Ring {
    file: File,
    capacity: u64,
    keep: Keep,
    total: u64,
    closed: bool,
}

/// A piece of a stream, as the protocol has it.
#[derive(Debug, Serialize)]
pub(crate) struct Piece {
    total_bytes: u64,
    start_offset: u64,
    pub(crate) offset: u64,
    pub(crate) data_b64: String,
    truncated: bool,
    pub(crate) eof: bool,
    /// Where the next piece begins.
    #[serde(skip)]
    pub(crate) next: u64,
}

impl Output {
    /// A new stream that is kept in the file `path`.
    pub(crate) fn new(path: &Path, capacity: u64, keep: Keep, changes: watch::Sender<()>) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self { ring: Mutex::new(Ring { file, capacity, keep, total: 0, closed: false }), changes })
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all that a pipe brings, on the calling thread, until nobody can write to it any more. After [`Output::close`]
    /// the rest is thrown away, so that whoever still writes is neither held up nor ended by it.
    pub(crate) fn drain(self: Arc<Self>, mut pipe: impl Read) {
        let mut buffer = vec![0; BUFFER];
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    let written = self.ring().push(buffer.get(..count).unwrap_or_default());
                    if let Err(error) = written {
                        // The bytes are counted, and the client sees that they are missing.
                        eprintln!("sandbox-runner: output of a command cannot be kept: {error}");
                    }
                    self.changes.send_replace(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.close();
    }

    /// Ends the stream; tells whether somebody could still have written to it.
    pub(crate) fn close(&self) -> bool {
        let open = !std::mem::replace(&mut self.ring().closed, true);
        self.changes.send_replace(());
        open
    }

    pub(crate) fn closed(&self) -> bool {
        self.ring().closed
    }

    /// Whether there are bytes at or after `offset`.
    pub(crate) fn has_bytes(&self, offset: u64) -> bool {
        self.ring().kept().1 > offset
    }

    /// At most `limit` bytes from `offset` on; if these were dropped, from the first that was kept.
    pub(crate) fn piece(&self, offset: u64, limit: u64) -> io::Result<Piece> {
        let ring = self.ring();
        let (start, end) = ring.kept();
        let from = offset.clamp(start, end);
        let to = end.min(from.saturating_add(limit));
        let bytes = ring.read(from, to)?;
        Ok(Piece {
            total_bytes: ring.total,
            start_offset: start,
            offset: from,
            data_b64: STANDARD.encode(bytes),
            truncated: from > offset || (to == end && end < ring.total),
            eof: to == end && ring.closed,
            next: to,
        })
    }
}

impl Ring {
    /// Offsets of the first byte that is kept, and after the last.
    fn kept(&self) -> (u64, u64) {
        match self.keep {
            Keep::Tail => (self.total.saturating_sub(self.capacity), self.total),
            Keep::Head => (0, self.total.min(self.capacity)),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let at = self.total;
        self.total += bytes.len() as u64;
        match self.keep {
            Keep::Head => {
                let room = usize::try_from(self.capacity.saturating_sub(at)).unwrap_or(usize::MAX);
                self.file.write_all_at(bytes.get(..room.min(bytes.len())).unwrap_or_default(), at)
            }
            Keep::Tail => {
                let excess = bytes.len().saturating_sub(usize::try_from(self.capacity).unwrap_or(usize::MAX));
                self.write_round(bytes.get(excess..).unwrap_or_default(), at + excess as u64)
            }
        }
    }

    fn write_round(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let place = at % self.capacity;
        let room = usize::try_from(self.capacity - place).unwrap_or(usize::MAX);
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.file.write_all_at(first, place)?;
        self.file.write_all_at(rest, 0)
    }

    fn read(&self, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(0)];
        match self.keep {
            Keep::Head => self.file.read_exact_at(&mut bytes, from)?,
            Keep::Tail => {
                let place = from % self.capacity;
                let room = usize::try_from(self.capacity - place).unwrap_or(usize::MAX);
                let at = room.min(bytes.len());
                let (first, rest) = bytes.split_at_mut(at);
                self.file.read_exact_at(first, place)?;
                self.file.read_exact_at(rest, 0)?;
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn output(capacity: u64, keep: Keep, chunks: &[&[u8]]) -> Output {
        let dir = tempfile::tempdir().unwrap();
        let output = Output::new(&dir.path().join("x"), capacity, keep, watch::Sender::new(())).unwrap();
        for chunk in chunks {
            output.ring().push(chunk).unwrap();
        }
        output
    }

    fn bytes(piece: &Piece) -> String {
        String::from_utf8(STANDARD.decode(&piece.data_b64).unwrap()).unwrap()
    }

    #[test]
    fn a_tail_keeps_the_last_bytes_and_their_offsets() {
        let all = output(10, Keep::Tail, &[b"0123", b"456789", b"abc"]);
        let piece = all.piece(0, 100).unwrap();
        assert_eq!((piece.offset, piece.start_offset, piece.total_bytes, piece.truncated), (3, 3, 13, true));
        assert_eq!(bytes(&piece), "3456789abc");
        let piece = all.piece(7, 4).unwrap();
        assert_eq!((bytes(&piece).as_str(), piece.next, piece.truncated), ("789a", 11, false));
        let huge = output(4, Keep::Tail, &[b"x", b"0123456789", b"z"]);
        assert_eq!(bytes(&huge.piece(0, 100).unwrap()), "789z");
        assert_eq!(bytes(&huge.piece(999, 100).unwrap()), "");
    }

    #[test]
    fn a_head_keeps_the_first_bytes_and_says_that_more_was_written() {
        let all = output(5, Keep::Head, &[b"0123", b"4567"]);
        let piece = all.piece(0, 3).unwrap();
        assert_eq!((bytes(&piece).as_str(), piece.truncated, piece.eof), ("012", false, false));
        all.close();
        let piece = all.piece(3, 100).unwrap();
        assert_eq!((bytes(&piece).as_str(), piece.truncated, piece.eof, piece.total_bytes), ("34", true, true, 8));
    }

    #[test]
    fn what_comes_after_the_end_is_thrown_away() {
        let all = output(10, Keep::Tail, &[b"ab"]);
        assert!(all.close());
        all.ring().push(b"cd").unwrap();
        assert!(!all.close(), "it was closed already");
        assert_eq!(all.piece(0, 10).unwrap().total_bytes, 2);
    }
}
