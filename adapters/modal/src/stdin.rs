//! Bytes for a command's stdin.
//!
//! The router counts them. So an answer that is lost costs nothing: it is asked how many arrived, and the rest is sent.

use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use sandbox_bench_core::Call;
use tonic::{Code, Status};

use crate::error::passing;
use crate::live::Failures;
use crate::output::Over;
use crate::router::Router;

/// Most bytes of one request.
const PIECE: usize = 1 << 20;

/// What became of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fed {
    /// The command was given all of them, and their end.
    All,
    /// It ended, or closed its stdin, before that.
    Refused,
    /// They could not be read on the host.
    Broken,
}

/// Gives the command `exec` all `chunks`, then the end of its stdin.
///
/// # Errors
/// Why it cannot be given more.
pub(crate) async fn feed(
    router: &Router,
    call: &Call,
    exec: &str,
    chunks: impl Stream<Item = io::Result<Bytes>>,
) -> Result<Fed, Over> {
    let mut chunks = std::pin::pin!(chunks);
    let mut feeder = Feeder { router, call, exec, offset: 0, failures: Failures::default() };
    let mut gathered = BytesMut::new();
    loop {
        let chunk = chunks.next().await;
        match chunk {
            Some(Ok(chunk)) => gathered.extend_from_slice(&chunk),
            Some(Err(_)) => return Ok(Fed::Broken),
            None => return feeder.send(gathered.freeze(), true).await,
        }
        while gathered.len() >= PIECE {
            let piece = gathered.split_to(PIECE).freeze();
            match feeder.send(piece, false).await? {
                Fed::All => {}
                ended => return Ok(ended),
            }
        }
    }
}

struct Feeder<'a> {
    router: &'a Router,
    call: &'a Call,
    exec: &'a str,
    /// Bytes that arrived.
    offset: u64,
    failures: Failures,
}

impl Feeder<'_> {
    async fn send(&mut self, mut piece: Bytes, last: bool) -> Result<Fed, Over> {
        loop {
            match self.router.write(self.call, self.exec, (self.offset, piece.clone(), last)).await {
                Ok(Ok(())) => {
                    self.failures.forget();
                    self.offset += piece.len() as u64;
                    return Ok(Fed::All);
                }
                Ok(Err(status)) if ended(&status) => return Ok(Fed::Refused),
                Ok(Err(status)) => self.failures.note(self.router, self.call, &status).await?,
                Err(error) => self.failures.other(self.router, self.call, &error).await?,
            }
            match self.router.written(self.call, self.exec).await {
                Ok(Ok(seen)) => match rest(self.offset, &piece, seen.num_bytes_written) {
                    Some(rest) if seen.closed && rest == 0 && last => return Ok(Fed::All),
                    _ if seen.closed => return Ok(Fed::Refused),
                    Some(rest) => {
                        let arrived = piece.len() - rest;
                        piece.advance(arrived);
                        self.offset += arrived as u64;
                    }
                    None => return Err(Over::TransportLost),
                },
                Ok(Err(status)) if ended(&status) => return Ok(Fed::Refused),
                Ok(Err(status)) => self.failures.note(self.router, self.call, &status).await?,
                Err(error) => self.failures.other(self.router, self.call, &error).await?,
            }
        }
    }
}

/// How many bytes of a piece that begins at `offset` have not arrived, if `arrived` did in all; none if that cannot be.
fn rest(offset: u64, piece: &Bytes, arrived: u64) -> Option<usize> {
    let of_piece = usize::try_from(arrived.checked_sub(offset)?).ok()?;
    piece.len().checked_sub(of_piece)
}

/// True if the command takes no more: it is a conflict to write to what is closed.
fn ended(status: &Status) -> bool {
    !passing(status) && matches!(status.code(), Code::FailedPrecondition | Code::Aborted | Code::NotFound)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_byte_is_sent_twice_and_none_is_left_out(offset in 0u64..1 << 40, length in 0usize..100, arrived in 0u64..1 << 40) {
            let piece = Bytes::from(vec![0; length]);
            match rest(offset, &piece, arrived) {
                Some(rest) => prop_assert_eq!(offset + (length - rest) as u64, arrived),
                None => prop_assert!(arrived < offset || arrived > offset + length as u64),
            }
        }
    }
}
