//! `/files`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Toolbox, bulk};
use crate::daytona::extract::StrictQuery;
use crate::daytona::failure::{Answer, Failure};
use crate::daytona::state::Daytona;
use crate::machine::MachineError;

pub(super) fn router() -> Router<Arc<Daytona>> {
    Router::new()
        .route("/toolbox/{id}/files", get(list).delete(delete))
        .route("/toolbox/{id}/files/info", get(info))
        .route("/toolbox/{id}/files/folder", post(folder))
        .route("/toolbox/{id}/files/permissions", post(permissions))
        .route("/toolbox/{id}/files/move", post(rename))
        .route("/toolbox/{id}/files/search", get(search))
        .route("/toolbox/{id}/files/download", get(download))
        .route("/toolbox/{id}/files/upload", post(upload))
        .route("/toolbox/{id}/files/upload-v2", post(upload_v2))
        .route("/toolbox/{id}/files/bulk-upload", post(bulk::upload))
        .route("/toolbox/{id}/files/bulk-download", post(bulk::download))
}

/// What these endpoints answer when the file system refuses: often nothing but a status.
pub(super) fn refused(error: MachineError) -> Failure {
    let text = error.to_string();
    let status = if text.contains("No such file") || text.contains("no such file") {
        StatusCode::NOT_FOUND
    } else if text.contains("Permission denied") {
        StatusCode::FORBIDDEN
    } else {
        StatusCode::BAD_REQUEST
    };
    Failure::empty(status, text)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PathQuery {
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    path: Option<String>,
    depth: Option<u32>,
}

/// The fields of a file, one line each, NUL at the end.
const STAT: &str = r"--printf=%n\n%s\n%a\n%A\n%Y\n%U\n%G\n\0";

async fn list(toolbox: Toolbox, StrictQuery(query): StrictQuery<ListQuery>) -> Answer<Json<Vec<Value>>> {
    let script = r#"cd -- "$1" && find . -mindepth 1 -maxdepth "$2" -exec stat "$3" -- {} +"#;
    let depth = query.depth.unwrap_or(1).max(1).to_string();
    let path = query.path.as_deref().unwrap_or(".");
    let text = toolbox.machine.tool(script, &[path, &depth, STAT]).await.map_err(refused)?;
    Ok(Json(String::from_utf8_lossy(&text).split_terminator('\0').filter_map(file_info).collect()))
}

async fn info(toolbox: Toolbox, StrictQuery(query): StrictQuery<PathQuery>) -> Answer<Json<Value>> {
    let script = r#"stat "$2" -- "$1""#;
    let text = toolbox.machine.tool(script, &[&query.path, STAT]).await.map_err(refused)?;
    let info = String::from_utf8_lossy(&text).split_terminator('\0').next().and_then(file_info);
    info.map(Json).ok_or_else(|| Failure::unmapped("stat said nothing"))
}

fn file_info(lines: &str) -> Option<Value> {
    let lines: Vec<&str> = lines.split('\n').collect();
    let [path, size, octal, mode, time, owner, group, ..] = lines.as_slice() else { return None };
    let time = jiff::Timestamp::from_second(time.parse().ok()?).ok()?;
    Some(json!({
        "name": path.rsplit('/').next(), "path": path, "size": size.parse::<u64>().ok()?,
        "isDir": mode.starts_with('d'), "mode": mode, "permissions": format!("{octal:0>4}"),
        "modTime": time, "modifiedAt": time, "owner": owner, "group": group,
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FolderQuery {
    path: String,
    mode: Option<String>,
}

async fn folder(toolbox: Toolbox, StrictQuery(query): StrictQuery<FolderQuery>) -> Answer<StatusCode> {
    let mode = octal(query.mode.as_deref().unwrap_or("0755"))?;
    let script = r#"mkdir -p -- "$1" && chmod -- "$2" "$1""#;
    toolbox.machine.tool(script, &[&query.path, mode]).await.map_err(refused)?;
    Ok(StatusCode::CREATED)
}

fn octal(mode: &str) -> Answer<&str> {
    let valid = !mode.is_empty() && mode.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let bad = || Failure::daemon(StatusCode::BAD_REQUEST, "BAD_REQUEST", "invalid mode format").violation();
    if valid { Ok(mode) } else { Err(bad()) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PermissionsQuery {
    path: String,
    mode: Option<String>,
    owner: Option<String>,
    group: Option<String>,
}

async fn permissions(toolbox: Toolbox, StrictQuery(query): StrictQuery<PermissionsQuery>) -> Answer<StatusCode> {
    let mode = query.mode.as_deref().filter(|mode| !mode.is_empty()).map_or(Ok(""), octal)?;
    let (owner, group) = (query.owner.as_deref().unwrap_or_default(), query.group.as_deref().unwrap_or_default());
    let script = r#"stat -- "$1" >/dev/null && { [ -z "$2" ] || chmod -- "$2" "$1"; } && {
        [ -z "$3" ] || chown -- "$3" "$1"; } && { [ -z "$4" ] || chgrp -- "$4" "$1"; }"#;
    toolbox.machine.tool(script, &[&query.path, mode, owner, group]).await.map_err(refused)?;
    Ok(StatusCode::OK)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteQuery {
    path: String,
    #[serde(default)]
    recursive: bool,
}

async fn delete(toolbox: Toolbox, StrictQuery(query): StrictQuery<DeleteQuery>) -> Answer<StatusCode> {
    let script = if query.recursive {
        r#"stat -- "$1" >/dev/null && rm -rf -- "$1""#
    } else {
        r#"[ ! -d "$1" ] || { echo "cannot delete directory without recursive" >&2; exit 1; }; rm -- "$1""#
    };
    toolbox.machine.tool(script, &[&query.path]).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveQuery {
    source: String,
    destination: String,
}

async fn rename(toolbox: Toolbox, StrictQuery(query): StrictQuery<MoveQuery>) -> Answer<StatusCode> {
    let script = r#"mv -T -- "$1" "$2""#;
    toolbox.machine.tool(script, &[&query.source, &query.destination]).await.map_err(refused)?;
    Ok(StatusCode::OK)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchQuery {
    path: String,
    pattern: String,
}

async fn search(toolbox: Toolbox, StrictQuery(query): StrictQuery<SearchQuery>) -> Answer<Json<Value>> {
    let script = r#"find "$1" -name "$2" -print0"#;
    let found = toolbox.machine.tool(script, &[&query.path, &query.pattern]).await.map_err(refused)?;
    let found = String::from_utf8_lossy(&found).into_owned();
    Ok(Json(json!({"files": found.split_terminator('\0').collect::<Vec<_>>()})))
}

async fn download(toolbox: Toolbox, StrictQuery(query): StrictQuery<PathQuery>) -> Answer {
    let bytes = toolbox.machine.read_file(&query.path).await.map_err(refused)?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], Body::from_stream(bytes)).into_response())
}

/// The form part `file`.
async fn upload(toolbox: Toolbox, StrictQuery(query): StrictQuery<PathQuery>, form: Multipart) -> Answer<StatusCode> {
    write_part(&toolbox, &query.path, form).await?;
    Ok(StatusCode::OK)
}

/// The form part `file`, or the body as it is.
async fn upload_v2(toolbox: Toolbox, StrictQuery(query): StrictQuery<PathQuery>, request: Request) -> Answer {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.starts_with("multipart/form-data") {
        let form = Multipart::from_request(request, &()).await.map_err(|error| malformed(&error.body_text()))?;
        write_part(&toolbox, &query.path, form).await?;
    } else if kind.starts_with("application/octet-stream") {
        let body = request.into_body().into_data_stream();
        toolbox.machine.write_file(&query.path, body).await.map_err(refused)?;
    } else {
        return Err(malformed(&format!("Content-Type {kind:?} is neither a form nor an octet stream")));
    }
    let name = query.path.rsplit('/').next();
    Ok(Json(json!({"name": name, "path": query.path, "type": "file"})).into_response())
}

async fn write_part(toolbox: &Toolbox, path: &str, mut form: Multipart) -> Answer<()> {
    while let Some(part) = form.next_field().await.map_err(|error| malformed(&error.body_text()))? {
        if part.name() == Some("file") {
            toolbox.machine.write_file(path, Box::pin(part)).await.map_err(refused)?;
            return Ok(());
        }
    }
    Err(malformed("the form has no part `file`"))
}

pub(super) fn malformed(why: &str) -> Failure {
    Failure::daemon(StatusCode::BAD_REQUEST, "BAD_REQUEST", why).violation()
}
