//! Inputs into a sandbox and files out of it. REPLACE where the service has no tar streams as root: the daytona adapter
//! sends one archive and unpacks it by a command, the vercel adapter nests it in another.

use std::path::Path;

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use reqwest::{Body, Method};
use sandbox_bench_core::{Call, Downloaded, Error, ErrorKind, Input, Result, UploadProof, Uploaded};
use sandbox_bench_kit::archive;
use sandbox_bench_kit::http::{Effect, ask};
use sandbox_bench_kit::wait::bounded;

use crate::error;
use crate::exec::Guest;

/// Places all inputs with one transfer.
pub(crate) async fn upload(guest: Guest<'_>, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
    for input in inputs {
        archive::relative(&input.entry.destination)?;
    }
    let what = guest.what("upload");
    let inputs = inputs.to_vec();
    let (task, stream) = archive::tar(call.meter.clone(), move |builder| archive::write_inputs(builder, &inputs));
    let request = guest.api.of(Method::PUT, guest.name, &["files"]).body(Body::wrap_stream(stream));
    let answer = ask(call, &what, Effect::Idempotent, request).await;
    // What could not be read on the host says more than the connection that was given up for it.
    let bytes = bounded(call, &what, task.finish()).await??;
    match answer? {
        Ok(_) => Ok(Uploaded { bytes, proof: UploadProof::Acknowledged }),
        Err(refusal) => Err(error::gone(&what, Effect::Idempotent, &refusal)),
    }
}

/// Streams `from` into the host file `to`, which is not there if it does not become complete.
pub(crate) async fn download(
    guest: Guest<'_>,
    call: &Call,
    from: &str,
    (to, limit): (&Path, u64),
) -> Result<Downloaded> {
    let what = guest.what(&format!("download of {from}"));
    let done = match ask_for(guest, call, &what, from).await {
        Ok(chunks) => archive::receive(call, &what, chunks, (to, limit)).await,
        Err(error) => Err(error),
    };
    if done.is_err() {
        // Best effort: the error at hand says more than a failure to clean up.
        let _ = tokio::fs::remove_file(to).await;
    }
    done
}

async fn ask_for(
    guest: Guest<'_>,
    call: &Call,
    what: &str,
    from: &str,
) -> Result<impl Stream<Item = Result<Bytes>> + use<>> {
    let path = format!("/{}", archive::relative(from)?.display());
    let request = guest.api.of(Method::GET, guest.name, &["files"]).query(&[("path", path)]);
    let answer = ask(call, what, Effect::Idempotent, request).await?;
    // No such path, or no such sandbox any more.
    let answer = answer.map_err(|refusal| error::refused(what, Effect::Idempotent, &refusal))?;
    let what = what.to_owned();
    Ok(answer.bytes_stream().map_err(move |e| {
        Error::new(ErrorKind::Unavailable, format!("{what}: the connection failed")).because(e.without_url())
    }))
}
