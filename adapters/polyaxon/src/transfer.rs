//! Inputs into a sandbox and files out of it: archives that travel in pieces, packed and unpacked by its own `tar`.

use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use sandbox_bench_core::{Call, Downloaded, Error, ErrorKind, Input, Result, UploadProof, Uploaded};
use sandbox_bench_kit::archive;
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::{bounded, winding_up};
use uuid::Uuid;

use crate::api::accepted;
use crate::command::{PLACE, millis};
use crate::gateway::Gateway;
use crate::output;
use crate::wire::{ExecRequest, ExecResult};

const UNPACK: &str = include_str!("guest/unpack.sh");
const PACK: &str = include_str!("guest/pack.sh");
/// What the scripts exit with.
const NO_SUCH_PATH: i64 = 95;
const NO_FILE: i64 = 96;
const WRONG_SIZE: i64 = 97;
/// Most bytes asked for at once.
const PIECE: usize = 1 << 20;
/// Limit for removing what a failed transfer left.
const TIDY_LIMIT: Duration = Duration::from_secs(5);

/// Places all inputs.
pub(crate) async fn upload(gateway: &Gateway, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
    for input in inputs {
        archive::relative(&input.entry.destination)?;
    }
    if inputs.is_empty() {
        return Ok(Uploaded { bytes: 0, proof: UploadProof::Acknowledged });
    }
    gateway.ready(call).await?;
    let file = place();
    let done = send(gateway, call, inputs, &file).await;
    if done.is_err() {
        tidy(gateway, call, &file).await;
    }
    match done {
        Ok(bytes) => Ok(Uploaded { bytes, proof: UploadProof::Size }),
        Err(error) => Err(gateway.meaning(call, error).await),
    }
}

async fn send(gateway: &Gateway, call: &Call, inputs: &[Input], file: &str) -> Result<u64> {
    let inputs = inputs.to_vec();
    let (task, chunks) = archive::tar(call.meter.clone(), move |builder| archive::write_inputs(builder, &inputs));
    let pieces = gateway.api.config.chunk_kib.clamp(1, 16 << 10) as usize * 1024;
    let chunks = chunks.map_err(|e| Error::invalid("an archive could not be made").because(e));
    let mut chunks = Box::pin(whole(chunks, pieces));
    make_place(gateway, call).await?;
    let mut first = true;
    let mut written = Ok(());
    while let Some(piece) = chunks.next().await {
        written = match piece {
            Ok(piece) => write(gateway, call, file, (piece, first)).await,
            Err(error) => Err(error),
        };
        if written.is_err() {
            break;
        }
        first = false;
    }
    // What went wrong while the archive was written says more than the broken stream.
    let bytes = match written {
        Ok(()) => bounded(call, &gateway.what("upload"), task.finish()).await??,
        Err(error) => {
            // Whoever writes the archive ends when nobody reads it any more.
            drop(chunks);
            return Err(match task.finish().await {
                Err(own) => own,
                Ok(_) => error,
            });
        }
    };
    let what = gateway.what("upload");
    let result = tool(gateway, call, &what, (UNPACK, &[file, &bytes.to_string()])).await?;
    match result.exit_code {
        Some(0) => Ok(bytes),
        Some(NO_FILE | WRONG_SIZE) => Err(failure(&what, ErrorKind::Transport, &result)),
        Some(127) => Err(failure(&what, ErrorKind::Environment, &result).hint("the image needs tar and wc")),
        _ => Err(failure(&what, ErrorKind::InvalidRequest, &result)),
    }
}

/// Appends one piece to a file; the first one makes it.
async fn write(gateway: &Gateway, call: &Call, file: &str, (piece, first): (Bytes, bool)) -> Result<()> {
    let what = gateway.what("upload");
    let [create, append] = if first { ["true", "false"] } else { ["false", "true"] };
    let query = [("path", file), ("mode", "0600"), ("create", create), ("append", append)];
    let request = gateway.request(Method::POST, &["fs", "write"]).query(&query);
    let request = request.header(CONTENT_TYPE, "application/octet-stream").body(piece);
    // Doing all of it again is the same as doing it once: it begins with a new file.
    accepted(call, &what, Effect::Idempotent, request).await.map(drop)
}

async fn make_place(gateway: &Gateway, call: &Call) -> Result<()> {
    let body = serde_json::json!({ "path": PLACE, "parents": true, "mode": "0755" });
    let request = gateway.request(Method::POST, &["fs", "mkdir"]).json(&body);
    accepted(call, &gateway.what("upload"), Effect::Idempotent, request).await.map(drop)
}

/// Joins chunks to pieces of one size, but the last.
fn whole(
    chunks: impl Stream<Item = Result<Bytes>> + Send + 'static,
    size: usize,
) -> impl Stream<Item = Result<Bytes>> + Send {
    stream::try_unfold((Box::pin(chunks.fuse()), BytesMut::new()), move |(mut chunks, mut held)| async move {
        while held.len() < size {
            match chunks.next().await {
                Some(chunk) => held.extend_from_slice(&chunk?),
                None => break,
            }
        }
        let piece = held.split_to(held.len().min(size)).freeze();
        Ok((!piece.is_empty()).then_some((piece, (chunks, held))))
    })
}

