//! Commands in the background.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Asked;
use super::exec::{Pid, end, new_id};
use super::request::{ExecRequest, Started};
use crate::machine::{End, Event, Outcome, Stop, Stream};
use crate::polyaxon::reply::{self, Reply};

/// Most bytes kept of each stream. A guess.
const CAP: usize = 16 << 20;
/// Signals that may be sent.
const SIGNALS: [&str; 8] = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGCONT"];

/// A command in the background.
pub(in crate::polyaxon) struct Background {
    id: String,
    tag: Option<String>,
    started_at: Timestamp,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pid: Option<u64>,
    streams: [Vec<u8>; 2],
    totals: [usize; 2],
    end: Option<Ended>,
}

struct Ended {
    state: &'static str,
    at: Timestamp,
    millis: u64,
    code: Option<i32>,
    signal: Option<String>,
}

impl Background {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(0)
    }

    fn finish(&self, outcome: Option<&Outcome>) {
        let (code, signal) = outcome.map(end).unwrap_or_default();
        let state = match outcome {
            None => "orphaned",
            Some(outcome) if outcome.stopped == Some(Stop::Deadline) => "timed_out",
            Some(outcome) => match outcome.end {
                End::Exited(_) => "exited",
                End::Signalled(_) => "signaled",
                End::NotStarted(_) | End::TransferFailed(_) => "failed_to_start",
            },
        };
        self.lock().end = Some(Ended { state, at: Timestamp::now(), millis: self.millis(), code, signal });
    }

    fn shown(&self) -> Value {
        let state = self.lock();
        let end = state.end.as_ref();
        json!({
            "exec_id": self.id, "pid": state.pid, "state": end.map_or("running", |end| end.state),
            "started_at": self.started_at.to_string(), "finished_at": end.map(|end| end.at.to_string()),
            "duration_ms": end.map_or_else(|| self.millis(), |end| end.millis), "exit_code": end.and_then(|end| end.code),
            "signal": end.and_then(|end| end.signal.clone()), "stdout_bytes": state.totals[0],
            "stderr_bytes": state.totals[1], "tag": self.tag,
        })
    }

    async fn run(self: Arc<Self>, mut started: Started) {
        let (feed, mut pid) = (started.feed(), Pid::default());
        let Started { mut running, .. } = started;
        let read = async {
            loop {
                match running.next().await {
                    Ok(Some(Event::Output(stream, bytes))) => {
                        let (index, own) = match stream {
                            Stream::Stdout => (0, pid.strip(&bytes)),
                            Stream::Stderr => (1, bytes.as_slice()),
                        };
                        let mut state = self.lock();
                        state.pid = pid.pid;
                        state.totals[index] += own.len();
                        let room = CAP.saturating_sub(state.streams[index].len()).min(own.len());
                        state.streams[index].extend_from_slice(&own[..room]);
                    }
                    Ok(Some(Event::Omitted(..))) => {}
                    Ok(None) => break,
                    Err(_) => return self.finish(None),
                }
            }
            self.finish(running.outcome().await.ok().as_ref());
        };
        tokio::join!(read, feed);
    }
}

/// `POST /exec/bg`.
pub(super) async fn start(asked: &Asked<'_>, body: &[u8]) -> Reply {
    let request = match ExecRequest::read(asked, body, true) {
        Ok(request) => request,
        Err(refusal) => return *refusal,
    };
    let started = match request.start(asked) {
        Ok(started) => started,
        Err(refusal) => return *refusal,
    };
    let background = Arc::new(Background {
        id: new_id(),
        tag: request.tag,
        started_at: Timestamp::now(),
        began: Instant::now(),
        state: Mutex::default(),
    });
    asked.pod.background().insert(background.id.clone(), Arc::clone(&background));
    let busy = asked.pod.busy();
    let running = Arc::clone(&background);
    asked.world.emulation.tasks.spawn(async move {
        running.run(started).await;
        drop(busy);
    });
    let shown = background.shown();
    let answer = json!({ "exec_id": shown["exec_id"], "pid": shown["pid"], "started_at": shown["started_at"],
        "tag": shown["tag"] });
    reply::daemon(StatusCode::ACCEPTED, &answer)
}

/// `GET /exec/bg?tag=`.
pub(super) fn list(asked: &Asked<'_>) -> Reply {
    let tag = asked.parameter("tag");
    let all = asked.pod.background();
    let execs = all.values().filter(|one| tag.is_none_or(|tag| one.tag.as_deref() == Some(tag)));
    reply::daemon(StatusCode::OK, &json!({ "execs": execs.map(|one| one.shown()).collect::<Vec<_>>() }))
}

fn get(asked: &Asked<'_>, id: &str) -> Result<Arc<Background>, Box<Reply>> {
    let found = asked.pod.background().get(id).cloned();
    found.ok_or_else(|| Box::new(reply::refused(StatusCode::NOT_FOUND, "not_found", format!("exec {id} not found"))))
}

/// `GET /exec/bg/{id}`.
pub(super) fn status(asked: &Asked<'_>, id: &str) -> Reply {
    match get(asked, id) {
        Ok(one) => reply::daemon(StatusCode::OK, &one.shown()),
        Err(refusal) => *refusal,
    }
}

/// `GET /exec/bg/{id}/logs`. Offsets count bytes; a character cut by them is replaced. A guess.
pub(super) fn logs(asked: &Asked<'_>, id: &str) -> Reply {
    let one = match get(asked, id) {
        Ok(one) => one,
        Err(refusal) => return *refusal,
    };
    let stream = asked.parameter("stream").unwrap_or("stdout");
    let index = match stream {
        "stdout" => 0,
        "stderr" => 1,
        _ => return asked.mistake("stream must be stdout or stderr"),
    };
    let number = |name: &str, default: usize| asked.parameter(name).map_or(Some(default), |text| text.parse().ok());
    let (Some(offset), Some(most)) = (number("offset", 0), number("max_bytes", 64 << 10)) else {
        return asked.mistake("offset and max_bytes are numbers");
    };
    let shown = one.shown();
    let state = one.lock();
    let held = &state.streams[index];
    let from = offset.min(held.len());
    let to = held.len().min(from.saturating_add(most));
    let data = &held[from..to];
    reply::daemon(
        StatusCode::OK,
        &json!({ "exec_id": id, "stream": stream, "offset": from, "next_offset": to, "bytes": data.len(),
            "data": String::from_utf8_lossy(data), "eof": to == held.len(), "state": shown["state"] }),
    )
}

/// `POST /exec/bg/{id}/signal`.
pub(super) async fn signal(asked: &Asked<'_>, id: &str, body: &[u8]) -> Reply {
    let one = match get(asked, id) {
        Ok(one) => one,
        Err(refusal) => return *refusal,
    };
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let Some(signal) = body["signal"].as_str().filter(|name| SIGNALS.contains(name)) else {
        return asked.mistake("unknown signal");
    };
    let pid = one.lock().pid.map(|pid| pid.to_string());
    if let Some(pid) = pid {
        // A process that is gone already is as good.
        let name = signal.trim_start_matches("SIG");
        let _ = asked.pod.machine.tool(r#"kill -s "$1" "$2""#, &[name, &pid]).await;
    }
    reply::daemon(StatusCode::OK, &json!({}))
}

/// `DELETE /exec/bg/{id}`.
pub(super) fn delete(asked: &Asked<'_>, id: &str) -> Reply {
    match asked.pod.background().remove(id) {
        Some(_) => reply::daemon(StatusCode::OK, &json!({})),
        None => reply::refused(StatusCode::NOT_FOUND, "not_found", format!("exec {id} not found")),
    }
}
