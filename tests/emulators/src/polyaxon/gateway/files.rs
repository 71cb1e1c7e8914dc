//! Files of the main container.

use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Asked;
use crate::machine::{End, MachineError};
use crate::polyaxon::reply::{self, Reply};

/// Most bytes of one read. A guess.
const MOST: u64 = 1 << 20;
/// The client's own limit for a path.
const PATH_LIMIT: usize = 4096;
/// What the scripts below exit with.
const NOT_FOUND: i32 = 94;
const IS_DIRECTORY: i32 = 95;
const NOT_EMPTY: i32 = 96;

/// Runs a script; what it wrote, or the daemon's refusal.
async fn run(
    asked: &Asked<'_>,
    script: &str,
    (arguments, input): (&[&str], Option<&[u8]>),
) -> Result<Vec<u8>, Box<Reply>> {
    let argv = ["/bin/sh", "-c", script, "daemon"].into_iter().chain(arguments.iter().copied());
    let command = crate::machine::Command { output_cap: usize::MAX, ..crate::machine::Command::new(argv) };
    let done = match asked.pod.machine.run(command, input).await {
        Ok(done) => done,
        Err(MachineError::Engine(_)) => return Err(Box::new(reply::bad_gateway())),
        Err(error) => {
            return Err(Box::new(reply::refused(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string())));
        }
    };
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    let (status, code, message) = match done.end {
        End::Exited(0) => return Ok(done.stdout),
        End::Exited(NOT_FOUND) => (StatusCode::NOT_FOUND, "not_found", "no such file or directory".to_owned()),
        End::Exited(IS_DIRECTORY) => (StatusCode::BAD_REQUEST, "is_directory", "is a directory".to_owned()),
        End::Exited(NOT_EMPTY) => (StatusCode::BAD_REQUEST, "not_empty", "directory is not empty".to_owned()),
        _ => (StatusCode::BAD_REQUEST, "failed", said),
    };
    Err(Box::new(reply::refused(status, code, message)))
}

/// The parameter `path`, as the client checks it.
fn path<'a>(asked: &'a Asked<'_>) -> Result<&'a str, Box<Reply>> {
    checked(asked, asked.parameter("path").unwrap_or_default())
}

fn checked<'a>(asked: &Asked<'_>, path: &'a str) -> Result<&'a str, Box<Reply>> {
    if path.starts_with('/') && !path.contains('\0') && path.len() <= PATH_LIMIT {
        return Ok(path);
    }
    Err(Box::new(asked.mistake("path must be absolute")))
}

fn mode<'a>(asked: &Asked<'_>, mode: &'a str) -> Result<&'a str, Box<Reply>> {
    let octal = mode.len() == 4 && mode.starts_with('0') && mode.bytes().all(|b| (b'0'..=b'7').contains(&b));
    if octal { Ok(mode) } else { Err(Box::new(asked.mistake("mode must be four octal digits"))) }
}

fn flag(asked: &Asked<'_>, name: &str, default: bool) -> Result<bool, Box<Reply>> {
    match asked.parameter(name) {
        None => Ok(default),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(_) => Err(Box::new(asked.mistake(format!("{name} must be true or false")))),
    }
}

fn answer(result: Result<Value, Box<Reply>>) -> Reply {
    match result {
        Ok(body) => reply::daemon(StatusCode::OK, &body),
        Err(refusal) => *refusal,
    }
}

/// `GET /fs/read`.
pub(super) async fn read(asked: &Asked<'_>) -> Reply {
    match piece(asked).await {
        Ok(reply) => reply,
        Err(refusal) => *refusal,
    }
}

async fn piece(asked: &Asked<'_>) -> Result<Reply, Box<Reply>> {
    let path = path(asked)?;
    let number = |name: &str, default: u64| asked.parameter(name).map_or(Some(default), |text| text.parse().ok());
    let (Some(offset), Some(length)) = (number("offset", 0), number("length", MOST)) else {
        return Err(Box::new(asked.mistake("offset and length are numbers")));
    };
    let length = length.min(MOST);
    let script = r#"[ -e "$1" ] || exit 94; [ -d "$1" ] && exit 95
        wc -c <"$1" && tail -c +"$2" -- "$1" | head -c "$3""#;
    let (from, most) = ((offset + 1).to_string(), length.to_string());
    let out = run(asked, script, (&[path, &from, &most], None)).await?;
    let line = out.iter().position(|b| *b == b'\n').unwrap_or(out.len());
    let (size, data) = out.split_at(line);
    let size: u64 = String::from_utf8_lossy(size).trim().parse().unwrap_or(0);
    let data = data.get(1..).unwrap_or_default().to_vec();
    let reached = offset + data.len() as u64;
    let next = if asked.flags.has("stuck-offset") { offset } else { reached };
    let reply = Response::builder()
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header("X-Polyaxon-Next-Offset", next)
        .header("X-Polyaxon-Eof", if reached >= size { "true" } else { "false" });
    Ok(reply.body(Body::from(data)).unwrap_or_default())
}

