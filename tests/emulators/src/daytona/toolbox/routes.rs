//! `/process/…`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::follow::{self, Follow};
use super::markers::{plain, split};
use super::session::{Session, SessionCommand, Stdin};
use super::{Toolbox, execute};
use crate::daytona::extract::{Strict, StrictQuery};
use crate::daytona::failure::{Answer, Failure};
use crate::daytona::state::Daytona;
use crate::faults::Flags;

/// The session of the image's own entrypoint; its id is reserved.
const ENTRYPOINT: &str = "entrypoint";
/// A synchronous command is looked after so often.
const POLL: Duration = Duration::from_millis(50);
/// The first version of the official client to which streams are shown apart.
const SPLIT_SINCE: [u64; 3] = [0, 167, 0];

pub(super) fn router() -> Router<Arc<Daytona>> {
    let session = "/toolbox/{id}/process/session";
    let command = format!("{session}/{{sid}}/command/{{cid}}");
    Router::new()
        .route("/toolbox/{id}/process/execute", post(execute::execute))
        .route(session, post(create).get(list))
        .route(&format!("{session}/entrypoint"), get(entrypoint))
        .route(&format!("{session}/entrypoint/logs"), get(entrypoint_logs))
        .route(&format!("{session}/{{sid}}"), get(one).delete(delete))
        .route(&format!("{session}/{{sid}}/exec"), post(exec))
        .route(&command, get(command_state))
        .route(&format!("{command}/logs"), get(logs))
        .route(&format!("{command}/input"), post(input))
}

/// Which form answers have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// JSON, streams apart.
    Split,
    /// One text with markers.
    Marked,
    /// One text.
    Plain,
}

fn form(headers: &HeaderMap) -> Form {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let version = text("x-daytona-sdk-version").map(|version| {
        let mut parts = version.split(['.', '-']).map(|part| part.parse::<u64>().unwrap_or_default());
        [(); 3].map(|()| parts.next().unwrap_or_default())
    });
    match version {
        Some(version) if version >= SPLIT_SINCE => Form::Split,
        _ if text("x-daytona-split-output") == Some("true") => Form::Marked,
        _ => Form::Plain,
    }
}

fn missing(what: &str) -> Failure {
    Failure::daemon(StatusCode::NOT_FOUND, "NOT_FOUND", format!("{what} not found"))
}

