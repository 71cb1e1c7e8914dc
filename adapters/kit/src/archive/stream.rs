//! A tar archive, written on a blocking thread and sent as a stream in bounded memory.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use futures_util::Stream;
use sandbox_bench_core::{Error, Meter, Result};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Size of the chunks that are sent, and how many of them may wait.
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 8;

/// The writing side: it ends by itself when the stream is dropped.
pub struct TarTask {
    thread: JoinHandle<Result<()>>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    sent: AtomicU64,
    cut: AtomicBool,
}

/// Starts writing an archive with `write`. The stream ends with an error if `write` fails, so that the receiver never
/// takes half an archive for a whole one.
pub fn tar(
    meter: Arc<Meter>,
    write: impl FnOnce(&mut tar::Builder<Chunks>) -> Result<()> + Send + 'static,
) -> (TarTask, impl Stream<Item = io::Result<Bytes>> + Send + 'static) {
    stream(meter, move |chunks| {
        let mut builder = tar::Builder::new(chunks);
        write(&mut builder)?;
        builder.into_inner().map_err(end)
    })
}

/// As [`tar()`], for an archive that is wrapped in something, such as a compression: `write` puts that around the chunks,
/// and returns them when all is written.
pub fn stream(
    meter: Arc<Meter>,
    write: impl FnOnce(Chunks) -> Result<Chunks> + Send + 'static,
) -> (TarTask, impl Stream<Item = io::Result<Bytes>> + Send + 'static) {
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let state = Arc::<State>::default();
    let chunks = Chunks { sender: sender.clone(), state: state.clone(), meter, buffer: Vec::with_capacity(CHUNK) };
    let thread = tokio::task::spawn_blocking(move || {
        let written = write(chunks).and_then(|mut chunks| chunks.flush().map_err(end));
        if let Err(error) = &written {
            // The receiver may be gone, which is as good.
            let _ = sender.blocking_send(Err(io::Error::other(error.to_string())));
        }
        written
    });
    let stream =
        futures_util::stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
    (TarTask { thread, state }, stream)
}

fn end(error: io::Error) -> Error {
    Error::invalid("cannot end the archive").because(error)
}

impl TarTask {
    /// Bytes sent, once the stream is over.
    ///
    /// # Errors
    /// What `write` failed with, if it was not the receiver that had enough.
    pub async fn finish(self) -> Result<u64> {
        let written = self.thread.await.unwrap_or_else(|e| Err(Error::invalid("writing an archive failed").because(e)));
        if self.state.cut.load(Relaxed) { Ok(()) } else { written }.map(|()| self.state.sent.load(Relaxed))
    }
}

/// Where the archive is written to: cuts it into chunks and sends them.
pub struct Chunks {
    sender: mpsc::Sender<io::Result<Bytes>>,
    state: Arc<State>,
    meter: Arc<Meter>,
    buffer: Vec<u8>,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        let taken = bytes.len().min(CHUNK - self.buffer.len());
        self.buffer.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = Bytes::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK)));
        self.meter.sent(chunk.len() as u64);
        self.state.sent.fetch_add(chunk.len() as u64, Relaxed);
        self.sender.blocking_send(Ok(chunk)).map_err(|_| {
            self.state.cut.store(true, Relaxed);
            io::Error::from(io::ErrorKind::BrokenPipe)
        })
    }
}

/// A header for something that belongs to root.
pub fn header(kind: tar::EntryType, mode: u32, size: u64, mtime: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode & 0o7777);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header.set_mtime(mtime);
    header
}

/// Appends a member with as many bytes of `reader` as the header says.
pub fn append<W: Write>(
    builder: &mut tar::Builder<W>,
    mut header: tar::Header,
    path: &Path,
    reader: impl io::Read,
) -> io::Result<()> {
    let left = header.size()?;
    builder.append_data(&mut header, path, Exact { reader, left })
}

/// Yields exactly `left` bytes, else fails: an archive member must be as long as its header says.
struct Exact<R> {
    reader: R,
    left: u64,
}

impl<R: io::Read> io::Read for Exact<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if want == 0 {
            return Ok(0);
        }
        let n = self.reader.read(buffer.get_mut(..want).unwrap_or_default())?;
        if n == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter while it was read"));
        }
        self.left -= n as u64;
        Ok(n)
    }
}
