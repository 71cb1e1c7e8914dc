//! Inputs into a container and files out of it, as tar streams over the engine's archive requests.

use std::io::Read as _;
use std::path::Path;

use bollard::query_parameters::{DownloadFromContainerOptionsBuilder, UploadToContainerOptionsBuilder};
use futures_util::{StreamExt, TryStreamExt};
use sandbox_bench_core::{Call, Downloaded, Error, ErrorKind, Input, Result, UploadProof, Uploaded};
use sandbox_bench_kit::archive;
use sandbox_bench_kit::wait::bounded;

use crate::client::{Engine, short};
use crate::{error, observe};

/// Places all inputs with one request.
pub(crate) async fn upload(engine: &Engine, call: &Call, container: &str, inputs: &[Input]) -> Result<Uploaded> {
    for input in inputs {
        archive::relative(&input.entry.destination)?;
    }
    if inputs.is_empty() {
        return Ok(Uploaded { bytes: 0, proof: UploadProof::Acknowledged });
    }
    let what = format!("container {}: upload", short(container));
    let inputs = inputs.to_vec();
    let (task, stream) = archive::tar(call.meter.clone(), move |builder| archive::write_inputs(builder, &inputs));
    let options = UploadToContainerOptionsBuilder::new().path("/").no_overwrite_dir_non_dir("true").build();
    call.meter.api_call();
    let request = engine.docker.upload_to_container(container, Some(options), bollard::body_try_stream(stream));
    let answer = bounded(call, &what, request).await?;
    let bytes = bounded(call, &what, task.finish()).await??;
    answer.map_err(|e| lost(container, error::map(&what, e)))?;
    Ok(Uploaded { bytes, proof: UploadProof::Acknowledged })
}

/// Streams `from` into the host file `to`, which is removed again if it does not become complete.
pub(crate) async fn download(
    engine: &Engine,
    call: &Call,
    container: &str,
    from: &str,
    (to, limit): (&Path, u64),
) -> Result<Downloaded> {
    archive::relative(from)?;
    let what = format!("container {}: download of {from}", short(container));
    let options = DownloadFromContainerOptionsBuilder::new().path(from).build();
    call.meter.api_call();
    let chunks = engine.docker.download_from_container(container, Some(options));
    let chunks = chunks.map_err(|e| missing(lost(container, error::map(&what, e))));
    archive::receive(call, &what, chunks, (to, limit)).await
}

/// The content of one small file in the sandbox; none if there is no such file, or it is larger than the limit.
pub(crate) async fn read(
    engine: &Engine,
    call: &Call,
    container: &str,
    (path, limit): (&str, usize),
) -> Result<Option<Vec<u8>>> {
    let what = format!("container {}: read of {path}", short(container));
    let options = DownloadFromContainerOptionsBuilder::new().path(path).build();
    call.meter.api_call();
    let mut stream = engine.docker.download_from_container(container, Some(options));
    let archive = bounded(call, &what, async {
        let mut archive = Vec::new();
        while let Some(chunk) = stream.next().await {
            archive.extend_from_slice(&chunk.map_err(|e| lost(container, error::map(&what, e)))?);
            if archive.len() > limit {
                return Ok::<_, Error>(Vec::new());
            }
        }
        Ok(archive)
    });
    let archive = match archive.await? {
        Err(e) if *e.kind() == ErrorKind::NotFound => return Ok(None),
        archive => archive?,
    };
    let mut archive = tar::Archive::new(archive.as_slice());
    let first = archive.entries().ok().and_then(|mut entries| entries.next()?.ok());
    let mut content = Vec::new();
    Ok(first.and_then(|mut entry| entry.read_to_end(&mut content).ok()).map(|_| content))
}

/// A missing container is a lost sandbox; a missing path stays what it is.
fn lost(container: &str, error: Error) -> Error {
    let text = error.to_string();
    if text.contains("No such container") || text.contains("no such container") {
        observe::lost(container).because(error)
    } else {
        error
    }
}

/// What lies below a file is not there; the engine calls such a path faulty.
fn missing(error: Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidRequest if error.to_string().contains("not a directory") => {
            Error::new(ErrorKind::NotFound, "no such path in the sandbox").because(error)
        }
        _ => error,
    }
}
