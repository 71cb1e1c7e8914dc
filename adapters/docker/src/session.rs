//! One attached command from its start to its end, whatever that is.

use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error as EngineError;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use sandbox_bench_core::{Call, Completion, Error, ErrorKind, ExecReport, ExecSpec, Result, Stream, TreeKill};
use sandbox_bench_kit::guest::{Closed, Manner, Mark, Streams, Usage};
use sandbox_bench_kit::wait::winding_up;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use crate::client::{Engine, request, short};
use crate::{error, kill, observe};

/// How long the end of the streams is awaited once everything of the command has arrived.
const DRAIN_LIMIT: Duration = Duration::from_millis(200);
/// Step of the guest's clock, `/proc/uptime`.
const GUEST_CLOCK: Duration = Duration::from_millis(10);
/// A container that is being removed looks alive for a moment after its processes were killed.
const SECOND_LOOKS: usize = 3;
const SECOND_LOOK_PAUSE: Duration = Duration::from_millis(100);
/// What a command that has not started leaves of the call's time for winding up.
const START_MARGIN: Duration = Duration::from_secs(1);
/// Limit for each question about a command that has ended.
const WIND_UP_LIMIT: Duration = Duration::from_secs(5);
/// The exit code of a process that was ended by SIGKILL, by the shell's convention.
const KILLED: i64 = 137;

/// A command at the engine.
#[derive(Clone, Copy)]
pub(crate) struct Command<'a> {
    /// The engine.
    pub(crate) engine: &'a Engine,
    /// The call that it belongs to.
    pub(crate) call: &'a Call,
    /// The container's id.
    pub(crate) container: &'a str,
    /// The engine's id of the command.
    pub(crate) exec: &'a str,
    /// What its processes are known by.
    pub(crate) mark: Mark,
}

impl Command<'_> {
    /// The exit code by the engine's word; none while it takes the command for running.
    async fn engine_code(self) -> Result<Option<i64>> {
        let Command { engine, call, container, exec, .. } = self;
        let what = format!("container {}: end of a command", short(container));
        let call = winding_up(call, WIND_UP_LIMIT);
        let seen = request(&call, &what, engine.docker.inspect_exec(exec)).await?;
        Ok(seen.exit_code.filter(|_| seen.running == Some(false)))
    }
}

/// A command and the connection that carries its output.
pub(crate) struct Session<'a> {
    command: Command<'a>,
    streams: Streams<'a>,
    output: BoxStream<'static, Result<LogOutput, EngineError>>,
    over: bool,
    broken: Option<EngineError>,
}

/// Why the wait for a command ended.
enum Ended {
    /// Everything of it has arrived.
    Closed(Closed),
    /// The output ended before that.
    Cut,
    /// Its time was over.
    Deadline,
    /// The caller wants no more.
    Cancelled,
}

impl<'a> Session<'a> {
    /// A session over the output that the engine attached us to.
    pub(crate) fn new(
        command: Command<'a>,
        streams: Streams<'a>,
        output: Pin<Box<dyn futures_util::Stream<Item = Result<LogOutput, EngineError>> + Send>>,
    ) -> Self {
        Self { command, streams, output, over: false, broken: None }
    }

    /// Waits for the command's end and reports on it.
    pub(crate) async fn complete(
        mut self,
        spec: &ExecSpec,
        input: Pin<Box<dyn AsyncWrite + Send>>,
    ) -> Result<(ExecReport, Usage)> {
        let mut closed = None;
        let completion = match self.wait(spec, input).await {
            Ended::Closed(facts) => {
                closed = Some(facts);
                self.settle(spec, facts).await
            }
            Ended::Cut => self.diagnose().await?,
            Ended::Deadline => {
                let tree_killed = self.kill(Manner::Asked).await;
                self.only_if_started(ErrorKind::DeadlineExceeded)?;
                Completion::DeadlineExceeded { tree_killed }
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

    async fn wait(&mut self, spec: &ExecSpec, input: Pin<Box<dyn AsyncWrite + Send>>) -> Ended {
        let call = self.command.call;
        let mut limit = Instant::now() + call.remaining().saturating_sub(START_MARGIN);
        let mut started = false;
        call.meter.sent(spec.stdin.as_ref().map_or(0, |bytes| bytes.len() as u64));
        let mut feed = pin!(feed(input, spec.stdin.clone()));
        loop {
            if let Some(closed) = self.streams.closed() {
                return Ended::Closed(closed);
            }
            if self.over {
                return Ended::Cut;
            }
            if !started && self.streams.opened().is_some() {
                started = true;
                limit = Instant::now() + spec.limit(call);
            }
            tokio::select! {
                // The limits first: a flood of output must not keep them waiting.
                biased;
                () = call.cancel.cancelled() => return Ended::Cancelled,
                () = tokio::time::sleep_until(limit) => return Ended::Deadline,
                never = &mut feed => match never {},
                () = self.step() => {}
            }
        }
    }

    /// Takes the next piece of output.
    async fn step(&mut self) {
        match self.output.next().await {
            Some(Ok(output)) => {
                self.command.call.meter.received(output.as_ref().len() as u64);
                let (stream, bytes) = match &output {
                    LogOutput::StdErr { message } => (Stream::Stderr, message),
                    LogOutput::StdOut { message } | LogOutput::StdIn { message } | LogOutput::Console { message } => {
                        (Stream::Stdout, message)
                    }
                };
                self.streams.take(stream, bytes);
            }
            Some(Err(error)) => {
                self.over = true;
                self.broken = Some(error);
            }
            None => self.over = true,
        }
    }

    /// Does `work` while output goes on arriving.
    async fn alongside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.step(), if !self.over => {}
            }
        }
    }

