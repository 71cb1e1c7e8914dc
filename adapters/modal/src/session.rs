//! One command from its start to its end, whatever that is.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use sandbox_bench_core::{Call, Completion, Error, ErrorKind, ExecReport, ExecSpec, Result, TreeKill};
use sandbox_bench_kit::guest::{
    Closed, Manner, Mark, Streams, Usage, kill_argv, kill_verdict, not_become, out_of_time,
};
use sandbox_bench_kit::wait::winding_up;
use tokio::time::Instant;

use crate::error;
use crate::guest::{SAID_LIMIT, as_root};
use crate::output::{Event, Output, Over};
use crate::proto::task_command_router::TaskExecStdioFileDescriptor;
use crate::router::{Exit, Gone, Router};
use crate::stdin::{self, Fed};

/// How long the rest of the output is awaited once the command is known to have ended or was killed.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// How long the wrapper's last words are awaited once its process has ended. A background process may keep the streams open.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// Step of the guest's clock, `/proc/uptime`.
const GUEST_CLOCK: Duration = Duration::from_millis(10);
/// What a command that has not started leaves of the call's time for winding up.
const START_MARGIN: Duration = Duration::from_secs(1);
/// Limit for ending a command's processes. It may end after the call's deadline: the contract grants a command ten seconds
/// for winding up.
const KILL_LIMIT: Duration = Duration::from_secs(9);
/// Limit for seeing whether the router can be reached at all.
const REACH_LIMIT: Duration = Duration::from_secs(1);
/// The exit code of a process that was ended by SIGKILL, by the shell's convention.
const KILLED: i32 = 137;
/// Exit codes of `guest/enter.sh` and `guest/spool.sh`.
const NO_DIRECTORY: i32 = 120;

/// A command at the service.
#[derive(Clone, Copy)]
pub(crate) struct Command<'a> {
    /// The router of its sandbox.
    pub(crate) router: &'a Router,
    /// The call that it belongs to.
    pub(crate) call: &'a Call,
    /// Its id.
    pub(crate) exec: &'a str,
    /// What its processes are known by.
    pub(crate) mark: Mark,
}

