//! The append-only journal of a run: `journal.jsonl` in the run directory.
//!
//! What it promises:
//!
//! * A line is durable when [`Journal::commit`] returns: it survives `kill -9` and the loss of power. Commits that are
//!   waiting at the same time share one `fdatasync`.
//! * A line given to [`Journal::append`] is written at once and durable within [`GROUP_DELAY`]. In between it survives
//!   the death of the process, but not the loss of power.
//! * Lines are in the order in which they were handed over, numbered from 1 without gaps, and never half written: a
//!   line that the disk did not take is cut off again.
//! * After a failed write nothing more is taken. Every later call reports that failure; none is swallowed.
//! * One writer at a time: the file is locked (`flock`) for as long as the journal is open, also across processes, and
//!   the lock ends with the process however it ends.

mod tail;
mod writer;

#[cfg(test)]
mod tests;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use sandbox_bench_core::evidence::Event;
use sandbox_bench_reports::evidence::JOURNAL;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use writer::{Failure, Line, Request, Writer};

/// How long a line given to [`Journal::append`] may wait for the disk.
pub const GROUP_DELAY: Duration = Duration::from_millis(100);

/// Lines that may wait for the writer; beyond that, callers wait.
const QUEUE: usize = 1024;

/// A disk that takes longer than this for one line is taken for broken.
const COMMIT_LIMIT: Duration = Duration::from_secs(60);

/// A handle to the journal of a run. Cheap to clone; all clones write to the same file, through one writer thread that
/// ends with the last of them.
#[derive(Debug, Clone)]
pub struct Journal {
    queue: mpsc::Sender<Request>,
    failure: Arc<OnceLock<Failure>>,
}

impl Journal {
    /// Starts the journal of a new run; the directory is made if it is not there.
    ///
    /// # Errors
    /// `AlreadyExists` if the run has a journal already, and what making the file fails with.
    pub fn create(run_dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(run_dir)?;
        let path = run_dir.join(JOURNAL);
        let file =
            File::options().append(true).create_new(true).open(&path).map_err(|e| about("cannot create", &path, &e))?;
        lock(&file, &path)?;
        // The file's name has to be as durable as its lines.
        File::open(run_dir)?.sync_all()?;
        Self::start(Writer::new(file, path, tail::End::default()))
    }

    /// Goes on with the journal of an earlier run: a torn last line is cut off, and numbering continues.
    ///
    /// # Errors
    /// `ResourceBusy` if the run is still alive, `InvalidData` if the last line is damaged, and what reading fails with.
    pub fn reopen(run_dir: &Path) -> io::Result<Self> {
        let path = run_dir.join(JOURNAL);
        let file = File::options().read(true).append(true).open(&path).map_err(|e| about("cannot open", &path, &e))?;
        lock(&file, &path)?;
        let end = tail::find(&file).map_err(|e| about("cannot continue", &path, &e))?;
        file.set_len(end.length)?;
        Self::start(Writer::new(file, path, end))
    }

    /// True if some process, this one included, has the journal open for writing: the run is alive.
    ///
    /// # Errors
    /// What opening the file fails with; `NotFound` if the directory holds no journal.
    pub fn in_use(run_dir: &Path) -> io::Result<bool> {
        let path = run_dir.join(JOURNAL);
        let file = File::open(&path).map_err(|e| about("cannot open", &path, &e))?;
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(about("cannot lock", &path, &error)),
        }
    }

    fn start(writer: Writer) -> io::Result<Self> {
        let (queue, requests) = mpsc::channel(QUEUE);
        let failure = writer.failure();
        writer.spawn(requests)?;
        Ok(Self { queue, failure })
    }

    /// Writes one event and returns the number of its line when it is durable.
    ///
    /// Dropping the future does not take the event back.
    ///
    /// # Errors
    /// The line is not known to be durable: the disk failed, now or earlier, or took longer than a minute, or the
    /// journal was closed.
    pub async fn commit(&self, event: Event) -> io::Result<u64> {
        let (durable, answer) = oneshot::channel();
        self.send(Request::Line(Line { at: Timestamp::now(), event, durable: Some(durable) })).await?;
        in_time(answer).await?.map_err(|_| self.ended())?
    }

    /// Hands over one event, to be durable within [`GROUP_DELAY`]. Waits only while the queue is full.
    ///
    /// # Errors
    /// The disk failed earlier, or the journal was closed. A failure that comes later is told to the next caller and to
    /// [`Journal::close`].
    pub async fn append(&self, event: Event) -> io::Result<()> {
        self.send(Request::Line(Line { at: Timestamp::now(), event, durable: None })).await
    }

    /// Makes everything handed over durable, and gives up the file and its lock. Other handles can write no more.
    ///
    /// # Errors
    /// The first failure of this journal, if there was one.
    pub async fn close(self) -> io::Result<()> {
        let (done, answer) = oneshot::channel();
        // A journal that another handle closed is no failure of its own: what matters is whether the disk ever failed.
        if in_time(self.queue.send(Request::Close(done))).await?.is_ok() {
            let _ = in_time(answer).await?;
        }
        self.failure.get().map_or(Ok(()), |failure| Err(failure.error()))
    }

    async fn send(&self, request: Request) -> io::Result<()> {
        if let Some(failure) = self.failure.get() {
            return Err(failure.error());
        }
        in_time(self.queue.send(request)).await?.map_err(|_| self.ended())
    }

    fn ended(&self) -> io::Error {
        self.failure.get().map_or_else(
            || io::Error::new(io::ErrorKind::BrokenPipe, "the journal was closed; this event is not recorded"),
            Failure::error,
        )
    }
}

/// Waits for the writer, but not without bound.
async fn in_time<T>(wait: impl Future<Output = T>) -> io::Result<T> {
    timeout(COMMIT_LIMIT, wait).await.map_err(|_| {
        let limit = COMMIT_LIMIT.as_secs();
        io::Error::new(io::ErrorKind::TimedOut, format!("the disk did not take a journal line within {limit} s"))
    })
}

/// Takes the file for this writer alone.
fn lock(file: &File, path: &Path) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("{} is being written by another process: the run is still alive", path.display()),
        )),
        Err(TryLockError::Error(error)) => Err(about("cannot lock", path, &error)),
    }
}

/// The error, saying what could not be done to which file.
fn about(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}
