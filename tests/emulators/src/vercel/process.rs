//! Processes of a session: started once, followed by any number of readers from the beginning.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use super::session::now_ms;
use super::text::Decoder;
use crate::machine::{Command, End, Event, Input, MachineError, NotStarted, Outcome, Running, Stream};

/// Bytes kept of each stream of a process: the beginning, and at the end a tail.
pub(super) const OUTPUT_CAP: usize = 16 << 20;
/// Added to a signal's number to make an exit code, as shells do.
const BY_SIGNAL: i32 = 128;

/// A command that was started.
pub(super) struct Process {
    pub(super) id: String,
    program: String,
    args: Vec<String>,
    cwd: String,
    session_id: String,
    /// Milliseconds since the epoch.
    started_at: u64,
    /// As whom it runs and where, for what has to find it again.
    pub(super) template: Command,
    input: Option<Input>,
    /// Bytes of input taken; held while more are sent, so that they stay in order.
    pub(super) taken: tokio::sync::Mutex<u64>,
    log: Mutex<Log>,
    grown: watch::Sender<()>,
    killed: Notify,
    cpu_us: AtomicU64,
}

#[derive(Default)]
struct Log {
    lines: Vec<Line>,
    finish: Option<Finish>,
}

/// A piece of output on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    pub(super) stream: &'static str,
    pub(super) data: Arc<str>,
}

/// How a process is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    Exited {
        code: i32,
        duration_ms: u64,
    },
    /// The machine ended under it.
    Lost,
}

/// What a reader sees next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Line(Line),
    Finish(Finish),
}

/// What a process is to be told of at its start.
pub(super) struct Start {
    pub(super) id: String,
    pub(super) session_id: String,
    /// As requested, without what the emulator adds.
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) cwd: String,
    pub(super) template: Command,
}

impl Process {
    /// The process, and the task that must run to its end with it.
    pub(super) fn new(
        start: Start,
        running: Running,
        limit: Option<Duration>,
    ) -> (Arc<Process>, impl Future<Output = ()> + Send + use<>) {
        let Start { id, session_id, program, args, cwd, template } = start;
        let process = Arc::new(Process {
            id,
            program,
            args,
            cwd,
            session_id,
            started_at: now_ms(),
            input: template.stdin.then(|| running.input()),
            template,
            taken: tokio::sync::Mutex::new(0),
            log: Mutex::default(),
            grown: watch::Sender::new(()),
            killed: Notify::new(),
            cpu_us: AtomicU64::new(0),
        });
        let pump = pump(Arc::clone(&process), running, limit);
        (process, pump)
    }

    /// SIGKILL for it and all that it started.
    pub(super) fn kill(&self) {
        self.killed.notify_one();
    }

    /// Its input, if it was started with one and still runs.
    pub(super) fn input(&self) -> Option<&Input> {
        self.input.as_ref().filter(|_| self.finish().is_none())
    }

    pub(super) fn finish(&self) -> Option<Finish> {
        self.lock().finish
    }

    /// CPU time of what has ended.
    pub(super) fn cpu(&self) -> Duration {
        Duration::from_micros(self.cpu_us.load(Ordering::Relaxed))
    }

    /// On the wire, as it is now.
    pub(super) fn view(&self) -> Value {
        self.view_as(self.finish())
    }

    /// On the wire, as if it were over like this, or not at all.
    pub(super) fn view_as(&self, finish: Option<Finish>) -> Value {
        let mut view = json!({
            "id": self.id,
            "name": self.program,
            "args": self.args,
            "cwd": self.cwd,
            "sessionId": self.session_id,
            "exitCode": null,
            "startedAt": self.started_at,
        });
        if let Some(Finish::Exited { code, duration_ms }) = finish {
            view["exitCode"] = json!(code);
            view["durationMs"] = json!(duration_ms);
        }
        view
    }

    /// Returns when it is over.
    pub(super) async fn finished(&self) -> Finish {
        let mut grown = self.grown.subscribe();
        loop {
            if let Some(finish) = self.finish() {
                return finish;
            }
            // The sender lives as long as we do.
            let _ = grown.changed().await;
        }
    }

    fn say(&self, stream: &'static str, data: String) {
        if !data.is_empty() {
            self.lock().lines.push(Line { stream, data: data.into() });
            self.grown.send_replace(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader of a process from its first piece of output.
pub(super) struct Follower {
    pub(super) process: Arc<Process>,
    grown: watch::Receiver<()>,
    next: usize,
}

impl Follower {
    pub(super) fn new(process: Arc<Process>) -> Follower {
        let grown = process.grown.subscribe();
        Follower { process, grown, next: 0 }
    }

    /// The next piece, when there is one; at the end, forever the end.
    pub(super) async fn next(&mut self) -> Seen {
        loop {
            {
                let log = self.process.lock();
                if let Some(line) = log.lines.get(self.next) {
                    self.next += 1;
                    return Seen::Line(line.clone());
                }
                if let Some(finish) = log.finish {
                    return Seen::Finish(finish);
                }
            }
            let _ = self.grown.changed().await;
        }
    }
}

/// Takes the output as it comes, kills when asked to or when the limit passes, and notes the end.
async fn pump(process: Arc<Process>, mut running: Running, limit: Option<Duration>) {
    let (mut out, mut err) = (Decoder::default(), Decoder::default());
    let over = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(over);
    let mut killed = false;
    // The limit begins with the request, the machine's clock with the process: a command that was ended by its limit
    // took no less.
    let mut least = Duration::ZERO;
    loop {
        let event = tokio::select! {
            event = running.next() => event,
            () = &mut over, if !killed => {
                killed = true;
                least = limit.unwrap_or_default();
                running.kill();
                continue;
            }
            () = process.killed.notified(), if !killed => {
                killed = true;
                running.kill();
                continue;
            }
        };
        match event {
            Ok(Some(Event::Output(Stream::Stdout, bytes))) => process.say("stdout", out.decode(&bytes)),
            Ok(Some(Event::Output(Stream::Stderr, bytes))) => process.say("stderr", err.decode(&bytes)),
            Ok(Some(Event::Omitted(..))) => {}
            Ok(None) | Err(_) => break,
        }
    }
    process.say("stdout", out.finish());
    process.say("stderr", err.finish());
    let outcome = running.outcome().await.map_err(MachineError::from);
    if let Ok(Outcome { end: End::NotStarted(why), .. }) = &outcome {
        process.say("stderr", format!("{why}\n"));
    }
    let finish = match outcome {
        Ok(outcome) => {
            let cpu = outcome.cpu_user + outcome.cpu_system;
            process.cpu_us.store(cpu.as_micros() as u64, Ordering::Relaxed);
            Finish::Exited { code: exit_code(&outcome.end), duration_ms: outcome.wall.max(least).as_millis() as u64 }
        }
        Err(_) => Finish::Lost,
    };
    process.lock().finish = Some(finish);
    process.grown.send_replace(());
}

/// What a shell would say.
fn exit_code(end: &End) -> i32 {
    match end {
        End::Exited(code) => *code,
        End::Signalled(signal) => BY_SIGNAL + signal,
        End::NotStarted(NotStarted::NoProgram { .. }) => 127,
        End::NotStarted(_) | End::TransferFailed(_) => 126,
    }
}
