//! Commands: started once, their output read from the beginning by anybody.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use super::{Refusal, Service};
use crate::machine::{Command, End, Event, NotStarted, Running, Stream, User};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    stdin: Option<String>,
}

/// A command that was started, and all that it wrote.
pub(super) struct Process {
    log: Mutex<Log>,
    grown: watch::Sender<()>,
}

#[derive(Default)]
struct Log {
    pieces: Vec<(Stream, Bytes)>,
    over: bool,
    /// None if its sandbox ended under it.
    code: Option<i32>,
}

impl Process {
    fn change(&self, change: impl FnOnce(&mut Log)) {
        change(&mut self.log());
        self.grown.send_replace(());
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn start(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let asked: Start = service.parse("POST /v1/sandboxes/{name}/commands", &body)?;
    let invalid = |why: &str| Refusal(StatusCode::BAD_REQUEST, "invalid_request", why.to_owned());
    let stdin = asked.stdin.map(|text| STANDARD.decode(text)).transpose().map_err(|_| invalid("stdin is no base64"))?;
    let sandbox = service.sandbox(&name)?;
    let machine = sandbox.machine()?;
    let command = Command {
        env: asked.env,
        cwd: Some("/".to_owned()),
        user: User::Root,
        stdin: stdin.is_some(),
        output_cap: usize::MAX,
        ..Command::new(asked.argv)
    };
    let running = machine.start(command).map_err(Refusal::internal)?;
    let process = Arc::new(Process { log: Mutex::default(), grown: watch::Sender::new(()) });
    let id = Uuid::new_v4().simple().to_string();
    sandbox.add(id.clone(), Arc::clone(&process));
    service.emulation.tasks.spawn(attend(process, running, stdin));
    Ok((StatusCode::CREATED, Json(json!({ "id": id }))))
}

/// Feeds a command and takes its output to its end.
async fn attend(process: Arc<Process>, mut running: Running, stdin: Option<Vec<u8>>) {
    let input = running.input();
    let feed = async {
        input.send(&stdin.unwrap_or_default()).await;
        input.end();
    };
    let take = async {
        while let Ok(Some(event)) = running.next().await {
            if let Event::Output(stream, bytes) = event {
                process.change(|log| log.pieces.push((stream, bytes.into())));
            }
        }
        running.outcome().await.ok().map(|outcome| exit_code(&outcome.end))
    };
    let ((), code) = tokio::join!(feed, take);
    process.change(|log| (log.over, log.code) = (true, code));
}

/// What a shell would say.
fn exit_code(end: &End) -> i32 {
    match end {
        End::Exited(code) => *code,
        End::Signalled(signal) => 128 + signal,
        End::NotStarted(NotStarted::NoProgram { .. }) => 127,
        End::NotStarted(_) | End::TransferFailed(_) => 126,
    }
}

pub(super) async fn output(
    State(service): State<Arc<Service>>,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let sandbox = service.sandbox(&name)?;
    sandbox.machine()?;
    let process = sandbox.process(&id).ok_or_else(|| Refusal::missing("command", &id))?;
    let grown = process.grown.subscribe();
    // The place of the next line; none after the last one.
    let lines = stream::unfold((process, grown, Some(0)), |(process, mut grown, place)| async move {
        let place = place?;
        loop {
            let ready = line(&process.log(), place);
            if let Some((line, next)) = ready {
                let line = line.map_or_else(Bytes::new, |line| Bytes::from(format!("{line}\n")));
                return Some((Ok::<_, Infallible>(line), (process, grown, next)));
            }
            // The sender lives as long as the process that we hold.
            let _ = grown.changed().await;
        }
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// The line at this place and the place after it; none if it is still to come. The last line of a command whose sandbox
/// was lost is empty: its output just ends.
fn line(log: &Log, place: usize) -> Option<(Option<Value>, Option<usize>)> {
    if let Some((stream, bytes)) = log.pieces.get(place) {
        let stream = if *stream == Stream::Stdout { "stdout" } else { "stderr" };
        return Some((Some(json!({ "stream": stream, "data": STANDARD.encode(bytes) })), Some(place + 1)));
    }
    log.over.then(|| (log.code.map(|code| json!({ "exit": code })), None))
}
