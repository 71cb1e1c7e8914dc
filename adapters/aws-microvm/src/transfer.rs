//! Inputs into a MicroVM and files out of it.
//!
//! What is sent is one archive that the runner unpacks as root: in one request, or, if it is large, in pieces, each with its
//! digest and offset, so that nothing is sent again that has arrived. What comes out is an archive whose last member proves
//! that it is whole.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use reqwest::{Method, Response};
use sandbox_bench_core::{Call, Downloaded, Error, ErrorKind, Input, Result, UploadProof, Uploaded};
use sandbox_bench_kit::archive;
use sandbox_bench_kit::http::Refusal;
use sandbox_bench_kit::wait::{bounded, winding_up};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::program::hex;
use crate::vm::{self, Request, Vm};

/// Most bytes of one request.
const PIECE: u64 = 8 << 20;
/// Where pieces are put together: every image of ours has it, and no artifact holds it.
const INCOMING: &str = "/opt/sandbox-bench/incoming";
const TIDY_LIMIT: Duration = Duration::from_secs(5);
/// How often a file that broke off is asked for again.
const TRIES: u32 = 3;
/// The member that ends what the runner sends.
const END: &str = ".sandbox-tar-end";
/// That member and the end of the archive, in bytes.
const BLOCK: u64 = 512;
const CLOSING: u64 = 2 * BLOCK;

/// Places all inputs.
pub(crate) async fn upload(vm: &Vm, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
    for input in inputs {
        archive::relative(&input.entry.destination)?;
    }
    if inputs.is_empty() {
        return Ok(Uploaded { bytes: 0, proof: UploadProof::Acknowledged });
    }
    let inputs = inputs.to_vec();
    let (packed, size) = on_thread(call, move || pack(&inputs)).await?;
    call.meter.sent(size);
    let what = format!("MicroVM {}: upload", vm.id);
    let put = Request::new(Method::PUT, &["v1", "tar"]).query("dest", "/");
    if size <= PIECE {
        let (_, bytes) = read(call, packed, 0, size).await?;
        let put = put.header("x-content-sha256", hex(&Sha256::digest(&bytes))).body(bytes);
        vm.json::<serde_json::Value>(call, &what, &put).await?;
    } else {
        let path = send(vm, call, &what, packed, size).await?;
        let unpacked = vm.json::<serde_json::Value>(call, &what, &put.query("from", &path)).await;
        tidy(vm, call, &path).await;
        unpacked?;
    }
    Ok(Uploaded { bytes: size, proof: UploadProof::Digest })
}

/// Places a file that only root can read, and returns its path.
pub(crate) async fn place(vm: &Vm, call: &Call, content: Bytes) -> Result<String> {
    let what = format!("MicroVM {}: stdin", vm.id);
    let size = content.len() as u64;
    call.meter.sent(size);
    let file = on_thread(call, move || {
        let mut file = tempfile::tempfile().map_err(on_host)?;
        file.write_all(&content).map_err(on_host)?;
        Ok(file)
    });
    send(vm, call, &what, file.await?, size).await
}

fn on_host(error: io::Error) -> Error {
    Error::invalid("what is to be sent cannot be kept on the host").because(error)
}

async fn on_thread<T: Send + 'static>(call: &Call, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = bounded(call, "packing", tokio::task::spawn_blocking(work)).await?;
    done.unwrap_or_else(|e| Err(Error::new(ErrorKind::Failed, "packing failed").because(e)))
}

/// The inputs as one archive on the host's disk, and its size.
fn pack(inputs: &[Input]) -> Result<(File, u64)> {
    let mut builder = tar::Builder::new(io::BufWriter::new(tempfile::tempfile().map_err(on_host)?));
    archive::write_inputs(&mut builder, inputs)?;
    let mut file = builder.into_inner().and_then(|writer| Ok(writer.into_inner()?)).map_err(on_host)?;
    let size = file.stream_position().map_err(on_host)?;
    Ok((file, size))
}

/// Reads a piece of a file.
async fn read(call: &Call, mut file: File, offset: u64, length: u64) -> Result<(File, Bytes)> {
    on_thread(call, move || {
        file.seek(SeekFrom::Start(offset)).map_err(on_host)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        file.read_exact(&mut bytes).map_err(on_host)?;
        Ok((file, bytes.into()))
    })
    .await
}

