//! Files, as the default user of the sandbox: unpack an archive, read one file, make a directory.

use std::io::{self, Seek};
use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::Vercel;
use super::error::{ApiError, Result};
use super::request::{MakeDirectory, ReadFile};
use super::routes::{Answer, Ask};
use super::session::{Host, Session};
use crate::machine::{Command, Done, End, Event, Running};

/// Unpacks what arrives below `$1`; modes are those of the archive, its owners do not matter.
const UNPACK: &str = r#"mkdir -p -- "$1" && exec tar -xpf - --no-same-owner -C "$1""#;
/// 44: there is none; 45: a directory; 46: not readable.
const LOOK: &str = r#"[ -e "$1" ] || exit 44; [ ! -d "$1" ] || exit 45; [ -r "$1" ] || exit 46"#;
const MKDIR: &str = r#"exec mkdir ${2:+-p} -- "$1""#;
/// Bytes handed to a machine at one time.
const CHUNK: usize = 64 << 10;

impl Vercel {
    pub(super) async fn write_files(&self, id: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        let header = |name: &str| ask.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if header(header::CONTENT_TYPE.as_str()).as_deref() != Some("application/gzip") {
            return Err(ApiError::violation("Invalid request: `content-type` should be `application/gzip`."));
        }
        let target = header("x-cwd");
        if target.as_ref().is_some_and(|target| !target.starts_with('/')) {
            return Err(ApiError::violation("Invalid request: `x-cwd` should be an absolute path."));
        }
        let session = self.world().session(id)?;
        session.need_running()?;
        let (archive, size) = spool(ask.into_body()).await?;
        let archive = tokio::task::spawn_blocking(move || checked(archive)).await.map_err(ApiError::internal)??;
        session.count_transfer(size, 0);
        let target = target.unwrap_or_else(|| session.host.cwd.clone());
        unpack(&session.host, &target, archive).await?;
        Answer::ok(json!({}))
    }

