//! Commands whose client waits for them.

use std::convert::Infallible;
use std::time::Instant;

use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::Asked;
use super::request::{ExecRequest, Started};
use crate::machine::{End, Event, NotStarted, Outcome, Stop, Stream};
use crate::polyaxon::reply::{self, Reply};

/// Most bytes of each stream in an answer. A guess.
const CAP: usize = 1 << 20;
/// Events that may wait for a slow client.
const EVENTS: usize = 64;

/// Splits the line with the pid from the output that follows.
#[derive(Default)]
pub(super) struct Pid {
    line: Vec<u8>,
    pub(super) pid: Option<u64>,
}

impl Pid {
    /// What of a chunk of standard output is the command's own.
    pub(super) fn strip<'a>(&mut self, chunk: &'a [u8]) -> &'a [u8] {
        if self.pid.is_some() {
            return chunk;
        }
        let end = chunk.iter().position(|b| *b == b'\n');
        let (line, rest) = chunk.split_at(end.unwrap_or(chunk.len()));
        self.line.extend_from_slice(line);
        if end.is_some() {
            self.pid = String::from_utf8_lossy(&self.line).trim().parse().ok().or(Some(0));
        }
        rest.get(1..).unwrap_or_default()
    }
}

/// `POST /exec`.
pub(super) async fn blocking(asked: &Asked<'_>, body: &[u8]) -> Reply {
    let request = match ExecRequest::read(asked, body, false) {
        Ok(request) => request,
        Err(refusal) => return *refusal,
    };
    let busy = asked.pod.busy();
    let mut started = match request.start(asked) {
        Ok(started) => started,
        Err(refusal) => return *refusal,
    };
    let cap = asked.flags.value("truncated-output").map_or(CAP, |bytes| usize::try_from(bytes).unwrap_or(CAP));
    let (began, mut kept, mut totals, mut pid) = (Instant::now(), [Vec::new(), Vec::new()], [0, 0], Pid::default());
    let feed = started.feed();
    let Started { mut running, .. } = started;
    let read = async {
        while let Some(event) = running.next().await? {
            if let Event::Output(stream, bytes) = event {
                let (bytes, index) = match stream {
                    Stream::Stdout => (pid.strip(&bytes), 0),
                    Stream::Stderr => (bytes.as_slice(), 1),
                };
                totals[index] += bytes.len();
                let room = cap.saturating_sub(kept[index].len()).min(bytes.len());
                kept[index].extend_from_slice(&bytes[..room]);
            }
        }
        running.outcome().await
    };
    let outcome = tokio::join!(read, feed).0;
    drop(busy);
    match outcome {
        Ok(outcome) => match refusal(&outcome) {
            Some(refusal) => refusal,
            None => {
                let mut result = result(&outcome, began);
                for (index, name) in ["stdout", "stderr"].into_iter().enumerate() {
                    result[name] = json!(String::from_utf8_lossy(&kept[index]));
                    result[format!("{name}_truncated")] = json!(totals[index] > kept[index].len());
                }
                reply::daemon(StatusCode::OK, &result)
            }
        },
        // The container went away under it.
        Err(_) => reply::bad_gateway(),
    }
}

/// `POST /exec/stream`. The command is killed when the client goes away. A guess.
pub(super) async fn stream(asked: &Asked<'_>, body: &[u8]) -> Reply {
    let request = match ExecRequest::read(asked, body, false) {
        Ok(request) => request,
        Err(refusal) => return *refusal,
    };
    let started = match request.start(asked) {
        Ok(started) => started,
        Err(refusal) => return *refusal,
    };
    let (sender, receiver) = mpsc::channel(EVENTS);
    let busy = asked.pod.busy();
    asked.world.emulation.tasks.spawn(async move {
        tokio::select! {
            () = pump(started, &sender) => {}
            () = sender.closed() => {}
        }
        drop(busy);
    });
    let events = futures_util::stream::unfold(receiver, |mut receiver| async move {
        Some((Ok::<_, Infallible>(receiver.recv().await?), receiver))
    });
    let reply = Response::builder().status(StatusCode::OK).header(header::CONTENT_TYPE, "text/event-stream");
    reply.body(Body::from_stream(events)).unwrap_or_default()
}

async fn pump(mut started: Started, sender: &mpsc::Sender<Bytes>) {
    let (id, began, mut offsets, mut pid) = (new_id(), Instant::now(), [0, 0], Pid::default());
    let feed = started.feed();
    let Started { mut running, .. } = started;
    let send = |name: &'static str, data: Value| sender.send(Bytes::from(format!("event: {name}\ndata: {data}\n\n")));
    let read = async {
        let mut told = false;
        loop {
            match running.next().await {
                Ok(Some(Event::Output(stream, bytes))) => {
                    let (name, index, own) = match stream {
                        Stream::Stdout => ("stdout", 0, pid.strip(&bytes)),
                        Stream::Stderr => ("stderr", 1, bytes.as_slice()),
                    };
                    if !told && pid.pid.is_some() {
                        told = true;
                        let _ = send("start", json!({ "exec_id": id, "pid": pid.pid })).await;
                    }
                    if !own.is_empty() {
                        let text = String::from_utf8_lossy(own);
                        let _ = send(name, json!({ "text": text, "offset": offsets[index] })).await;
                        offsets[index] += own.len();
                    }
                }
                Ok(Some(Event::Omitted(..))) => {}
                Ok(None) => break,
                // The container went away: the stream breaks off.
                Err(_) => return,
            }
        }
        let Ok(outcome) = running.outcome().await else { return };
        if let End::NotStarted(why) = &outcome.end {
            let _ = send("error", json!({ "message": why.to_string() })).await;
        }
        let mut end = result(&outcome, began);
        end["exec_id"] = json!(id);
        let _ = send("execution_complete", end).await;
    };
    tokio::join!(read, feed);
}

pub(super) fn new_id() -> String {
    format!("exec-{}", Uuid::new_v4().simple())
}

/// A command that was not started at all.
pub(super) fn refusal(outcome: &Outcome) -> Option<Reply> {
    let End::NotStarted(why) = &outcome.end else { return None };
    let code = if matches!(why, NotStarted::NoDirectory { .. }) { "invalid_workdir" } else { "start_failed" };
    Some(reply::refused(StatusCode::BAD_REQUEST, code, why.to_string()))
}

/// The end of a command in the daemon's form.
pub(super) fn result(outcome: &Outcome, began: Instant) -> Value {
    let timed_out = outcome.stopped == Some(Stop::Deadline);
    let (code, signal) = end(outcome);
    json!({
        "exec_id": new_id(), "exit_code": code, "signal": signal,
        "duration_ms": u64::try_from(began.elapsed().as_millis()).unwrap_or(0), "timed_out": timed_out,
        "stdout_truncated": false, "stderr_truncated": false,
    })
}

/// Exit code and signal; how the daemon spells signals is a guess.
pub(super) fn end(outcome: &Outcome) -> (Option<i32>, Option<String>) {
    match outcome.end {
        End::Exited(code) => (Some(code), None),
        End::Signalled(number) => (None, Some(name(number))),
        End::NotStarted(_) | End::TransferFailed(_) => (Some(127), None),
    }
}

fn name(signal: i32) -> String {
    match signal {
        1 => "SIGHUP".into(),
        2 => "SIGINT".into(),
        9 => "SIGKILL".into(),
        11 => "SIGSEGV".into(),
        15 => "SIGTERM".into(),
        other => other.to_string(),
    }
}