/// Sends a file piece by piece; returns its path.
async fn send(vm: &Vm, call: &Call, what: &str, mut file: File, size: u64) -> Result<String> {
    let path = format!("{INCOMING}/{}", Uuid::now_v7().simple());
    let mut offset = 0;
    while offset < size || size == 0 {
        let (back, bytes) = read(call, file, offset, PIECE.min(size - offset)).await?;
        file = back;
        let end = offset + bytes.len() as u64;
        let put = Request::new(Method::PUT, &["v1", "files"])
            .query("path", &path)
            .query("mode", "0600")
            .query("mkdirs", "1")
            .query("append_at", offset)
            .header("x-content-sha256", hex(&Sha256::digest(&bytes)))
            .body(bytes);
        match vm.answer(call, what, &put).await? {
            Ok(_) => {}
            // It had arrived, only the answer had not.
            Err(refusal) if has(&refusal) == Some(end) => {}
            Err(refusal) => return Err(vm::refused(what, &refusal)),
        }
        offset = end;
        if size == 0 {
            break;
        }
    }
    Ok(path)
}

/// The size that a refused file has.
fn has(refusal: &Refusal) -> Option<u64> {
    refusal.json()?.get("error")?.get("size")?.as_u64()
}

async fn tidy(vm: &Vm, call: &Call, path: &str) {
    let request = Request::new(Method::DELETE, &["v1", "files"]).query("path", path);
    if let Err(error) = vm.answer(&winding_up(call, TIDY_LIMIT), "tidying up", &request).await {
        tracing::debug!(id = vm.id, %error, "an archive stays in the MicroVM");
    }
}

/// Streams `from` into the host file `to`, which is not there if it does not become complete.
pub(crate) async fn download(vm: &Vm, call: &Call, from: &str, (to, limit): (&Path, u64)) -> Result<Downloaded> {
    let done = fetch(vm, call, from, (to, limit)).await;
    if done.is_err() {
        // Best effort: the error at hand says more than a failure to clean up.
        let _ = tokio::fs::remove_file(to).await;
    }
    done
}

async fn fetch(vm: &Vm, call: &Call, from: &str, (to, limit): (&Path, u64)) -> Result<Downloaded> {
    let what = format!("MicroVM {}: download of {from}", vm.id);
    let path = format!("/{}", archive::relative(from)?.display());
    let request = Request::new(Method::GET, &["v1", "tar"]).query("path", &path);
    let received = receive(vm, call, &what, &request, (to, limit.saturating_add(BLOCK))).await?;
    let file = to.to_path_buf();
    let bytes = on_thread(call, move || without_end(&file, received.bytes)).await?;
    Ok(Downloaded { bytes })
}

/// Receives an archive into a host file, again from its beginning if the connection breaks.
pub(crate) async fn receive(
    vm: &Vm,
    call: &Call,
    what: &str,
    request: &Request,
    (to, limit): (&Path, u64),
) -> Result<Downloaded> {
    let mut tries = 0;
    loop {
        tries += 1;
        let answer: Response = vm.ask(call, what, request).await?.map_err(|refusal| vm::refused(what, &refusal))?;
        let cut = |e: reqwest::Error| {
            Error::new(ErrorKind::Unavailable, format!("{what}: the connection failed")).because(e.without_url())
        };
        match archive::receive(call, what, answer.bytes_stream().map_err(cut), (to, limit)).await {
            Err(error) if tries < TRIES && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Transport) => {
                tracing::debug!(id = vm.id, %error, "a download begins anew");
                call.meter.retried();
            }
            done => return done,
        }
    }
}

/// Takes the runner's last member off an archive; returns how long it is then.
fn without_end(path: &Path, bytes: u64) -> Result<u64> {
    let cut = || Error::new(ErrorKind::Unavailable, "a download was cut");
    let at = bytes.checked_sub(BLOCK + CLOSING).ok_or_else(cut)?;
    let mut file = File::options().read(true).write(true).open(path).map_err(on_host)?;
    file.seek(SeekFrom::Start(at)).map_err(on_host)?;
    let mut header = tar::Header::new_gnu();
    file.read_exact(header.as_mut_bytes()).map_err(on_host)?;
    if header.path().ok().as_deref() != Some(Path::new(END)) {
        return Err(cut());
    }
    file.set_len(at).and_then(|()| file.set_len(at + CLOSING)).map_err(on_host)?;
    Ok(at + CLOSING)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn archive(end: bool) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for name in std::iter::once("file").chain(end.then_some(END)) {
            let mut header = tar::Header::new_gnu();
            header.set_size(0);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, io::empty()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn an_archive_without_its_end_is_not_taken_for_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tar");
        let whole = archive(true);
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(without_end(&path, whole.len() as u64).unwrap(), archive(false).len() as u64);
        assert_eq!(std::fs::read(&path).unwrap(), archive(false));
        for cut in [archive(false), whole[..whole.len() - 512].to_vec(), Vec::new()] {
            std::fs::write(&path, &cut).unwrap();
            assert_eq!(*without_end(&path, cut.len() as u64).unwrap_err().kind(), ErrorKind::Unavailable);
        }
    }
}
