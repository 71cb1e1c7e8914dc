//! One command from its start to its end, whatever that is.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use reqwest::Method;
use sandbox_bench_core::{Call, Completion, Error, ErrorKind, ExecReport, ExecSpec, Result, StreamReport, TreeKill};
use sandbox_bench_kit::guest::{
    Closed, Manner, Mark, Streams, Usage, kill_argv, kill_verdict, not_become, out_of_time,
};
use sandbox_bench_kit::http::{Effect, ask};
use sandbox_bench_kit::wait::winding_up;
use serde_json::json;
use tokio::time::Instant;

use crate::helper::Vm;
use crate::log::{Event, Log, Over};

/// How long the rest of the output is awaited once the command is known to have ended or was killed.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// Step of the guest's clock, `/proc/uptime`.
const GUEST_CLOCK: Duration = Duration::from_millis(10);
/// What a command that has not started leaves of the call's time for winding up.
const START_MARGIN: Duration = Duration::from_secs(1);
/// Limit for ending a command's processes. It may end after the call's deadline: the contract grants a command ten seconds
/// for winding up.
const KILL_LIMIT: Duration = Duration::from_secs(9);
/// Limit for telling the service to kill what could not be ended from inside.
const FORCE_LIMIT: Duration = Duration::from_secs(2);
/// Exit codes of `guest/enter.sh`.
const NO_DIRECTORY: i32 = 120;

/// A command at the service.
#[derive(Clone, Copy)]
pub(crate) struct Command<'a> {
    /// Where it runs.
    pub(crate) vm: Vm<'a>,
    /// The call that it belongs to.
    pub(crate) call: &'a Call,
    /// The service's id of it.
    pub(crate) id: &'a str,
    /// What its processes are known by.
    pub(crate) mark: Mark,
}

/// A command and its output.
pub(crate) struct Session<'a> {
    command: Command<'a>,
    streams: Streams<'a>,
    log: Log<'a>,
}

/// Why the wait for a command ended.
enum Ended {
    /// Everything of it has arrived.
    Closed(Closed),
    /// The output ended before that.
    Cut(Over),
    /// Its time was over.
    Deadline,
    /// The caller wants no more.
    Cancelled,
}

impl<'a> Session<'a> {
    /// A session of a command that was started.
    pub(crate) fn new(command: Command<'a>, streams: Streams<'a>, log: Log<'a>) -> Self {
        Self { command, streams, log }
    }

    /// Waits for the command's end and reports on it.
    pub(crate) async fn complete(mut self, spec: &ExecSpec) -> Result<(ExecReport, Usage)> {
        let mut closed = None;
        let completion = match self.wait(spec).await {
            Ended::Closed(facts) => {
                closed = Some(facts);
                self.settle(spec, facts).await;
                Completion::Exited { code: facts.code }
            }
            Ended::Cut(over) => self.diagnose(spec, over)?,
            Ended::Deadline => {
                let seen = !self.log.broken();
                let tree_killed = self.kill(Manner::Asked).await;
                self.only_if_started(ErrorKind::DeadlineExceeded)?;
                out_of_time(seen, tree_killed)
            }
            Ended::Cancelled => {
                let tree_killed = self.kill(Manner::Asked).await;
                self.only_if_started(ErrorKind::Cancelled)?;
                Completion::Cancelled { tree_killed }
            }
        };
        let (stdout, stderr) = self.streams.finish();
        let report = ExecReport {
            completion,
            stdout: as_text(stdout),
            stderr: as_text(stderr),
            guest_time: closed.and_then(|closed| closed.guest_time),
            resolution: Some(GUEST_CLOCK),
        };
        Ok((report, closed.map(|closed| closed.usage).unwrap_or_default()))
    }

    async fn wait(&mut self, spec: &ExecSpec) -> Ended {
        let call = self.command.call;
        let mut limit = Instant::now() + call.remaining().saturating_sub(START_MARGIN);
        let mut started = false;
        loop {
            if let Some(closed) = self.streams.closed() {
                return Ended::Closed(closed);
            }
            if !started && self.streams.opened().is_some() {
                started = true;
                limit = Instant::now() + spec.limit(call);
            }
            let over = tokio::select! {
                // The limits first: a flood of output must not keep them waiting.
                biased;
                () = call.cancel.cancelled() => return Ended::Cancelled,
                () = tokio::time::sleep_until(limit) => return Ended::Deadline,
                over = self.step() => over,
            };
            if let Some(over) = over {
                return self.streams.closed().map_or(Ended::Cut(over), Ended::Closed);
            }
        }
    }

