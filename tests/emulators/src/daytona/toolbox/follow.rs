//! The log of a session command over a WebSocket.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::Response;

use super::session::SessionCommand;
use crate::daytona::failure::Failure;
use crate::daytona::sandbox::Sandbox;
use crate::daytona::state::Daytona;
use crate::faults::Flags;

/// Largest frame.
const FRAME: usize = 1024;
/// A browser passes the client's version as a subprotocol that begins like this, and gets it back.
const VERSION_PROTOCOL: &str = "X-Daytona-SDK-Version";

/// A request to upgrade.
pub(super) struct Follow(WebSocketUpgrade);

impl<S: Send + Sync> OptionalFromRequestParts<S> for Follow {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Option<Follow>, Failure> {
        // The daemon compares the value as it is.
        if parts.headers.get(header::UPGRADE).is_none_or(|value| value != "websocket") {
            return Ok(None);
        }
        let upgrade = WebSocketUpgrade::from_request_parts(parts, state).await;
        let upgrade = upgrade.map_err(|error| Failure::unmapped(error.body_text()).violation())?;
        Ok(Some(Follow(with_protocol(upgrade, parts))))
    }
}

fn with_protocol(upgrade: WebSocketUpgrade, parts: &Parts) -> WebSocketUpgrade {
    let offered = parts.headers.get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok());
    let mut protocols = offered.unwrap_or_default().split(',').map(|protocol| protocol.trim().to_owned());
    match protocols.find(|protocol| protocol.starts_with(VERSION_PROTOCOL)) {
        Some(protocol) => upgrade.protocols([protocol]),
        None => upgrade,
    }
}

pub(super) fn serve(
    Follow(upgrade): Follow,
    daytona: &Daytona,
    sandbox: Arc<Sandbox>,
    command: Arc<SessionCommand>,
    flags: &Flags,
) -> Response {
    let silence = daytona.options.log_silence;
    let limit = flags.value("truncated-output").and_then(|length| usize::try_from(length).ok());
    let closing = daytona.emulation.tasks.closing();
    upgrade.on_upgrade(move |socket| async move {
        let streaming = stream(socket, sandbox, command, silence, limit);
        closing.run_until_cancelled(streaming).await;
    })
}

/// Sends what comes until the command has ended and a while has passed in silence.
async fn stream(
    mut socket: WebSocket,
    sandbox: Arc<Sandbox>,
    command: Arc<SessionCommand>,
    silence: Duration,
    limit: Option<usize>,
) {
    let mut sent = 0;
    loop {
        sandbox.touch();
        let part = tokio::select! {
            // The proxy loses its connection, and the client with it.
            () = sandbox.down() => return,
            part = tokio::time::timeout(silence, next(&command, sent)) => part,
            message = socket.recv() => match message {
                // Pings are answered by the library.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                _ => return,
            },
        };
        let Ok(part) = part else {
            if command.exit_code().is_some() {
                break;
            }
            continue;
        };
        let left = limit.map_or(part.len(), |limit| limit.saturating_sub(sent).min(part.len()));
        sent += part.len();
        for frame in part.get(..left).unwrap_or_default().chunks(FRAME) {
            if socket.send(Message::Binary(frame.to_vec().into())).await.is_err() {
                return;
            }
        }
    }
    let close = CloseFrame { code: close_code::NORMAL, reason: "".into() };
    let _ = socket.send(Message::Close(Some(close))).await;
}

/// What was added after the first `sent` bytes. When nothing more will be, it waits forever.
async fn next(command: &SessionCommand, sent: usize) -> Vec<u8> {
    let part = command.log.after(sent).await;
    if part.is_empty() {
        std::future::pending::<()>().await;
    }
    part
}