    /// Takes what still arrives, for a moment.
    async fn drain(&mut self) {
        // Running out of time is the normal case when a background process holds the output open.
        let _ = tokio::time::timeout(DRAIN_LIMIT, async {
            while !self.over {
                self.step().await;
            }
        })
        .await;
    }

    async fn kill(&mut self, manner: Manner) -> TreeKill {
        let Command { engine, call, container, mut mark, .. } = self.command;
        mark.unmarked_root = self.streams.opened().filter(|opened| !opened.marked).map(|opened| opened.pid);
        let killed = self.alongside(kill::tree(engine, call, container, mark, manner)).await;
        self.drain().await;
        killed
    }

    fn only_if_started(&self, kind: ErrorKind) -> Result<()> {
        if self.streams.opened().is_some() {
            return Ok(());
        }
        let container = short(self.command.container);
        Err(Error::new(kind, format!("container {container}: the command had not started when its time was over")))
    }

    /// The end of a command of which everything has arrived.
    async fn settle(&mut self, spec: &ExecSpec, closed: Closed) -> Completion {
        self.drain().await;
        let code = match self.command.engine_code().await {
            Ok(Some(code)) => {
                if code != i64::from(closed.code) {
                    tracing::warn!(
                        container = short(self.command.container),
                        engine = code,
                        reported = closed.code,
                        "the engine and the command's wrapper disagree on the exit code"
                    );
                }
                i32::try_from(code).unwrap_or(closed.code)
            }
            // The engine does not say while a background process holds the output open.
            Ok(None) | Err(_) => closed.code,
        };
        if !spec.keep_background && !closed.nothing_left && self.kill(Manner::Forced).await != TreeKill::Yes {
            tracing::warn!(container = short(self.command.container), "background processes may have survived");
        }
        if i64::from(code) == KILLED && closed.out_of_memory == Some(true) {
            return Completion::OutOfMemory;
        }
        Completion::Exited { code }
    }

    /// Finds out why the output ended before the command reported its end.
    async fn diagnose(&mut self) -> Result<Completion> {
        let Command { engine, call, container, .. } = self.command;
        if self.streams.opened().is_none() {
            return Err(self.refusal().await);
        }
        let call = &winding_up(call, WIND_UP_LIMIT);
        let code = self.command.engine_code().await;
        let mut seen = observe::inspect(engine, call, container).await;
        for _ in 0..SECOND_LOOKS {
            if !seen.as_ref().is_ok_and(observe::running) || matches!(code, Ok(Some(code)) if code != KILLED) {
                break;
            }
            tokio::time::sleep(SECOND_LOOK_PAUSE).await;
            seen = observe::inspect(engine, call, container).await;
        }
        Ok(match (seen, code) {
            (Err(e), _) if *e.kind() == ErrorKind::NotFound => Completion::SandboxLost,
            (Err(_), _) => Completion::TransportLost,
            (Ok(seen), _) if !observe::running(&seen) => Completion::SandboxLost,
            (Ok(_), Ok(Some(code))) if self.broken.is_none() => {
                i32::try_from(code).map_or(Completion::TransportLost, |code| Completion::Exited { code })
            }
            _ => Completion::TransportLost,
        })
    }

    /// Why the command was not started.
    async fn refusal(&mut self) -> Error {
        let Command { engine, call, container, .. } = self.command;
        let text = self.streams.foreign_text();
        let id = short(container);
        if let Some(error) = error::exec_refused(id, &text) {
            return error;
        }
        match observe::inspect_held(engine, &winding_up(call, WIND_UP_LIMIT), container).await {
            Err(e) if *e.kind() == ErrorKind::SandboxLost => e,
            Ok(seen) if !observe::running(&seen) => observe::ended(container, seen.state.as_ref()),
            _ => match self.broken.take() {
                Some(broken) => error::map(&format!("container {id}: command"), broken),
                None => Error::new(ErrorKind::Failed, format!("container {id}: the command cannot be started: {text}")),
            },
        }
    }
}

/// Writes `bytes` and closes the command's stdin. Never ends, so that the caller's wait goes on.
async fn feed(mut input: Pin<Box<dyn AsyncWrite + Send>>, bytes: Option<Bytes>) -> std::convert::Infallible {
    if let Some(bytes) = bytes {
        // A command may end without having read all; that is its own affair.
        if input.write_all(&bytes).await.is_ok() {
            let _ = input.shutdown().await;
        }
    }
    pending().await
}

/// Why the engine refused to start a command.
pub(crate) async fn not_started(engine: &Engine, call: &Call, container: &str, error: EngineError) -> Error {
    if error::container_gone(&error) {
        return match observe::inspect(engine, call, container).await {
            Ok(seen) if !observe::running(&seen) => observe::ended(container, seen.state.as_ref()),
            _ => observe::lost(container),
        };
    }
    let id = short(container);
    error::answer(&error)
        .and_then(|(_, text)| error::exec_refused(id, text))
        .unwrap_or_else(|| error::map(&format!("container {id}: command"), error))
}
