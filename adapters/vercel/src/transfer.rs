//! Inputs into a sandbox and files out of it.
//!
//! The service unpacks one compressed archive and reads one file, both as the sandbox's own user. So inputs travel as an
//! archive inside of that archive and are unpacked by root; what comes out is packed by root and then read.

use std::fs::File;
use std::io::{self, Seek as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::TryStreamExt;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Body, Method};
use sandbox_bench_core::{Call, Downloaded, Error, ErrorKind, Input, Result, UploadProof, Uploaded};
use sandbox_bench_kit::archive;
use sandbox_bench_kit::http::{Effect, ask};
use sandbox_bench_kit::wait::{bounded, winding_up};
use serde_json::json;
use uuid::Uuid;

use crate::client::gone;
use crate::helper::{Done, Vm, script};

const UNPACK: &str = include_str!("guest/unpack.sh");
const PACK: &str = include_str!("guest/pack.sh");
/// Exit codes of these scripts.
const REFUSED: i32 = 120;
const NO_TAR: i32 = 121;
const TOO_LARGE: i32 = 122;
/// Where files wait in the sandbox.
const DIRECTORY: &str = "/tmp";
const PREFIX: &str = ".sandbox-bench";
/// Limit for removing a file that was brought home.
const TIDY_LIMIT: Duration = Duration::from_secs(5);

/// Places all inputs with one transfer and one command.
pub(crate) async fn upload(vm: Vm<'_>, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
    for input in inputs {
        archive::relative(&input.entry.destination)?;
    }
    if inputs.is_empty() {
        return Ok(Uploaded { bytes: 0, proof: UploadProof::Acknowledged });
    }
    let inputs = inputs.to_vec();
    let packing = tokio::task::spawn_blocking(move || pack(&inputs));
    let (packed, size) = bounded(call, "packing of inputs", packing)
        .await?
        .unwrap_or_else(|e| Err(Error::new(ErrorKind::Failed, "packing of inputs failed").because(e)))?;
    call.meter.sent(size);
    let path = send(vm, call, packed, size).await?;
    let bytes = size.to_string();
    let done = vm.shell(call, "unpacking of inputs", &script(UNPACK, &[&path, &bytes])).await?;
    unpacked(vm, &done).map(|()| Uploaded { bytes: size, proof: UploadProof::Size })
}

/// Places a file that only root and the sandbox's own user can read, and returns its path.
pub(crate) async fn place(vm: Vm<'_>, call: &Call, content: Bytes) -> Result<String> {
    let size = content.len() as u64;
    call.meter.sent(size);
    send(vm, call, io::Cursor::new(content), size).await
}

/// The inputs as one archive on the host's disk, and its size.
fn pack(inputs: &[Input]) -> Result<(File, u64)> {
    let on_host = |e: io::Error| Error::invalid("inputs cannot be packed").because(e);
    let mut builder = tar::Builder::new(io::BufWriter::new(tempfile::tempfile().map_err(on_host)?));
    archive::write_inputs(&mut builder, inputs)?;
    let mut file = builder.into_inner().and_then(|writer| Ok(writer.into_inner()?)).map_err(on_host)?;
    let size = file.stream_position().map_err(on_host)?;
    file.rewind().map_err(on_host)?;
    Ok((file, size))
}

/// Sends one file of so many bytes; returns its path. Sent again it has another name: nothing is ever written twice.
async fn send(vm: Vm<'_>, call: &Call, content: impl io::Read + Send + 'static, size: u64) -> Result<String> {
    let what = format!("sandbox {}: upload", vm.name);
    let name = format!("{PREFIX}-{}", Uuid::now_v7().simple());
    let path = format!("{DIRECTORY}/{name}");
    // What is counted is what the caller sends, not what is left of it when it is compressed.
    let (task, stream) = archive::stream(Arc::default(), move |chunks| {
        nest(chunks, &name, content, size).map_err(|e| Error::invalid("inputs cannot be sent").because(e))
    });
    let request =
        vm.api.of_session(Method::POST, vm.session, &["fs", "write"]).header(CONTENT_TYPE, "application/gzip");
    let request = request.header("x-cwd", DIRECTORY).body(Body::wrap_stream(stream));
    let answer = ask(call, &what, Effect::Idempotent, request).await;
    // What could not be read on the host says more than the connection that was given up for it.
    bounded(call, &what, task.finish()).await??;
    match answer? {
        Ok(_) => Ok(path),
        Err(refusal) => Err(gone(&what, Effect::Idempotent, &refusal)),
    }
}

