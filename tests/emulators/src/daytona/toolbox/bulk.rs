//! Several files in one form, in either direction.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Multipart;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Toolbox;
use super::files::malformed;
use crate::daytona::extract::Strict;
use crate::daytona::failure::Answer;
use crate::machine::{Machine, MachineError};

const BOUNDARY: &str = "DAYTONA-FILE-BOUNDARY";

/// Each path part must come before its file part. What can be written is, also if another cannot.
pub(super) async fn upload(toolbox: Toolbox, mut form: Multipart) -> Answer {
    let mut paths: BTreeMap<String, String> = BTreeMap::new();
    let (mut files, mut errors): (Vec<Value>, Vec<String>) = Default::default();
    while let Some(part) = form.next_field().await.map_err(|error| malformed(&error.body_text()))? {
        let name = part.name().unwrap_or_default().to_owned();
        let part_of =
            |end: &str| name.strip_prefix("files[").and_then(|rest| rest.strip_suffix(end)).map(str::to_owned);
        if let Some(index) = part_of("].path") {
            let path = part.text().await.map_err(|error| malformed(&error.body_text()))?;
            paths.insert(index, path);
        } else if let Some(index) = part_of("].file") {
            let path = paths.get(&index).ok_or_else(|| malformed(&format!("{name} comes before its path")))?;
            match toolbox.machine.write_file(path, Box::pin(part)).await {
                Ok(bytes) => files.push(json!({"path": path, "bytes": bytes})),
                Err(error) => errors.push(format!("{path}: {error}")),
            }
        } else {
            return Err(malformed(&format!("unknown part {name:?}")));
        }
    }
    if errors.is_empty() {
        return Ok(axum::Json(json!({"files": files})).into_response());
    }
    Ok((StatusCode::BAD_REQUEST, axum::Json(json!({"errors": errors, "files": files}))).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Download {
    paths: VecDeque<String>,
}

pub(super) async fn download(toolbox: Toolbox, Strict(body): Strict<Download>) -> Response {
    if body.paths.is_empty() {
        let refusal = json!({"error": "request body must be {paths: [...]} and non-empty"});
        return (StatusCode::BAD_REQUEST, axum::Json(refusal)).into_response();
    }
    let parts = stream::unfold((toolbox.machine, body.paths), |(machine, mut paths)| async move {
        let path = paths.pop_front()?;
        let part = part(&machine, &path).await;
        Some((part, (machine, paths)))
    });
    let end = stream::once(async { Ok(Bytes::from(format!("--{BOUNDARY}--\r\n"))) });
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(parts.flatten().chain(end))).into_response()
}

type Part = std::pin::Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

async fn part(machine: &Arc<Machine>, path: &str) -> Part {
    let size = machine.tool(r#"[ ! -d "$1" ] && stat -L -c %s -- "$1""#, &[path]).await;
    let size = size.ok().and_then(|text| String::from_utf8(text).ok()?.trim().parse::<u64>().ok());
    let named = file_name(path);
    let (head, content): (String, Part) = match (size, machine.read_file(path).await) {
        (Some(size), Ok(content)) => {
            let kind = "application/octet-stream";
            let head = format!("name=\"file\"; {named}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n");
            (head, Box::pin(content))
        }
        (_, opened) => {
            let text = error_part(path, opened.err());
            let head = format!("name=\"error\"; {named}\r\nContent-Type: application/json\r\n");
            (head, Box::pin(stream::once(async { Ok(Bytes::from(text)) })))
        }
    };
    let head = Bytes::from(format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n"));
    let before = stream::once(async move { Ok(head) });
    let after = stream::once(async { Ok(Bytes::from_static(b"\r\n")) });
    Box::pin(before.chain(content).chain(after))
}

/// The path, in a form for everybody and in one that loses nothing. The client matches parts by it, errors too.
fn file_name(path: &str) -> String {
    let plain = path.replace(['"', '\\', '\r', '\n'], "_");
    format!("filename=\"{plain}\"; filename*=utf-8''{}", percent(path))
}

fn error_part(path: &str, error: Option<MachineError>) -> String {
    let (status, code, why) = match error {
        Some(MachineError::NoFile(_)) => (404, "FILE_NOT_FOUND", format!("file not found: {path}")),
        Some(error) => (500, "FILE_READ_FAILED", error.to_string()),
        None => (400, "INVALID_FILE_PATH", format!("not a file: {path}")),
    };
    let now = Timestamp::now();
    json!({
        "statusCode": status, "message": why, "code": code, "timestamp": now, "path": path, "method": "POST",
        "source": "DAYTONA_DAEMON",
    })
    .to_string()
}

fn percent(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