/// A command and its output.
pub(crate) struct Session<'a> {
    command: Command<'a>,
    streams: Streams<'a>,
    output: Output<'a>,
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
    pub(crate) fn new(command: Command<'a>, streams: Streams<'a>, output: Output<'a>) -> Self {
        Self { command, streams, output }
    }

    /// Waits for the command's end and reports on it.
    pub(crate) async fn complete(mut self, spec: &ExecSpec) -> Result<(ExecReport, Usage)> {
        let mut closed = None;
        let completion = match self.wait(spec).await {
            Ended::Closed(facts) => {
                closed = Some(facts);
                self.settle(spec, facts).await
            }
            Ended::Cut(over) => self.diagnose(spec, over).await?,
            Ended::Deadline => {
                let tree_killed = self.kill(Manner::Asked).await;
                self.only_if_started(ErrorKind::DeadlineExceeded)?;
                let seen = tree_killed != TreeKill::Unknown || reached(self.command).await;
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
            stdout,
            stderr,
            guest_time: closed.and_then(|closed| closed.guest_time),
            resolution: Some(GUEST_CLOCK),
        };
        Ok((report, closed.map(|closed| closed.usage).unwrap_or_default()))
    }

    async fn wait(&mut self, spec: &ExecSpec) -> Ended {
        let Command { router, call, exec, .. } = self.command;
        let mut limit = Instant::now() + call.remaining().saturating_sub(START_MARGIN);
        let (mut started, mut last_words) = (false, None);
        call.meter.sent(spec.stdin.as_ref().map_or(0, |bytes| bytes.len() as u64));
        let mut feed = pin!(feed(router, call, exec, spec.stdin.clone()));
        loop {
            if let Some(closed) = self.streams.closed() {
                return Ended::Closed(closed);
            }
            if !started && self.streams.opened().is_some() {
                started = true;
                limit = Instant::now() + spec.limit(call);
            }
            let event = tokio::select! {
                // The limits first: a flood of output must not keep them waiting.
                biased;
                () = call.cancel.cancelled() => return Ended::Cancelled,
                () = tokio::time::sleep_until(limit) => return Ended::Deadline,
                () = tokio::time::sleep_until(last_words.unwrap_or(limit)), if last_words.is_some() => {
                    let over = self.output.exit().map_or(Over::TransportLost, Over::Complete);
                    return Ended::Cut(over);
                }
                never = &mut feed => match never {},
                event = self.output.next() => event,
            };
            match self.take(event) {
                Some(Event::Over(over)) => return self.streams.closed().map_or(Ended::Cut(over), Ended::Closed),
                Some(Event::Exited) => last_words = Some(Instant::now() + LAST_WORDS),
                Some(Event::Output(..)) | None => {}
            }
        }
    }

    /// Delivers output; what is none is returned.
    fn take(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Output(stream, bytes) => {
                self.command.call.meter.received(bytes.len() as u64);
                self.streams.take(stream, &bytes);
                None
            }
            event => Some(event),
        }
    }

    /// Does `work` while output goes on arriving.
    async fn alongside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let open = !self.output.over();
            let event = tokio::select! {
                biased;
                done = &mut work => return done,
                event = self.output.next(), if open => event,
            };
            self.take(event);
        }
    }

    /// Takes what still arrives of a command that was killed, for a moment.
    async fn drain(&mut self) {
        let rest = async {
            while !self.output.over() {
                let event = self.output.next().await;
                self.take(event);
            }
        };
        // Running out of time is normal when a background process holds the output open.
        let _ = tokio::time::timeout(DRAIN_LIMIT, rest).await;
    }

    /// Ends every process of the command.
    async fn kill(&mut self, manner: Manner) -> TreeKill {
        let Command { router, call, mut mark, .. } = self.command;
        mark.unmarked_root = self.streams.opened().filter(|opened| !opened.marked).map(|opened| opened.pid);
        let call = winding_up(call, KILL_LIMIT);
        let argv = as_root(kill_argv(mark, manner));
        let killing = async {
            match router.run(&call, "end of a command's processes", argv, SAID_LIMIT).await {
                Ok(done) => kill_verdict(&String::from_utf8_lossy(&done.stdout), mark),
                Err(error) => {
                    // The service does so by itself at the command's limit.
                    tracing::warn!(sandbox = router.sandbox(), %error, "a command's processes could not be ended");
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
        let what = self.command.router.what("the command had not started when its time was over");
        Err(Error::new(kind, what))
    }

    /// The end of a command of which everything has arrived: what it left behind goes too, if that was asked for.
    async fn settle(&mut self, spec: &ExecSpec, closed: Closed) -> Completion {
        if !spec.keep_background && !closed.nothing_left && self.kill(Manner::Forced).await != TreeKill::Yes {
            tracing::warn!(sandbox = self.command.router.sandbox(), "background processes may have survived");
        }
        match closed.code {
            KILLED if closed.out_of_memory == Some(true) => Completion::OutOfMemory,
            code => Completion::Exited { code },
        }
    }

    /// The output ended before the command's wrapper reported its end.
    async fn diagnose(&mut self, spec: &ExecSpec, over: Over) -> Result<Completion> {
        let router = self.command.router;
        let started = self.streams.opened().is_some();
        // A wrapper that was killed may have been killed with its sandbox.
        let killed = matches!(over, Over::Complete(exit) if exit.code() == KILLED);
        let over = match killed {
            true => router.gone(self.command.call).await.map_or(over, Over::Gone),
            false => over,
        };
        match over {
            Over::Complete(exit) if started => Ok(Completion::Exited { code: exit.code() }),
            Over::Complete(exit) => Err(self.refusal(spec, exit)),
            Over::Gone(Gone::OutOfMemory) if started => Ok(Completion::OutOfMemory),
            Over::Gone(Gone::Ended(_)) if started => Ok(Completion::SandboxLost),
            Over::Gone(gone) => Err(error::lost(router.sandbox(), &gone.to_string())),
            Over::TransportLost => Ok(Completion::TransportLost),
        }
    }

    /// Why the command was not started.
    fn refusal(&self, spec: &ExecSpec, exit: Exit) -> Error {
        let what = format!("sandbox {}", self.command.router.sandbox());
        let text = self.streams.foreign_text();
        let error = |kind, why: &str| Error::new(kind, format!("{what}: {why}"));
        if let Some(error) = not_become(&what, &text) {
            return error;
        }
        match exit.code() {
            NO_DIRECTORY => {
                let directory = spec.cwd.as_deref().unwrap_or("of the sandbox itself");
                error(ErrorKind::NotFound, &format!("no such working directory: {directory}"))
            }
            126 | 127 => error(ErrorKind::Environment, &format!("commands cannot be run: {}", text.trim()))
                .hint("an image needs /bin/sh"),
            code => {
                error(ErrorKind::Failed, &format!("the command cannot be started (exit code {code}): {}", text.trim()))
            }
        }
    }
}

/// Gives the command its stdin. Never ends, so that the caller's wait goes on.
async fn feed(router: &Router, call: &Call, exec: &str, bytes: Option<Bytes>) -> Infallible {
    if let Some(bytes) = bytes {
        match stdin::feed(router, call, exec, stream::iter([Ok(bytes)])).await {
            // A command may end without having read all; that is its own affair.
            Ok(Fed::All | Fed::Refused | Fed::Broken) => {}
            Err(over) => tracing::warn!(sandbox = router.sandbox(), ?over, "a command was not given all of its stdin"),
        }
    }
    pending().await
}

/// True if the router can be asked now.
async fn reached(Command { router, call, exec, .. }: Command<'_>) -> bool {
    let from = (exec, TaskExecStdioFileDescriptor::Stdout);
    matches!(router.read(&winding_up(call, REACH_LIMIT), from, 0).await, Ok(Ok(_)))
}
