//! A connection that can be made to break.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// How a connection is to break; shared between the connection and the requests on it.
#[derive(Clone, Default)]
pub(crate) struct Breakage {
    plan: Arc<Mutex<Plan>>,
    closed: CancellationToken,
}

#[derive(Default)]
struct Plan {
    /// Closing it discards what was not sent and sends RST.
    reset: bool,
    /// Writing fails after so many bytes more, once the head of an answer has gone out.
    cut: Option<Cut>,
}

struct Cut {
    head_sent: bool,
    left: usize,
}

impl Breakage {
    /// The connection closes now, with every request on it.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    /// Cancelled when the connection is to close.
    pub(crate) fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }

    /// When the connection closes, it closes with RST.
    pub(crate) fn reset_at_close(&self) {
        self.lock().reset = true;
    }

    /// The next write is let through, as the head of an answer is one write; then so many bytes more.
    pub(crate) fn cut_after_head(&self, bytes: u64) {
        let left = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.lock().cut = Some(Cut { head_sent: false, left });
    }

    fn lock(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of `wanted` bytes may go out now.
    fn allowed(&self, wanted: usize) -> io::Result<usize> {
        match &self.lock().cut {
            Some(cut) if cut.head_sent && cut.left == 0 => Err(io::ErrorKind::ConnectionAborted.into()),
            Some(cut) if cut.head_sent => Ok(wanted.min(cut.left)),
            _ => Ok(wanted),
        }
    }

    fn sent(&self, bytes: usize) {
        if let Some(cut) = &mut self.lock().cut {
            if cut.head_sent {
                cut.left = cut.left.saturating_sub(bytes);
            }
            cut.head_sent = true;
        }
    }
}

pub(crate) struct Wire {
    stream: TcpStream,
    breakage: Breakage,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, breakage: Breakage) -> Wire {
        Wire { stream, breakage }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.breakage.lock().reset {
            let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let allowed = self.breakage.allowed(bytes.len())?;
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes.get(..allowed).unwrap_or_default());
        if let Poll::Ready(Ok(count)) = written {
            self.breakage.sent(count);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
