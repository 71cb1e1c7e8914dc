//! The output of one command, on its way into the store.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};

use sandbox_bench_core::completion::StreamReport;
use sandbox_bench_core::{ExecReport, OutputRef, OutputSink, Stream};

use super::OutputStore;
use super::redact::Window;
use super::spool::Spool;

/// Length of a tail in bytes.
pub const TAIL_BYTES: usize = 4 << 10;

/// Takes stdout and stderr of one command: the bytes into the store, their last [`TAIL_BYTES`] into memory.
///
/// Writing goes to the page cache and never fails: the first error of the disk is kept, and told by
/// [`StreamCapture::finish`].
pub struct StreamCapture {
    store: OutputStore,
    name: String,
    media_type: String,
    limit: u64,
    stdout: Mutex<Half>,
    stderr: Mutex<Half>,
}

/// What was kept of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedStream {
    /// The stored object; none for an empty stream.
    pub output: Option<OutputRef>,
    /// The last [`TAIL_BYTES`]. Bytes that are not UTF-8 are replaced.
    pub tail: String,
}

/// One stream.
struct Half {
    /// The object, or why the disk did not take it.
    spool: io::Result<Spool>,
    tail: VecDeque<u8>,
    /// True if bytes were dropped at the limit.
    cut: bool,
    /// Overwrites secrets.
    window: Window,
}

impl StreamCapture {
    pub(super) fn new(store: &OutputStore, name: &str, media_type: &str, limit: u64) -> Self {
        let half = || Mutex::new(Half::new(store));
        Self {
            store: store.clone(),
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            limit,
            stdout: half(),
            stderr: half(),
        }
    }

    /// Puts both objects in place; returns stdout and stderr. `report` is what the backend said of the command, if it
    /// ran: what it says is missing marks the object as truncated.
    ///
    /// # Errors
    /// The first error of writing either object.
    pub fn finish(self, report: Option<&ExecReport>) -> io::Result<(CapturedStream, CapturedStream)> {
        let Self { store, name, media_type, limit, stdout, stderr } = self;
        let captured = |half: Mutex<Half>, stream: &str, report: Option<&StreamReport>| -> io::Result<CapturedStream> {
            let mut half = half.into_inner().unwrap_or_else(PoisonError::into_inner);
            let rest = half.window.finish();
            half.take(&rest, limit);
            let tail = String::from_utf8_lossy(&Vec::from(half.tail)).into_owned();
            let spool = half.spool?;
            if spool.size() == 0 {
                return Ok(CapturedStream { output: None, tail });
            }
            let (digest, size) = spool.finish()?;
            let mut output = store.reference(&format!("{name}.{stream}"), None, digest, size, &media_type);
            output.truncated = half.cut || report.is_some_and(StreamReport::truncated);
            Ok(CapturedStream { output: Some(output), tail })
        };
        let stdout = captured(stdout, "stdout", report.map(|r| &r.stdout))?;
        let stderr = captured(stderr, "stderr", report.map(|r| &r.stderr))?;
        Ok((stdout, stderr))
    }
}

impl OutputSink for StreamCapture {
    fn write(&self, stream: Stream, chunk: &[u8]) {
        let half = match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        };
        let mut half = half.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = half.window.push(chunk);
        half.take(&ready, self.limit);
    }
}

impl Half {
    fn new(store: &OutputStore) -> Self {
        let window = Window::new(store.secrets().clone());
        Self { spool: Ok(Spool::new(store)), tail: VecDeque::new(), cut: false, window }
    }

    fn take(&mut self, chunk: &[u8], limit: u64) {
        let last = chunk.get(chunk.len().saturating_sub(TAIL_BYTES)..).unwrap_or_default();
        let excess = (self.tail.len() + last.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        self.tail.extend(last);

        let Ok(spool) = &mut self.spool else { return };
        let room = usize::try_from(limit.saturating_sub(spool.size())).unwrap_or(usize::MAX);
        let kept = chunk.get(..room).unwrap_or(chunk);
        self.cut |= kept.len() < chunk.len();
        if let Err(error) = spool.write(kept) {
            self.spool = Err(error);
        }
    }
}
