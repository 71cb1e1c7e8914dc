//! Single files: whole or in pieces, by absolute path.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use axum::Json;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::boot;
use crate::receive::{self, Spooled};
use crate::refusal::{Answer, Refusal};

/// Pieces up to this size are sent with their digest.
const PIECE: u64 = 8 << 20;
const CHUNK: usize = 64 << 10;

/// The path, if it is one that the protocol takes.
///
/// # Errors
/// 400.
pub(crate) fn absolute(path: &str) -> Answer<&Path> {
    if !path.starts_with('/') || path.contains('\0') || path.split('/').any(|part| part == "..") {
        return Err(Refusal::bad(format!("{path:?} is not an absolute path without ..")));
    }
    Ok(Path::new(path))
}

/// Query of `PUT /v1/files`.
#[derive(Debug, Deserialize)]
pub(crate) struct Put {
    path: String,
    mode: Option<String>,
    mkdirs: Option<String>,
    append_at: Option<u64>,
}

/// Replaces a file by the body, or adds the body to its end if that is where the client believes it to be.
pub(crate) async fn put(query: Put, headers: HeaderMap, body: Body, spool: &Path) -> Answer {
    let path = absolute(&query.path)?;
    let mode = match query.mode.as_deref() {
        None => 0o644,
        Some(text) => u32::from_str_radix(text, 8)
            .ok()
            .filter(|mode| *mode <= 0o7777)
            .ok_or_else(|| Refusal::bad(format!("mode {text:?} is not octal")))?,
    };
    let failed = |e: io::Error| Refusal::of_file(&query.path, &e);
    let parent = path.parent().ok_or_else(|| Refusal::bad("/ is not a file"))?;
    if query.mkdirs.as_deref() == Some("1") {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    match query.append_at {
        None => {
            let Spooled { file, bytes, sha256 } = receive::spool(&headers, body, parent).await?;
            file.as_file().set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
            file.persist(path).map_err(|e| failed(e.error))?;
            Ok(Json(json!({ "bytes": bytes, "sha256": sha256 })).into_response())
        }
        Some(offset) => {
            let Spooled { mut file, bytes, sha256 } = receive::spool(&headers, body, spool).await?;
            append(path, mode, offset, file.as_file_mut()).map_err(failed)?.map_err(Refusal::wrong_size)?;
            Ok(Json(json!({ "bytes": bytes, "sha256": sha256 })).into_response())
        }
    }
}

/// Adds `piece` at `offset`, which must be the file's end; else the file's size is returned, and nothing changes.
fn append(path: &Path, mode: u32, offset: u64, piece: &mut File) -> io::Result<Result<(), u64>> {
    let file = OpenOptions::new()
        .append(true)
        .create(offset == 0)
        .mode(mode)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if metadata.len() != offset {
        return Ok(Err(metadata.len()));
    }
    match io::copy(piece, &mut &file) {
        Ok(_) => Ok(Ok(())),
        Err(error) => {
            // Half a piece would make the offset of every further one wrong.
            file.set_len(offset)?;
            Err(error)
        }
    }
}

/// Query of `GET /v1/files`.
#[derive(Debug, Deserialize)]
pub(crate) struct Get {
    path: String,
    #[serde(default)]
    offset: u64,
    length: Option<u64>,
}

/// The bytes of a file, or of a piece of it; small ones with their digest.
pub(crate) fn get(query: &Get) -> Answer {
    let path = absolute(&query.path)?;
    let failed = |e: io::Error| Refusal::of_reading(&query.path, &e);
    // A pipe would wait for its other end.
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Refusal::bad(format!("{} is not a file", query.path)));
    }
    let size = metadata.len();
    let rest = size.checked_sub(query.offset).ok_or_else(|| Refusal::bad_offset(size))?;
    let length = query.length.map_or(rest, |length| length.min(rest));
    let mut response = if length <= PIECE {
        let mut bytes = vec![0; usize::try_from(length).map_err(|e| Refusal::internal(e.to_string()))?];
        file.read_exact_at(&mut bytes, query.offset).map_err(failed)?;
        let digest = boot::hex(&Sha256::digest(&bytes));
        ([("x-content-sha256", digest)], bytes).into_response()
    } else {
        file.seek(SeekFrom::Start(query.offset)).map_err(failed)?;
        ([("content-length", length.to_string())], streamed(file, length)).into_response()
    };
    let facts = [("x-file-size", size.to_string()), ("x-file-mode", octal(metadata.mode()))];
    for (name, value) in facts {
        response.headers_mut().insert(name, value.parse().map_err(|_| Refusal::internal("a header"))?);
    }
    Ok(response)
}

/// A file's bytes as a body; it breaks off if the file became shorter.
fn streamed(file: File, length: u64) -> Body {
    Body::from_stream(stream::unfold((file, length), |(file, left)| async move {
        if left == 0 {
            return None;
        }
        let read = tokio::task::spawn_blocking(move || {
            let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
            let read = (&file).read(&mut chunk);
            (
                file,
                read.map(|count| {
                    chunk.truncate(count);
                    Bytes::from(chunk)
                }),
            )
        });
        match read.await {
            Ok((_, Ok(chunk))) if chunk.is_empty() => None,
            Ok((file, Ok(chunk))) => {
                let left = left.saturating_sub(chunk.len() as u64);
                Some((Ok(chunk), (file, left)))
            }
            Ok((file, Err(error))) => Some((Err(error), (file, 0))),
            Err(_) => None,
        }
    }))
}

/// Query of `DELETE /v1/files` and `GET /v1/stat`.
#[derive(Debug, Deserialize)]
pub(crate) struct Named {
    path: String,
}

/// Removes a file or a link.
pub(crate) fn delete(query: &Named) -> Answer<()> {
    fs::remove_file(absolute(&query.path)?).map_err(|e| Refusal::of_reading(&query.path, &e))
}

/// What is at a path; links are not followed.
pub(crate) fn stat(query: &Named) -> Answer<Value> {
    let metadata = fs::symlink_metadata(absolute(&query.path)?).map_err(|e| Refusal::of_reading(&query.path, &e))?;
    let kind = match metadata.file_type() {
        kind if kind.is_file() => "file",
        kind if kind.is_dir() => "directory",
        kind if kind.is_symlink() => "symlink",
        _ => "other",
    };
    let modified = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let modified = modified.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    Ok(json!({ "type": kind, "size": metadata.len(), "mode": octal(metadata.mode()), "mtime_ms": modified }))
}

fn octal(mode: u32) -> String {
    format!("{:04o}", mode & 0o7777)
}