/// Brings `from` into the host file `to`, which is removed again if it does not become complete.
pub(crate) async fn download(
    gateway: &Gateway,
    call: &Call,
    from: &str,
    (to, limit): (&Path, u64),
) -> Result<Downloaded> {
    let done = match archive::relative(from) {
        Ok(_) => fetch(gateway, call, from, (to, limit)).await,
        Err(refused) => Err(refused),
    };
    match done {
        Ok(done) => Ok(done),
        Err(error) => {
            // An older file is replaced or gone, never left to be taken for the new one.
            let _ = tokio::fs::remove_file(to).await;
            Err(gateway.meaning(call, error).await)
        }
    }
}

async fn fetch(gateway: &Gateway, call: &Call, from: &str, (to, limit): (&Path, u64)) -> Result<Downloaded> {
    gateway.ready(call).await?;
    let what = gateway.what(&format!("download of {from}"));
    let file = place();
    let packed = tool(gateway, call, &what, (PACK, &[&file, from, &limit.to_string()])).await;
    let done = match packed {
        Ok(result) => receive(gateway, call, &what, (&file, &result), (to, limit)).await,
        Err(error) => Err(error),
    };
    tidy(gateway, call, &file).await;
    done
}

async fn receive(
    gateway: &Gateway,
    call: &Call,
    what: &str,
    (file, packed): (&str, &ExecResult),
    (to, limit): (&Path, u64),
) -> Result<Downloaded> {
    let size: u64 = match packed.exit_code {
        Some(0) => packed
            .stdout
            .as_deref()
            .unwrap_or_default()
            .trim()
            .parse()
            .map_err(|_| Error::new(ErrorKind::Failed, format!("{what}: the size of the archive is not known")))?,
        Some(NO_SUCH_PATH) => {
            return Err(Error::new(ErrorKind::NotFound, format!("{what}: no such path in the sandbox")));
        }
        Some(WRONG_SIZE) => return Err(Error::invalid(format!("{what}: more than the limit of {limit} bytes"))),
        Some(127) => return Err(failure(what, ErrorKind::Environment, packed).hint("the image needs tar, head and wc")),
        _ => return Err(failure(what, ErrorKind::Failed, packed)),
    };
    let pieces = stream::try_unfold(0u64, |offset| async move {
        if offset >= size {
            return Ok(None);
        }
        let piece = output::read(gateway, call, file, (offset, PIECE)).await?;
        if piece.bytes.is_empty() {
            return Err(Error::new(ErrorKind::Transport, format!("{what}: it ended after {offset} of {size} bytes")));
        }
        let next = offset + piece.bytes.len() as u64;
        Ok(Some((piece.bytes, next)))
    });
    archive::receive(call, what, pieces, (to, limit)).await
}

/// A path of its own below the place of our files.
fn place() -> String {
    format!("{PLACE}/{}.tar", Uuid::now_v7().simple())
}

async fn tidy(gateway: &Gateway, call: &Call, file: &str) {
    if let Err(error) = output::remove(gateway, &winding_up(call, TIDY_LIMIT), file).await {
        tracing::debug!(%error, "a file of a transfer stays in the sandbox");
    }
}

/// Runs a script of ours with these arguments.
async fn tool(gateway: &Gateway, call: &Call, what: &str, (script, arguments): (&str, &[&str])) -> Result<ExecResult> {
    let command = ["/bin/sh", "-c", script, "sh"].iter().chain(arguments).map(|text| (*text).to_owned()).collect();
    let workdir = Some("/".to_owned());
    let request = ExecRequest { command, workdir, timeout_ms: millis(call.remaining()), ..ExecRequest::default() };
    let result = gateway.exec(call, what, &request).await?;
    match (result.timed_out, result.stdout_truncated) {
        (Some(true), _) => Err(Error::new(ErrorKind::DeadlineExceeded, format!("{what}: it ran out of time"))),
        (_, Some(true)) => Err(Error::new(ErrorKind::Failed, format!("{what}: its answer was cut"))),
        _ => Ok(result),
    }
}

/// The error of a script of ours, with what it said.
fn failure(what: &str, kind: ErrorKind, result: &ExecResult) -> Error {
    let said = [result.stdout.as_deref(), result.stderr.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    Error::new(kind, format!("{what}: {}", said.trim()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_have_one_size_and_nothing_is_lost(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20), size in 1usize..50,
        ) {
            let all = chunks.concat();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let pieces: Vec<Bytes> = runtime.block_on(async {
                let chunks = stream::iter(chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk))));
                whole(chunks, size).try_collect().await.unwrap()
            });
            prop_assert!(pieces.iter().rev().skip(1).all(|piece| piece.len() == size));
            prop_assert_eq!(pieces.concat(), all);
        }
    }
}
