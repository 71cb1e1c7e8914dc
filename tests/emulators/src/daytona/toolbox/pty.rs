//! `GET /process/pty/create-connect`: a terminal over a WebSocket, as the official client 0.226.1 opens it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::json;

use super::Toolbox;
use crate::daytona::extract::StrictQuery;
use crate::daytona::failure::{Answer, Failure};
use crate::daytona::state::Daytona;
use crate::machine::{End, Event, Running};

/// Offered by clients that understand control frames at the end.
const EXIT_CONTROL: &str = "X-Daytona-Pty-Exit-Control";
/// Brings environment variables: base64url of a JSON object.
const ENVS: &str = "X-Daytona-Pty-Envs~";
/// Largest number of rows and columns.
const MAX_SIZE: u16 = 1000;

pub(super) fn router() -> Router<Arc<Daytona>> {
    Router::new().route("/toolbox/{id}/process/pty/create-connect", get(create_connect))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    id: String,
    #[serde(default = "columns")]
    cols: u16,
    #[serde(default = "rows")]
    rows: u16,
    cwd: Option<String>,
}

fn columns() -> u16 {
    80
}

fn rows() -> u16 {
    24
}

async fn create_connect(
    State(daytona): State<Arc<Daytona>>,
    toolbox: Toolbox,
    StrictQuery(query): StrictQuery<Query>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Answer<Response> {
    let bad = |why: &str| Failure::daemon(StatusCode::BAD_REQUEST, "BAD_REQUEST", why).violation();
    if query.id.is_empty() || query.cols > MAX_SIZE || query.rows > MAX_SIZE {
        return Err(bad("a terminal needs an id and at most 1000 rows and columns"));
    }
    let offered = headers.get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut envs = BTreeMap::new();
    if let Some(encoded) = offered.split(',').find_map(|protocol| protocol.trim().strip_prefix(ENVS)) {
        let json = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| bad("environment is not base64url"))?;
        envs = serde_json::from_slice(&json).map_err(|_| bad("environment is not an object of strings"))?;
    }
    // `script` gives the shell a terminal of its own.
    let inner = format!("stty rows {} cols {}; exec \"$(command -v bash || echo sh)\" -i -l", query.rows, query.cols);
    let mut command = toolbox.machine.command(["script", "-qefc", inner.as_str(), "/dev/null"]);
    command.stdin = true;
    command.cwd = query.cwd.or(command.cwd);
    command.env.extend(envs);
    command.env.entry("TERM".into()).or_insert_with(|| "xterm-256color".into());
    let running = toolbox.machine.start(command)?;
    let closing = daytona.emulation.tasks.closing();
    Ok(upgrade.protocols([EXIT_CONTROL]).on_upgrade(move |socket| async move {
        closing.run_until_cancelled(terminal(socket, running)).await;
    }))
}

async fn terminal(mut socket: WebSocket, mut running: Running) {
    let connected = json!({"type": "control", "status": "connected"}).to_string();
    if socket.send(Message::Text(connected.into())).await.is_err() {
        return;
    }
    let input = running.input();
    loop {
        tokio::select! {
            event = running.next() => match event {
                Ok(Some(Event::Output(_, bytes))) => {
                    if socket.send(Message::Binary(bytes.into())).await.is_err() {
                        return;
                    }
                }
                Ok(Some(Event::Omitted(..))) => {}
                Ok(None) | Err(_) => break,
            },
            message = socket.recv() => match message {
                Some(Ok(Message::Binary(bytes))) => drop(input.send(&bytes).await),
                Some(Ok(Message::Text(text))) => drop(input.send(text.as_bytes()).await),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                // Dropping the job kills the terminal.
                _ => return,
            },
        }
    }
    let code = match running.outcome().await.map(|outcome| outcome.end) {
        Ok(End::Exited(code)) => code,
        _ => -1,
    };
    let exited = json!({"type": "control", "status": "exited", "exitCode": code}).to_string();
    let _ = socket.send(Message::Text(exited.into())).await;
    let close = if code == 0 { close_code::NORMAL } else { close_code::ERROR };
    let reason = json!({"exitCode": code}).to_string();
    let _ = socket.send(Message::Close(Some(CloseFrame { code: close, reason: reason.into() }))).await;
}
