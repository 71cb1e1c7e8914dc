//! Bodies of requests: bounded, and compared with their digest before anything is changed.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::HeaderMap;
use bytes::Bytes;
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::boot;
use crate::refusal::{Answer, Refusal};

/// Most bytes of one request's body.
pub(crate) const LIMIT: u64 = 64 << 20;
/// A client that sends nothing for so long has gone.
const SILENCE: Duration = Duration::from_secs(60);
/// The digest that a client promises.
const PROMISED: &str = "x-content-sha256";

async fn next(chunks: &mut BodyDataStream) -> Answer<Option<Bytes>> {
    match tokio::time::timeout(SILENCE, chunks.next()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
        Ok(Some(Err(error))) => Err(Refusal::bad(format!("the body broke off: {error}"))),
        Err(_) => Err(Refusal::bad("the body did not go on")),
    }
}

/// A small body, in memory.
///
/// # Errors
/// 413 beyond `limit` bytes, 400 if it breaks off.
pub(crate) async fn small(body: Body, limit: u64) -> Answer<Bytes> {
    let mut chunks = body.into_data_stream();
    let mut all = Vec::new();
    while let Some(chunk) = next(&mut chunks).await? {
        if (all.len() + chunk.len()) as u64 > limit {
            return Err(Refusal::too_large(limit));
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all.into())
}

/// A whole body in a file that vanishes unless it is kept.
pub(crate) struct Spooled {
    pub(crate) file: NamedTempFile,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// Receives a body into a temporary file of `directory`, which is rewound. Nothing else is touched until the body is
/// complete and is what the header `x-content-sha256` promises, if there is one.
///
/// # Errors
/// 413 beyond [`LIMIT`], 400 if it breaks off or is not what was promised, and what the file system says.
pub(crate) async fn spool(headers: &HeaderMap, body: Body, directory: &Path) -> Answer<Spooled> {
    let shown = directory.display().to_string();
    let on_disk = |e: std::io::Error| Refusal::of_file(&shown, &e);
    let mut file = NamedTempFile::with_prefix_in(".sandbox-runner-", directory).map_err(on_disk)?;
    let (mut bytes, mut digest) = (0u64, Sha256::new());
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = next(&mut chunks).await? {
        bytes += chunk.len() as u64;
        if bytes > LIMIT {
            return Err(Refusal::too_large(LIMIT));
        }
        digest.update(&chunk);
        file.write_all(&chunk).map_err(on_disk)?;
    }
    file.seek(SeekFrom::Start(0)).map_err(on_disk)?;
    let digest: [u8; 32] = digest.finalize().into();
    if let Some(promised) = headers.get(PROMISED) {
        let promised = promised.to_str().ok().and_then(boot::from_hex);
        let promised = promised.ok_or_else(|| Refusal::bad(format!("{PROMISED} is not a digest")))?;
        if promised != digest {
            return Err(Refusal::named("digest_mismatch", "the body is not what its digest promises"));
        }
    }
    Ok(Spooled { file, bytes, sha256: boot::hex(&digest) })
}
