//! Files, as tar streams.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio_util::io::{ReaderStream, StreamReader};

use super::{Refusal, Service};

/// Bytes on their way to a client that does not read.
const BUFFER: usize = 64 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    path: String,
}

pub(super) async fn unpack(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let sandbox = service.sandbox(&name)?;
    let archive = StreamReader::new(body.into_data_stream().map_err(io::Error::other));
    let unpacked = sandbox.machine()?.write_tar("/", None, archive).await;
    unpacked.map_err(|error| match sandbox.machine() {
        Ok(_) => Refusal(StatusCode::BAD_REQUEST, "invalid_archive", error.to_string()),
        Err(ended) => ended,
    })?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn pack(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
) -> Result<Response, Refusal> {
    let sandbox = service.sandbox(&name)?;
    let there = sandbox.machine()?.tool(r#"[ -e "$1" ] || [ -L "$1" ]"#, &[&asked.path]).await;
    if there.is_err() {
        sandbox.machine()?;
        return Err(Refusal::missing("file", &asked.path));
    }
    let (reader, writer) = tokio::io::duplex(BUFFER);
    let (done, packed) = oneshot::channel();
    service.emulation.tasks.spawn(async move {
        let result = match sandbox.machine() {
            Ok(machine) => machine.read_tar(&asked.path, writer).await.map_err(io::Error::other),
            Err(Refusal(_, code, _)) => Err(io::Error::other(code)),
        };
        // The client may have gone.
        let _ = done.send(result.map(|_| Bytes::new()));
    });
    // An archive that could not be completed must not look like one that ends.
    let end = stream::once(async { packed.await.unwrap_or_else(|_| Err(io::Error::other("shutting down"))) });
    let body = Body::from_stream(ReaderStream::new(reader).chain(end));
    Ok(([(header::CONTENT_TYPE, "application/x-tar")], body).into_response())
}