/// `POST /fs/write`. Parents are not made. A guess.
pub(super) async fn write(asked: &Asked<'_>, headers: &HeaderMap, body: &[u8]) -> Reply {
    let result = async {
        let path = path(asked)?;
        let mode = mode(asked, asked.parameter("mode").unwrap_or("0644"))?;
        let (create, append) = (flag(asked, "create", true)?, flag(asked, "append", false)?);
        if headers.get(header::CONTENT_TYPE).is_none_or(|kind| kind != "application/octet-stream") {
            return Err(Box::new(asked.mistake("content type must be application/octet-stream")));
        }
        let script = r#"umask 022; [ -d "$1" ] && exit 95
            made=false
            if [ ! -e "$1" ]; then
                [ "$3" = true ] || exit 94; [ -d "$(dirname -- "$1")" ] || exit 94; made=true
            fi
            if [ "$4" = true ]; then cat >>"$1"; else cat >"$1"; fi || exit 1
            [ $made = false ] || chmod "$2" "$1"; echo $made"#;
        let arguments = [path, mode, if create { "true" } else { "false" }, if append { "true" } else { "false" }];
        let out = run(asked, script, (&arguments, Some(body))).await?;
        let created = out.starts_with(b"true");
        Ok(json!({ "path": path, "bytes_written": body.len(), "created": created }))
    };
    answer(result.await)
}

/// `POST /fs/mkdir`.
pub(super) async fn mkdir(asked: &Asked<'_>, body: &[u8]) -> Reply {
    let result = async {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let known = |name: &String| ["path", "parents", "mode"].contains(&name.as_str());
        if body.as_object().is_none_or(|fields| !fields.keys().all(known)) {
            return Err(Box::new(asked.mistake("body must be {path, parents, mode}")));
        }
        let path = checked(asked, body["path"].as_str().unwrap_or_default())?;
        let mode = mode(asked, body["mode"].as_str().unwrap_or("0755"))?;
        let parents = if body["parents"] == true { "-p" } else { "-m" };
        let script = r#"umask 022; if [ "$3" = -p ]; then [ -d "$1" ] || { mkdir -p -- "$1" && chmod "$2" "$1"; }
            else [ -d "$(dirname -- "$1")" ] || exit 94; mkdir -m "$2" -- "$1"; fi"#;
        run(asked, script, (&[path, mode, parents], None)).await?;
        Ok(json!({ "path": path }))
    };
    answer(result.await)
}

/// `DELETE /fs/rm`.
pub(super) async fn rm(asked: &Asked<'_>) -> Reply {
    let result = async {
        let (path, recursive) = (path(asked)?, flag(asked, "recursive", false)?);
        let script = r#"[ -e "$1" ] || [ -L "$1" ] || exit 94
            if [ "$2" = true ]; then rm -rf -- "$1"
            elif [ -d "$1" ]; then rmdir -- "$1" 2>/dev/null || exit 96
            else rm -- "$1"; fi"#;
        run(asked, script, (&[path, if recursive { "true" } else { "false" }], None)).await?;
        Ok(json!({ "path": path }))
    };
    answer(result.await)
}

/// One line of `stat`: kind, size, time, mode, ids, then the link's target and the name, each ended by a NUL byte.
const SHOW: &str = r#"show() { stat -c '%F|%s|%Y|%a|%u|%g' -- "$1" | tr -d '\n'; printf '|%s\0%s\0' "$(readlink -- "$1")" "$2"; }
"#;

fn shown(record: &[&str]) -> Option<Value> {
    let [facts, name] = record else { return None };
    let mut fields = facts.splitn(7, '|');
    let mut field = || fields.next().unwrap_or_default();
    let (kind, size, time, mode, uid, gid, target) = (field(), field(), field(), field(), field(), field(), field());
    let kind = match kind {
        "directory" => "dir",
        "symbolic link" => "symlink",
        kind if kind.starts_with("regular") => "file",
        _ => "other",
    };
    let time = time.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    Some(json!({ "name": name, "type": kind, "size": number(size), "mtime": time.map(|time| time.to_string()),
        "mode": format!("{mode:0>4}"), "uid": number(uid), "gid": number(gid),
        "symlink_target": if target.is_empty() { Value::Null } else { json!(target) } }))
}

fn records(out: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(out);
    let parts: Vec<&str> = text.split('\0').collect();
    parts.chunks(2).filter_map(shown).collect()
}

/// `GET /fs/stat`.
pub(super) async fn stat(asked: &Asked<'_>) -> Reply {
    let result = async {
        let path = path(asked)?;
        let script = format!("{SHOW}[ -e \"$1\" ] || [ -L \"$1\" ] || exit 94; show \"$1\" x");
        let out = run(asked, &script, (&[path], None)).await?;
        let mut facts = records(&out).into_iter().next().unwrap_or_default();
        if let Some(fields) = facts.as_object_mut() {
            fields.remove("name");
            fields.insert("path".into(), json!(path));
        }
        Ok(facts)
    };
    answer(result.await)
}

/// `GET /fs/ls`.
pub(super) async fn ls(asked: &Asked<'_>) -> Reply {
    let result = async {
        let (path, recursive) = (path(asked)?, flag(asked, "recursive", false)?);
        let Some(most) = asked.parameter("max_entries").map_or(Some(1000), |text| text.parse::<usize>().ok()) else {
            return Err(Box::new(asked.mistake("max_entries is a number")));
        };
        let script = format!(
            r#"{SHOW}[ -d "$1" ] || exit 94; cd -- "$1" || exit 94
            walk() {{ for one in "$1"* "$1".[!.]*; do [ -e "$one" ] || [ -L "$one" ] || continue; show "./$one" "$one"
                [ "$2" = true ] && [ -d "$one" ] && [ ! -L "$one" ] && walk "$one/" true; done; }}
            walk "" "$2"; :"#
        );
        let out = run(asked, &script, (&[path, if recursive { "true" } else { "false" }], None)).await?;
        let mut entries = records(&out);
        let truncated = entries.len() > most;
        entries.truncate(most);
        for fields in entries.iter_mut().filter_map(Value::as_object_mut) {
            fields.remove("uid");
            fields.remove("gid");
        }
        Ok(json!({ "path": path, "entries": entries, "truncated": truncated }))
    };
    answer(result.await)
}
