//! The one thread that writes the journal.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use sandbox_bench_core::evidence::{Event, JournalLine};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::GROUP_DELAY;
use super::tail::End;

/// Most lines written, and made durable, at once.
const BATCH: usize = 256;

/// What handles ask of the writer.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "all requests but the last are lines: a box would save nothing")]
pub(super) enum Request {
    /// Write a line.
    Line(Line),
    /// Sync, close the file, answer, and end.
    Close(oneshot::Sender<()>),
}

/// A line to be written.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) at: Timestamp,
    pub(super) event: Event,
    /// Answered with the line's number when it is durable.
    pub(super) durable: Option<oneshot::Sender<io::Result<u64>>>,
}

/// The failure that ended a journal. [`io::Error`] cannot be cloned, and every later caller has to be told.
#[derive(Debug)]
pub(super) struct Failure {
    kind: io::ErrorKind,
    message: String,
}

impl Failure {
    pub(super) fn error(&self) -> io::Error {
        io::Error::new(self.kind, self.message.clone())
    }
}

/// Owns the file.
pub(super) struct Writer {
    file: File,
    path: PathBuf,
    end: End,
    /// When the lines that are written but not durable have to be.
    sync_by: Option<Instant>,
    failure: Arc<OnceLock<Failure>>,
}

impl Writer {
    /// A writer that goes on at `end`, which must be the end of `file`.
    pub(super) fn new(file: File, path: PathBuf, end: End) -> Self {
        Self { file, path, end, sync_by: None, failure: Arc::default() }
    }

    /// Where a failure will be told.
    pub(super) fn failure(&self) -> Arc<OnceLock<Failure>> {
        Arc::clone(&self.failure)
    }

    /// Serves `requests` in a thread of its own: file operations block, and must not stop the caller's tasks.
    pub(super) fn spawn(self, requests: mpsc::Receiver<Request>) -> io::Result<()> {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        std::thread::Builder::new().name("journal".into()).spawn(move || clock.block_on(self.run(requests)))?;
        Ok(())
    }

    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let received = requests.recv_many(&mut batch, BATCH);
            let count = match self.sync_by {
                None => received.await,
                Some(deadline) => match timeout_at(deadline, received).await {
                    Ok(count) => count,
                    Err(_) => {
                        self.sync();
                        continue;
                    }
                },
            };
            let closing = self.serve(&mut batch);
            if count == 0 || closing.is_some() {
                self.sync();
                // The file, and with it the lock, must be gone when the one who closes goes on; and nobody may send more.
                drop(self);
                drop(requests);
                if let Some(done) = closing {
                    let _ = done.send(());
                }
                return;
            }
        }
    }

    /// Writes the lines of a batch and answers those who wait for theirs. Returns whom to tell of the end, if a handle
    /// asked for it; what came after that is dropped, which tells its sender.
    fn serve(&mut self, batch: &mut Vec<Request>) -> Option<oneshot::Sender<()>> {
        let mut buffer = Vec::new();
        let mut waiting = Vec::new();
        let mut closing = None;
        let mut seq = self.end.seq;
        for request in batch.drain(..) {
            match request {
                Request::Close(done) => closing = Some(done),
                Request::Line(_) if closing.is_some() => {}
                Request::Line(Line { at, event, durable }) => {
                    seq += 1;
                    self.encode(&mut buffer, &JournalLine { seq, at, event });
                    waiting.extend(durable.map(|durable| (seq, durable)));
                }
            }
        }
        self.write(&buffer, seq);
        if !waiting.is_empty() || self.sync_by.is_some_and(|deadline| deadline <= Instant::now()) {
            self.sync();
        }
        for (seq, durable) in waiting {
            // Nobody listens if the caller gave up waiting; the line is there all the same.
            let _ = durable.send(self.failure.get().map_or(Ok(seq), |failure| Err(failure.error())));
        }
        closing
    }

    fn encode(&self, buffer: &mut Vec<u8>, line: &JournalLine) {
        match serde_json::to_writer(&mut *buffer, line) {
            Ok(()) => buffer.push(b'\n'),
            Err(error) => self.fail("cannot encode a line of", &error.into()),
        }
    }

    /// Writes whole lines. If the disk takes only a part, what is torn is cut off again.
    fn write(&mut self, lines: &[u8], seq: u64) {
        if lines.is_empty() || self.failure.get().is_some() {
            return;
        }
        let mut rest = lines;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return self.cut(lines, rest, &io::ErrorKind::WriteZero.into()),
                Ok(n) => rest = rest.get(n..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.cut(lines, rest, &error),
            }
        }
        self.end = End { length: self.end.length + lines.len() as u64, seq };
        self.sync_by.get_or_insert_with(|| Instant::now() + GROUP_DELAY);
    }

    /// Gives up after a part of `lines` was written: keeps the complete ones, removes the torn one.
    fn cut(&mut self, lines: &[u8], unwritten: &[u8], error: &io::Error) {
        let written = lines.get(..lines.len() - unwritten.len()).unwrap_or_default();
        let complete = written.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        // If even this fails, readers and `reopen` still know a torn line by its missing newline.
        let _ = self.file.set_len(self.end.length + complete as u64);
        let _ = self.file.sync_data();
        self.fail("cannot write", error);
    }

    fn sync(&mut self) {
        if self.sync_by.take().is_some()
            && let Err(error) = self.file.sync_data()
        {
            self.fail("cannot sync", &error);
        }
    }

    fn fail(&self, what: &str, error: &io::Error) {
        let message = format!("{what} {}: {error}; nothing more is recorded in it", self.path.display());
        // Only the first failure counts: the later ones follow from it.
        let _ = self.failure.set(Failure { kind: error.kind(), message });
    }
}
