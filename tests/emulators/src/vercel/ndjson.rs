//! Streams of JSON lines: what a command says, and its end.

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::process::{Finish, Follower, Line, Seen};
use crate::{Flags, Tasks};

/// Official clients compare the whole value: a charset after it is refused.
const CONTENT_TYPE: &str = "application/x-ndjson";
/// Lines on their way to a client that does not read.
const QUEUE: usize = 16;

/// What a stream holds.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// The command itself, as it begins and as it has ended, around its output.
    pub(super) command: bool,
    /// The output.
    pub(super) logs: bool,
}

/// Answers with a process from its beginning to its end.
pub(super) fn stream_of(tasks: &Tasks, follower: Follower, shape: Shape, flags: Flags) -> Response {
    let (lines, received) = mpsc::channel::<Bytes>(QUEUE);
    let content_type = if flags.has("charset") { "application/x-ndjson; charset=utf-8" } else { CONTENT_TYPE };
    tasks.spawn(async move {
        let gone = lines.clone();
        tokio::select! {
            // A client that went away takes no more lines, also of a command that says nothing.
            () = gone.closed() => {}
            _ = write(lines, follower, shape, &flags) => {}
        }
    });
    let body = stream::unfold(received, |mut received| async {
        let line = received.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(line), received))
    });
    ([(header::CONTENT_TYPE, content_type)], Body::from_stream(body)).into_response()
}

/// `None` when the client has gone.
async fn write(to: mpsc::Sender<Bytes>, mut follower: Follower, shape: Shape, flags: &Flags) -> Option<()> {
    let send = async |value: Value, newline: bool| {
        let end = if newline { "\n" } else { "" };
        to.send(Bytes::from(format!("{value}{end}"))).await.ok()
    };
    if shape.command {
        send(json!({ "command": follower.process.view_as(None) }), true).await?;
    }
    let mut left = flags.value("stream-error");
    loop {
        if left == Some(0) {
            return send(closed(), true).await;
        }
        match follower.next().await {
            Seen::Line(line) if shape.logs => send(shown(line, flags), true).await?,
            Seen::Line(_) => {}
            Seen::Finish(Finish::Lost) => return send(closed(), true).await,
            Seen::Finish(_) if flags.has("early-end") => return Some(()),
            Seen::Finish(finish @ Finish::Exited { .. }) if shape.command => {
                let command = json!({ "command": follower.process.view_as(Some(finish)) });
                return send(command, !flags.has("no-final-newline")).await;
            }
            Seen::Finish(Finish::Exited { .. }) => return Some(()),
        }
        left = left.map(|left| left - 1);
    }
}

fn shown(line: Line, flags: &Flags) -> Value {
    let mut shown = json!(line);
    if flags.has("unknown-stream") {
        shown["stream"] = json!("stdmix");
    }
    if flags.has("extra-keys") {
        shown["sequence"] = json!(1);
    }
    shown
}

fn closed() -> Value {
    let message = "Sandbox stream was closed and is not accepting commands.";
    json!({ "stream": "error", "data": { "code": "sandbox_stream_closed", "message": message } })
}