    pub(super) async fn read_file(&self, id: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        let as_json = ask.flags.has("read-json");
        let ReadFile { path, cwd } = ask.json(&[]).await?;
        let session = self.world().session(id)?;
        session.need_running()?;
        if as_json {
            return Answer::ok(json!({ "message": "a gateway's answer" }));
        }
        let path = absolute(&session.host, cwd.as_deref(), &path);
        match run(&session.host, LOOK, &[&path]).await?.end {
            End::Exited(0) => {}
            End::Exited(44) => return Err(ApiError::not_found(format!("File `{path}`"))),
            End::Exited(45) => return Err(file_error(&format!("{path}: Is a directory"))),
            _ => return Err(file_error(&format!("{path}: Permission denied"))),
        }
        let machine = &session.host.machine;
        let running = machine.start(machine.command(["cat", "--", &path])).map_err(|_| ApiError::stopped())?;
        let body = Body::from_stream(content(running, Arc::clone(&session)));
        Ok(Answer::Raw(([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response()))
    }

    pub(super) async fn make_directory(&self, id: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        let MakeDirectory { path, cwd, recursive } = ask.json(&[]).await?;
        let session = self.world().session(id)?;
        session.need_running()?;
        let path = absolute(&session.host, cwd.as_deref(), &path);
        let done = run(&session.host, MKDIR, &[&path, if recursive { "yes" } else { "" }]).await?;
        need_success(&done)?;
        Answer::ok(json!({}))
    }
}

/// A path as the request means it: relative to `cwd`, and that to the session's.
fn absolute(host: &Host, cwd: Option<&str>, path: &str) -> String {
    let path = Path::new(&host.cwd).join(cwd.unwrap_or_default()).join(path);
    path.to_string_lossy().into_owned()
}

async fn run(host: &Host, script: &str, arguments: &[&str]) -> Result<Done> {
    let shell = ["/bin/sh", "-c", script, "files"];
    let argv = shell.iter().chain(arguments).copied();
    let command = Command { cwd: Some("/".to_owned()), ..host.machine.command(argv) };
    host.machine.run(command, None).await.map_err(|_| ApiError::stopped())
}

fn need_success(done: &Done) -> Result<()> {
    match done.end {
        End::Exited(0) => Ok(()),
        _ => Err(file_error(String::from_utf8_lossy(&done.stderr).trim())),
    }
}

/// The code that the official Python client 0.10.0 looks for; the status is not documented.
fn file_error(message: &str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "file_error", message)
}

/// The body on disk, and its size in bytes.
async fn spool(body: Body) -> Result<(std::fs::File, u64)> {
    let file = tempfile::tempfile().map_err(ApiError::internal)?;
    let mut to = tokio::fs::File::from_std(file);
    let mut body = body.into_data_stream();
    let mut size = 0;
    while let Some(part) = body.next().await {
        let part = part.map_err(|error| ApiError::bad_request(format!("The body ended early: {error}")))?;
        size += part.len() as u64;
        tokio::io::AsyncWriteExt::write_all(&mut to, &part).await.map_err(ApiError::internal)?;
    }
    tokio::io::AsyncWriteExt::flush(&mut to).await.map_err(ApiError::internal)?;
    let mut file = to.into_std().await;
    file.rewind().map_err(ApiError::internal)?;
    Ok((file, size))
}

/// Unzips an archive and looks at each header: ustar and pax are known to be taken by the vendor, GNU's extensions are
/// not.
fn checked(archive: std::fs::File) -> Result<std::fs::File> {
    let broken = |error: io::Error| ApiError::bad_request(format!("The archive is broken: {error}"));
    let mut plain = tempfile::tempfile().map_err(ApiError::internal)?;
    io::copy(&mut MultiGzDecoder::new(archive), &mut plain).map_err(broken)?;
    plain.rewind().map_err(ApiError::internal)?;
    let mut tar = tar::Archive::new(&plain);
    for entry in tar.entries().map_err(broken)?.raw(true) {
        let entry = entry.map_err(broken)?;
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_gnu_sparse() {
            return Err(ApiError::violation("Invalid archive: GNU extensions; use ustar or pax."));
        }
        let path = entry.path().map_err(broken)?;
        if path.components().any(|part| matches!(part, std::path::Component::ParentDir)) {
            return Err(ApiError::bad_request(format!("Invalid archive: `{}` leads out of it.", path.display())));
        }
    }
    plain.rewind().map_err(ApiError::internal)?;
    Ok(plain)
}

async fn unpack(host: &Host, target: &str, archive: std::fs::File) -> Result<()> {
    let command = host.machine.command(["/bin/sh", "-c", UNPACK, "unpack", target]);
    let command = Command { stdin: true, cwd: Some("/".to_owned()), output_cap: 1 << 16, ..command };
    let running = host.machine.start(command).map_err(|_| ApiError::stopped())?;
    let input = running.input();
    let feed = async {
        let mut archive = tokio::fs::File::from_std(archive);
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = archive.read(&mut chunk).await?;
            let bytes = chunk.get(..read).unwrap_or_default();
            if read == 0 || !input.send(bytes).await {
                break;
            }
        }
        input.end();
        Ok::<_, io::Error>(())
    };
    let (fed, output) = tokio::join!(feed, running.output());
    fed.map_err(ApiError::internal)?;
    let (outcome, stdout, stderr) = output.map_err(|_| ApiError::stopped())?;
    need_success(&Done { end: outcome.end, timed_out: false, stdout, stderr })
}

/// What a command writes, counted as leaving the machine.
fn content(running: Running, session: Arc<Session>) -> impl futures_util::Stream<Item = io::Result<Bytes>> {
    stream::unfold((running, session), |(mut running, session)| async move {
        loop {
            match running.next().await {
                Ok(Some(Event::Output(_, bytes))) => {
                    session.count_transfer(0, bytes.len() as u64);
                    return Some((Ok(Bytes::from(bytes)), (running, session)));
                }
                Ok(Some(Event::Omitted(..))) => {}
                Ok(None) => return None,
                Err(error) => return Some((Err(io::Error::other(error)), (running, session))),
            }
        }
    })
}
