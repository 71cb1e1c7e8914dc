//! Output of processes: kept, and read from any offset by any number of readers.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use tonic::Status;

use super::Result;
use crate::Log;

/// Bytes kept of each stream of a process; the rest is left out, and the output says so.
const CAPACITY: usize = 256 << 20;
/// Bytes of one message.
const PIECE: usize = 64 << 10;

/// The two streams of a process.
#[derive(Clone)]
pub(super) struct Output {
    pub(super) stdout: Arc<Log>,
    pub(super) stderr: Arc<Log>,
}

impl Default for Output {
    fn default() -> Output {
        Output { stdout: Arc::new(Log::new(CAPACITY)), stderr: Arc::new(Log::new(CAPACITY)) }
    }
}

impl Output {
    pub(super) fn close(&self) {
        self.stdout.close();
        self.stderr.close();
    }
}

/// How a reader's stream breaks before its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Break {
    /// After so many bytes.
    pub(super) after: Option<u64>,
    /// With this.
    pub(super) status: Option<Status>,
}

/// What was written from `offset` on, in pieces that are never empty, until the end. `ending` may turn the end into an
/// error.
pub(super) fn read(
    log: Arc<Log>,
    offset: u64,
    broken: Break,
    ending: impl Fn() -> Result<()> + Send + 'static,
) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
    let state = Reader { log, next: usize::try_from(offset).unwrap_or(usize::MAX), pending: Bytes::new(), over: false };
    stream::unfold((state, broken, ending), |(mut reader, mut broken, ending)| async move {
        if reader.over {
            return None;
        }
        if broken.after == Some(0) {
            reader.over = true;
            let status = broken.status.take().unwrap_or_else(|| Status::unavailable("The stream was cut."));
            return Some((Err(status), (reader, broken, ending)));
        }
        let Some(mut piece) = reader.piece().await else {
            reader.over = true;
            return ending().err().map(|status| (Err(status), (reader, broken, ending)));
        };
        if let Some(left) = &mut broken.after {
            piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= piece.len() as u64;
        }
        Some((Ok(piece), (reader, broken, ending)))
    })
}

struct Reader {
    log: Arc<Log>,
    next: usize,
    pending: Bytes,
    over: bool,
}

impl Reader {
    /// The next piece; none at the end.
    async fn piece(&mut self) -> Option<Bytes> {
        if self.pending.is_empty() {
            self.pending = self.log.after(self.next).await.into();
            self.next = self.next.saturating_add(self.pending.len());
        }
        let piece = self.pending.split_to(PIECE.min(self.pending.len()));
        (!piece.is_empty()).then_some(piece)
    }
}