fn session(toolbox: &Toolbox, id: &str) -> Answer<Arc<Session>> {
    toolbox.sessions.get(id).ok_or_else(|| missing("session"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Create {
    session_id: String,
}

async fn create(toolbox: Toolbox, Strict(body): Strict<Create>) -> Answer<StatusCode> {
    if body.session_id.is_empty() || body.session_id == ENTRYPOINT {
        let message = format!("session id {:?} cannot be used", body.session_id);
        return Err(Failure::daemon(StatusCode::BAD_REQUEST, "BAD_REQUEST", message).violation());
    }
    let conflict = || Failure::daemon(StatusCode::CONFLICT, "CONFLICT", "session already exists");
    if toolbox.sessions.insert(Session::start(&toolbox.machine, body.session_id)?) {
        Ok(StatusCode::CREATED)
    } else {
        Err(conflict())
    }
}

fn shown(session: &Session) -> Value {
    let commands: Vec<_> = session.commands().iter().map(|command| command.shown()).collect();
    json!({"sessionId": session.id, "commands": commands})
}

async fn list(toolbox: Toolbox) -> Json<Vec<Value>> {
    Json(toolbox.sessions.all().iter().map(|session| shown(session)).collect())
}

async fn one(toolbox: Toolbox, Path((_, sid)): Path<(String, String)>) -> Answer<Json<Value>> {
    Ok(Json(shown(&*session(&toolbox, &sid)?)))
}

async fn delete(toolbox: Toolbox, Path((_, sid)): Path<(String, String)>) -> Answer<StatusCode> {
    let session = toolbox.sessions.remove(&sid).ok_or_else(|| missing("session"))?;
    session.end().await;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Exec {
    command: String,
    #[serde(default)]
    run_async: bool,
    #[serde(default, rename = "async")]
    legacy_async: bool,
    #[serde(default)]
    suppress_input_echo: bool,
}

async fn exec(
    toolbox: Toolbox,
    Path((_, sid)): Path<(String, String)>,
    headers: HeaderMap,
    Strict(body): Strict<Exec>,
) -> Answer {
    if body.command.trim().is_empty() {
        let message = "command cannot be empty";
        return Err(Failure::daemon(StatusCode::BAD_REQUEST, "BAD_REQUEST", message).violation());
    }
    let session = toolbox.sessions.get(&sid).ok_or_else(|| Failure::unmapped("session not found"))?;
    let detached = body.run_async || body.legacy_async;
    let input = match (detached, body.suppress_input_echo) {
        (false, _) => Stdin::Nothing,
        (true, true) => Stdin::Silent,
        (true, false) => Stdin::Echoed,
    };
    let started = session.run(body.command, input).await?;
    let command = started.ok_or_else(|| Failure::unmapped("failed to write command: write |1: broken pipe"))?;
    if detached {
        let answer = json!({"cmdId": command.id, "output": null, "stdout": null, "stderr": null, "exitCode": null});
        return Ok((StatusCode::ACCEPTED, Json(answer)).into_response());
    }
    command.finished().await;
    tokio::time::sleep(POLL).await;
    Ok(Json(done(&command, form(&headers))).into_response())
}

fn done(command: &SessionCommand, form: Form) -> Value {
    let log = command.log.text();
    let (output, stdout, stderr) = match form {
        Form::Split => {
            let parts = split(&log);
            (parts.output, Some(parts.stdout), Some(parts.stderr))
        }
        Form::Marked => (String::from_utf8_lossy(&log).into_owned(), None, None),
        Form::Plain => (String::from_utf8_lossy(&plain(&log)).into_owned(), None, None),
    };
    json!({
        "cmdId": command.id, "output": output, "stdout": stdout, "stderr": stderr, "exitCode": command.exit_code(),
    })
}

type CommandPath = Path<(String, String, String)>;

fn command(toolbox: &Toolbox, sid: &str, cid: &str) -> Answer<Arc<SessionCommand>> {
    session(toolbox, sid)?.command(cid).ok_or_else(|| missing("command"))
}

async fn command_state(toolbox: Toolbox, Path((_, sid, cid)): CommandPath) -> Answer {
    Ok(Json(command(&toolbox, &sid, &cid)?.shown()).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogQuery {
    /// Without an upgrade it follows nothing.
    #[serde(default)]
    follow: bool,
}

async fn logs(
    State(daytona): State<Arc<Daytona>>,
    Extension(flags): Extension<Flags>,
    toolbox: Toolbox,
    Path((_, sid, cid)): CommandPath,
    headers: HeaderMap,
    StrictQuery(query): StrictQuery<LogQuery>,
    follow: Option<Follow>,
) -> Answer {
    let command = command(&toolbox, &sid, &cid)?;
    if let Some(follow) = follow.filter(|_| query.follow) {
        return Ok(follow::serve(follow, &daytona, toolbox.sandbox, command, &flags));
    }
    let mut log = command.log.text();
    if let Some(length) = flags.value("truncated-output") {
        log.truncate(usize::try_from(length).unwrap_or(usize::MAX));
    }
    Ok(log_answer(&log, form(&headers)))
}

fn log_answer(log: &[u8], form: Form) -> Response {
    let text = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    match form {
        Form::Split => Json(split(log)).into_response(),
        Form::Marked => (text, log.to_vec()).into_response(),
        Form::Plain => (text, plain(log)).into_response(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputBody {
    data: String,
}

async fn input(
    toolbox: Toolbox,
    Path((_, sid, cid)): CommandPath,
    Strict(body): Strict<InputBody>,
) -> Answer<StatusCode> {
    let command = command(&toolbox, &sid, &cid)?;
    if command.exit_code().is_some() {
        let message = "command has already completed";
        return Err(Failure::daemon(StatusCode::GONE, "COMMAND_ALREADY_COMPLETED", message));
    }
    session(&toolbox, &sid)?.send(&command, &body.data).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn entrypoint(_: Toolbox) -> Json<Value> {
    Json(json!({"sessionId": ENTRYPOINT, "commands": [{"id": "entrypoint_command", "command": ""}]}))
}

async fn entrypoint_logs(_: Toolbox, headers: HeaderMap) -> Response {
    log_answer(&[], form(&headers))
}
