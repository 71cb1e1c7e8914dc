//! A stream of bytes into a host file.

use std::io;
use std::path::Path;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use sandbox_bench_core::{Call, Downloaded, Error, ErrorKind, Result};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::wait::bounded;

/// Writes `chunks` into the host file `to`, at most `limit` bytes, by the call's deadline. After any error there is no
/// such file.
///
/// # Errors
/// The first error of the stream; `InvalidRequest` if there are more bytes or the file cannot be written; `Transport` if
/// there are none.
pub async fn receive(
    call: &Call,
    what: &str,
    chunks: impl Stream<Item = Result<Bytes>>,
    (to, limit): (&Path, u64),
) -> Result<Downloaded> {
    let done = bounded(call, what, write(call, what, chunks, (to, limit))).await.and_then(|written| written);
    if done.is_err() {
        // Best effort: the error at hand says more than a failure to clean up.
        let _ = tokio::fs::remove_file(to).await;
    }
    done
}

async fn write(
    call: &Call,
    what: &str,
    chunks: impl Stream<Item = Result<Bytes>>,
    (to, limit): (&Path, u64),
) -> Result<Downloaded> {
    let on_host = |e: io::Error| Error::invalid(format!("cannot write {}", to.display())).because(e);
    let mut chunks = std::pin::pin!(chunks);
    let mut file = None;
    let mut bytes = 0u64;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        let file = match &mut file {
            Some(file) => file,
            None => file.insert(File::create(to).await.map_err(on_host)?),
        };
        bytes += chunk.len() as u64;
        call.meter.received(chunk.len() as u64);
        if bytes > limit {
            return Err(Error::invalid(format!("{what}: more than the limit of {limit} bytes")));
        }
        file.write_all(&chunk).await.map_err(on_host)?;
    }
    match &mut file {
        Some(file) => file.flush().await.map_err(on_host)?,
        None => return Err(Error::new(ErrorKind::Transport, format!("{what}: nothing was sent"))),
    }
    Ok(Downloaded { bytes })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::stream;
    use sandbox_bench_core::{Grants, Tag};

    use super::*;

    fn call() -> Call {
        Call::new(Tag::new("run", "unit"), Duration::from_secs(5), Arc::new(Grants::default()))
    }

    #[tokio::test]
    async fn what_does_not_become_complete_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("file");
        let chunk = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
        let whole = receive(&call(), "x", stream::iter([chunk("ab"), chunk("c")]), (&to, 3)).await.unwrap();
        assert_eq!((whole.bytes, std::fs::read(&to).unwrap()), (3, b"abc".to_vec()));

        let lost = || Err(Error::new(ErrorKind::Transport, "lost"));
        for (chunks, kind) in [
            (vec![chunk("ab"), lost()], ErrorKind::Transport),
            (vec![chunk("ab"), chunk("cd")], ErrorKind::InvalidRequest),
            (vec![], ErrorKind::Transport),
        ] {
            let error = receive(&call(), "x", stream::iter(chunks), (&to, 3)).await.unwrap_err();
            assert_eq!((error.kind(), to.exists()), (&kind, false));
        }
    }
}