/// What the service unpacks: a compressed archive with one file, which is for its owner alone.
fn nest(chunks: archive::Chunks, name: &str, content: impl io::Read, size: u64) -> io::Result<archive::Chunks> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o600);
    header.set_size(size);
    header.set_mtime(0);
    let mut builder = tar::Builder::new(GzEncoder::new(chunks, Compression::fast()));
    archive::append(&mut builder, header, Path::new(name), content)?;
    builder.into_inner()?.finish()
}

fn unpacked(vm: Vm<'_>, done: &Done) -> Result<()> {
    let said = done.stderr.trim();
    let error = |kind, why: &str| Err(Error::new(kind, format!("sandbox {}: upload: {why}", vm.name)));
    match done.code {
        0 => Ok(()),
        REFUSED => error(ErrorKind::Unavailable, "it did not arrive whole"),
        NO_TAR => error(ErrorKind::Environment, "the image has no tar, which placing files needs"),
        _ if said.contains("No space left") => error(ErrorKind::Capacity, said),
        code => error(ErrorKind::InvalidRequest, &format!("unpacking failed (exit code {code}): {said}")),
    }
}

/// Streams `from` into the host file `to`, which is not there if it does not become complete.
pub(crate) async fn download(vm: Vm<'_>, call: &Call, from: &str, (to, limit): (&Path, u64)) -> Result<Downloaded> {
    let done = fetch(vm, call, from, (to, limit)).await;
    if done.is_err() {
        // Best effort: the error at hand says more than a failure to clean up.
        let _ = tokio::fs::remove_file(to).await;
    }
    done
}

async fn fetch(vm: Vm<'_>, call: &Call, from: &str, (to, limit): (&Path, u64)) -> Result<Downloaded> {
    let what = format!("sandbox {}: download of {from}", vm.name);
    let path = format!("/{}", archive::relative(from)?.display());
    let (parent, name) = match path.rsplit_once('/') {
        Some(("", "")) | None => ("/", "."),
        Some((parent, name)) => (parent, name),
    };
    let packed = format!("{DIRECTORY}/{PREFIX}/{}", Uuid::now_v7().simple());
    let (parent, bytes) = (format!("{parent}/"), limit.to_string());
    let arguments = [parent.as_str(), name, &packed, &bytes];
    let done = vm.shell(call, "packing of files", &script(PACK, &arguments)).await?;
    let error = |kind, why: &str| Err(Error::new(kind, format!("{what}: {why}")));
    match done.code {
        0 => {}
        REFUSED => return error(ErrorKind::NotFound, "there is no such path"),
        NO_TAR => return error(ErrorKind::Environment, "the image has no tar, which taking files out needs"),
        TOO_LARGE => return error(ErrorKind::InvalidRequest, &format!("more than the limit of {limit} bytes")),
        code => return error(ErrorKind::Failed, &format!("packing failed (exit code {code}): {}", done.stderr.trim())),
    }
    let received = receive(vm, call, &what, &packed, (to, limit)).await;
    tidy(vm, call, &packed).await;
    let received = received?;
    if done.stdout.trim() != received.bytes.to_string() {
        let message = format!("{what}: {} bytes of {} arrived", received.bytes, done.stdout.trim());
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    Ok(received)
}

/// Reads one file of the sandbox into a host file.
async fn receive(vm: Vm<'_>, call: &Call, what: &str, path: &str, (to, limit): (&Path, u64)) -> Result<Downloaded> {
    let request = vm.api.of_session(Method::POST, vm.session, &["fs", "read"]).json(&json!({ "path": path }));
    let answer = match ask(call, what, Effect::Idempotent, request).await? {
        Ok(answer) => answer,
        // The file was there a moment ago.
        Err(refusal) => return Err(gone(what, Effect::Idempotent, &refusal)),
    };
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/octet-stream") {
        return Err(Error::new(ErrorKind::Unavailable, format!("{what}: the answer is no file but {kind:?}")));
    }
    let cut = |e: reqwest::Error| {
        Error::new(ErrorKind::Unavailable, format!("{what}: the connection failed")).because(e.without_url())
    };
    archive::receive(call, what, answer.bytes_stream().map_err(cut), (to, limit)).await
}

/// Removes what was packed. Best effort: it is in nobody's way, and goes with the sandbox.
async fn tidy(vm: Vm<'_>, call: &Call, path: &str) {
    let call = winding_up(call, TIDY_LIMIT);
    if let Err(error) = vm.shell(&call, "tidying up", &script("rm -f -- \"$1\"", &[path])).await {
        tracing::debug!(sandbox = vm.name, %error, "a packed file stays in the sandbox");
    }
}
