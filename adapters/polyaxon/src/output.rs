//! The files that hold a command's output, read as they grow.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::{ACCEPT, HeaderMap};
use sandbox_bench_core::{Call, Error, ErrorKind, Result, Stream};
use sandbox_bench_kit::guest::Streams;
use sandbox_bench_kit::http::{Effect, body};

use crate::api::accepted;
use crate::gateway::Gateway;

/// Most bytes asked for at once; the daemon may send fewer.
const PIECE: usize = 1 << 20;
/// Most pieces taken in one turn, so that a flood of output keeps nothing else waiting.
const PIECES: usize = 8;
/// Limit for one piece while the command runs.
const PIECE_LIMIT: Duration = Duration::from_secs(10);

/// One piece of a file.
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    /// Whether the file ends here, as of now.
    pub(crate) end: bool,
}

/// Reads at most `length` bytes of the file `path` from `offset` on.
///
/// # Errors
/// `NotFound`; `Failed` if the daemon's account of the offsets makes no sense.
pub(crate) async fn read(gateway: &Gateway, call: &Call, path: &str, (offset, length): (u64, usize)) -> Result<Piece> {
    let what = gateway.what("read of a file");
    let request = gateway.request(Method::GET, &["fs", "read"]).header(ACCEPT, "application/octet-stream").query(&[
        ("path", path),
        ("offset", &offset.to_string()),
        ("length", &length.to_string()),
    ]);
    let answer = accepted(call, &what, Effect::Idempotent, request).await?;
    let (next, eof) = (header(answer.headers(), "x-polyaxon-next-offset"), header(answer.headers(), "x-polyaxon-eof"));
    let bytes = body(call, &what, Effect::Idempotent, answer, length).await?;
    let reached = offset + bytes.len() as u64;
    if next.is_some_and(|next| next.parse() != Ok(reached)) {
        return Err(Error::new(
            ErrorKind::Failed,
            format!("{what}: the next offset does not follow from what was sent"),
        ));
    }
    Ok(Piece { end: eof.as_deref() == Some("true") || bytes.is_empty(), bytes })
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.trim().to_ascii_lowercase())
}

/// The two files of one command.
pub(crate) struct Output<'a> {
    gateway: &'a Gateway,
    dir: String,
    offsets: [u64; 2],
}

impl<'a> Output<'a> {
    /// The files in `dir`, of which nothing was read yet.
    pub(crate) fn new(gateway: &'a Gateway, dir: String) -> Self {
        Self { gateway, dir, offsets: [0, 0] }
    }

    /// Takes what there is of both, but not without bound.
    ///
    /// # Errors
    /// As [`read`], but a file that is not there yet holds nothing yet.
    pub(crate) async fn pull(&mut self, call: &Call, streams: &mut Streams<'_>) -> Result<()> {
        for _ in 0..PIECES {
            if self.step(&call.within(PIECE_LIMIT), streams).await? {
                break;
            }
        }
        Ok(())
    }

    /// Takes all there is, of a command that has ended. What processes in the background go on writing ends it too.
    ///
    /// # Errors
    /// As [`Output::pull`], and `DeadlineExceeded`.
    pub(crate) async fn drain(&mut self, call: &Call, streams: &mut Streams<'_>) -> Result<()> {
        while streams.closed().is_none() {
            if self.step(call, streams).await? {
                break;
            }
        }
        Ok(())
    }

    /// Takes a piece of each; true if both files ended there.
    async fn step(&mut self, call: &Call, streams: &mut Streams<'_>) -> Result<bool> {
        let [out, err] = [("out", self.offsets[0]), ("err", self.offsets[1])]
            .map(|(name, offset)| (format!("{}/{name}", self.dir), offset));
        let (gateway, piece) = (self.gateway, |offset| (offset, PIECE));
        let (out, err) =
            tokio::join!(read(gateway, call, &out.0, piece(out.1)), read(gateway, call, &err.0, piece(err.1)));
        let mut both_end = true;
        for ((stream, piece), offset) in
            [(Stream::Stdout, out), (Stream::Stderr, err)].into_iter().zip(&mut self.offsets)
        {
            let piece = match piece {
                Err(e) if *e.kind() == ErrorKind::NotFound => continue,
                piece => piece?,
            };
            *offset += piece.bytes.len() as u64;
            call.meter.received(piece.bytes.len() as u64);
            streams.take(stream, &piece.bytes);
            both_end &= piece.end;
        }
        Ok(both_end)
    }

    /// Removes the files.
    ///
    /// # Errors
    /// The daemon's.
    pub(crate) async fn remove(&self, call: &Call) -> Result<()> {
        remove(self.gateway, call, &self.dir).await
    }
}

/// Removes a file or directory; one that is gone already is fine.
///
/// # Errors
/// The daemon's.
pub(crate) async fn remove(gateway: &Gateway, call: &Call, path: &str) -> Result<()> {
    let what = gateway.what("removal of a file of ours");
    let request = gateway.request(Method::DELETE, &["fs", "rm"]).query(&[("path", path), ("recursive", "true")]);
    match accepted(call, &what, Effect::Idempotent, request).await {
        Err(e) if *e.kind() == ErrorKind::NotFound => Ok(()),
        done => done.map(drop),
    }
}