    /// Takes the next piece of output; tells if there is none.
    async fn step(&mut self) -> Option<Over> {
        match self.log.next().await {
            Event::Output(stream, text) => {
                self.command.call.meter.received(text.len() as u64);
                self.streams.take(stream, text.as_bytes());
                None
            }
            Event::Over(over) => Some(over),
        }
    }

    /// Does `work` while output goes on arriving.
    async fn alongside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let open = !self.log.over();
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = self.step(), if open => {}
            }
        }
    }

    /// Takes what still arrives of a command that was killed, for a moment.
    async fn drain(&mut self) {
        // Running out of time is normal when a background process holds the output open.
        let _ = tokio::time::timeout(DRAIN_LIMIT, async { while self.step().await.is_none() {} }).await;
    }

    /// Ends every process of the command.
    async fn kill(&mut self, manner: Manner) -> TreeKill {
        let Command { vm, call, id, mut mark } = self.command;
        mark.unmarked_root = self.streams.opened().filter(|opened| !opened.marked).map(|opened| opened.pid);
        let argv = kill_argv(mark, manner);
        let killing = async {
            match vm
                .shell(&winding_up(call, KILL_LIMIT), "end of a command's processes", argv.get(1..).unwrap_or_default())
                .await
            {
                Ok(done) => kill_verdict(&done.stdout, mark),
                Err(error) => {
                    tracing::warn!(sandbox = vm.name, %error, "a command's processes could not be ended from inside");
                    force(vm, &winding_up(call, FORCE_LIMIT), id).await;
                    TreeKill::Unknown
                }
            }
        };
        let killed = self.alongside(killing).await;
        self.drain().await;
        killed
    }

    fn only_if_started(&self, kind: ErrorKind) -> Result<()> {
        if self.streams.opened().is_some() {
            return Ok(());
        }
        let name = self.command.vm.name;
        Err(Error::new(kind, format!("sandbox {name}: the command had not started when its time was over")))
    }

    /// After the end of a command of which everything has arrived: what it left behind goes too, if that was asked for.
    async fn settle(&mut self, spec: &ExecSpec, closed: Closed) {
        if !spec.keep_background && !closed.nothing_left && self.kill(Manner::Forced).await != TreeKill::Yes {
            tracing::warn!(sandbox = self.command.vm.name, "background processes may have survived");
        }
    }

    /// The output ended before the command's wrapper reported its end.
    fn diagnose(&self, spec: &ExecSpec, over: Over) -> Result<Completion> {
        let started = self.streams.opened().is_some();
        match over {
            Over::Exited(code) if started => Ok(Completion::Exited { code }),
            Over::Exited(code) => Err(self.refusal(spec, code)),
            Over::SandboxLost if started => Ok(Completion::SandboxLost),
            Over::SandboxLost => Err(crate::error::lost(self.command.vm.name)),
            Over::TransportLost => Ok(Completion::TransportLost),
        }
    }

    /// Why the command was not started.
    fn refusal(&self, spec: &ExecSpec, code: i32) -> Error {
        let what = format!("sandbox {}", self.command.vm.name);
        let text = self.streams.foreign_text();
        let error = |kind, why: &str| Error::new(kind, format!("{what}: {why}"));
        if let Some(error) = not_become(&what, &text) {
            return error;
        }
        match code {
            NO_DIRECTORY => {
                let directory = spec.cwd.as_deref().unwrap_or("of the sandbox itself");
                error(ErrorKind::NotFound, &format!("no such working directory: {directory}"))
            }
            126 | 127 => error(ErrorKind::Environment, &format!("commands cannot be run: {}", text.trim()))
                .hint("an image needs /bin/sh and sudo"),
            _ => {
                error(ErrorKind::Failed, &format!("the command cannot be started (exit code {code}): {}", text.trim()))
            }
        }
    }
}

/// Has the service kill the command's own process. Best effort: the service does so by itself at the command's limit.
async fn force(vm: Vm<'_>, call: &Call, id: &str) {
    let request = vm.api.of_session(Method::POST, vm.session, &["cmd", id, "kill"]).json(&json!({ "signal": 9 }));
    if let Err(error) = ask(call, "kill", Effect::Idempotent, request).await {
        tracing::warn!(sandbox = vm.name, %error, "a command could not be killed");
    }
}

/// What was lost on the way is not counted: how much was written is unknown.
fn as_text(report: StreamReport) -> StreamReport {
    StreamReport { total_bytes: None, ..report }
}
