//! One command from its start to its end, whatever that is.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use sandbox_bench_core::{
    Call, Completion, Error, ErrorKind, ExecReport, ExecSpec, Result, Stream, StreamReport, TreeKill,
};
use sandbox_bench_kit::guest::{Closed, Manner, Mark, Streams, Usage, kill_argv, kill_verdict, out_of_time};
use sandbox_bench_kit::wait::winding_up;
use tokio::time::Instant;

use crate::exec::{Job, WAIT};
use crate::vm::Vm;

/// How long the rest of the output is awaited once a command was killed.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// Step of the guest's clock, `/proc/uptime`.
const GUEST_CLOCK: Duration = Duration::from_millis(10);
/// What a command that has not started leaves of the call's time for winding up.
const START_MARGIN: Duration = Duration::from_secs(1);
/// Limit for ending a command's processes. It may end after the call's deadline: the contract grants a command ten seconds
/// for winding up.
const KILL_LIMIT: Duration = Duration::from_secs(9);
/// Limit for seeing whether the runner can be reached at all.
const REACH_LIMIT: Duration = Duration::from_secs(1);
/// How long one look at a command may take, tries included.
const LOOK_LIMIT: Duration = Duration::from_secs(120);

/// A command in a MicroVM.
#[derive(Clone, Copy)]
pub(crate) struct Command<'a> {
    /// Where it runs.
    pub(crate) vm: &'a Vm,
    /// The call that it belongs to.
    pub(crate) call: &'a Call,
    /// Id of its job.
    pub(crate) id: &'a str,
    /// What its processes are known by.
    pub(crate) mark: Mark,
}

/// A command and its output.
pub(crate) struct Session<'a> {
    command: Command<'a>,
    streams: Streams<'a>,
    taken: [Taken; 2],
    /// Both streams have ended.
    drained: bool,
}

/// How far a stream was read, and what of it was gone before.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    offset: u64,
    missing: u64,
    gap_at: Option<u64>,
}

/// Why there is no more output.
enum Over {
    /// The runner saw the end of the command's process.
    Ended(Job),
    /// The MicroVM is gone.
    SandboxLost(Error),
    /// The runner could not be asked any more.
    TransportLost(Error),
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
    pub(crate) fn new(command: Command<'a>, streams: Streams<'a>) -> Self {
        Self { command, streams, taken: [Taken::default(); 2], drained: false }
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
            Ended::Cut(over) => self.diagnose(over)?,
            Ended::Deadline => {
                let tree_killed = self.kill(Manner::Asked).await;
                self.only_if_started(ErrorKind::DeadlineExceeded)?;
                let seen = tree_killed != TreeKill::Unknown || self.reached().await;
                out_of_time(seen, tree_killed)
            }
            Ended::Cancelled => {
                let tree_killed = self.kill(Manner::Asked).await;
                self.only_if_started(ErrorKind::Cancelled)?;
                Completion::Cancelled { tree_killed }
            }
        };
        let [out, err] = self.taken;
        let (stdout, stderr) = self.streams.finish();
        let report = ExecReport {
            completion,
            stdout: with_missing(stdout, out),
            stderr: with_missing(stderr, err),
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

    /// Takes what is new; tells if there will be nothing more. Dropped while it waits, it has taken nothing.
    async fn step(&mut self) -> Option<Over> {
        let Command { vm, call, id, .. } = self.command;
        // With a limit of its own: the caller's are kept around it.
        let call = winding_up(call, LOOK_LIMIT);
        let offsets = self.taken.map(|taken| taken.offset);
        match vm.look_at(&call, id, offsets, WAIT).await.and_then(|job| self.take(&job).map(|()| job)) {
            Ok(job) if job.state != "running" && self.drained => Some(Over::Ended(job)),
            Ok(_) => None,
            Err(error) if *error.kind() == ErrorKind::SandboxLost => Some(Over::SandboxLost(error)),
            // A runner that does not know its job is another one.
            Err(error) if *error.kind() == ErrorKind::NotFound => Some(Over::SandboxLost(error)),
            Err(error) => Some(Over::TransportLost(error)),
        }
    }

    fn take(&mut self, job: &Job) -> Result<()> {
        let mut drained = true;
        for (number, (stream, piece)) in
            [(Stream::Stdout, &job.stdout), (Stream::Stderr, &job.stderr)].into_iter().enumerate()
        {
            let (Some(piece), Some(taken)) = (piece, self.taken.get_mut(number)) else { continue };
            let bytes = piece.bytes()?;
            if piece.offset > taken.offset {
                // More was written than the runner keeps before it was asked for.
                taken.gap_at.get_or_insert(taken.offset - taken.missing);
                taken.missing += piece.offset - taken.offset;
            }
            taken.offset = piece.offset + bytes.len() as u64;
            drained &= piece.eof;
            self.command.call.meter.received(bytes.len() as u64);
            self.streams.take(stream, &bytes);
        }
        self.drained = drained;
        Ok(())
    }

    /// Does `work` while output goes on arriving.
    async fn alongside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut open = true;
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                over = self.step(), if open => open = over.is_none(),
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
            let call = winding_up(call, KILL_LIMIT);
            // A MicroVM that has ended takes every process along.
            match tokio::time::timeout(KILL_LIMIT, vm.helper(&call, &argv)).await {
                Ok(Ok(done)) => kill_verdict(&done.stdout, mark),
                Ok(Err(error)) if *error.kind() == ErrorKind::SandboxLost => TreeKill::Yes,
                other => {
                    tracing::warn!(id = vm.id, ?other, "a command's processes could not be ended from inside");
                    vm.force(&call, id).await;
                    TreeKill::Unknown
                }
            }
        };
        let killed = self.alongside(killing).await;
        self.drain().await;
        killed
    }

    /// True if the runner can be asked now.
    async fn reached(&self) -> bool {
        let Command { vm, call, id, .. } = self.command;
        let call = winding_up(call, REACH_LIMIT);
        vm.look_at(&call, id, self.taken.map(|taken| taken.offset), Duration::ZERO).await.is_ok()
    }

    fn only_if_started(&self, kind: ErrorKind) -> Result<()> {
        if self.streams.opened().is_some() {
            return Ok(());
        }
        let id = &self.command.vm.id;
        Err(Error::new(kind, format!("MicroVM {id}: the command had not started when its time was over")))
    }

    /// After the end of a command of which everything has arrived: what it left behind goes too, if that was asked for.
    async fn settle(&mut self, spec: &ExecSpec, closed: Closed) {
        if !spec.keep_background && !closed.nothing_left && self.kill(Manner::Forced).await != TreeKill::Yes {
            tracing::warn!(id = self.command.vm.id, "background processes may have survived");
        }
    }

    /// The output ended before the command's wrapper reported its end.
    fn diagnose(&self, over: Over) -> Result<Completion> {
        let started = self.streams.opened().is_some();
        let job = match over {
            Over::SandboxLost(_) if started => return Ok(Completion::SandboxLost),
            Over::SandboxLost(error) => return Err(error),
            Over::TransportLost(error) => {
                tracing::warn!(id = self.command.vm.id, %error, "a command's end could not be learnt");
                return Ok(Completion::TransportLost);
            }
            Over::Ended(job) => job,
        };
        match (job.exit_code, job.signal) {
            // The runner's own limit comes after ours, and its word counts no less.
            _ if job.state == "timed_out" => Ok(Completion::DeadlineExceeded { tree_killed: TreeKill::Unknown }),
            (Some(code), _) if started => Ok(Completion::Exited { code }),
            (None, Some(signal)) if started => Ok(Completion::Signalled { signal }),
            (code, signal) => {
                let text = self.streams.foreign_text();
                let id = &self.command.vm.id;
                let why = format!("exit code {code:?}, signal {signal:?}: {}", text.trim());
                Err(Error::new(ErrorKind::Failed, format!("MicroVM {id}: the command cannot be started ({why})")))
            }
        }
    }
}

/// With what the runner had not kept.
fn with_missing(report: StreamReport, taken: Taken) -> StreamReport {
    if taken.missing == 0 {
        return report;
    }
    let gap_at = match (report.gap_at, taken.gap_at) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    StreamReport {
        total_bytes: report.total_bytes.map(|total| total + taken.missing),
        gap_at: gap_at.map(|at| at.min(report.delivered_bytes)),
        ..report
    }
}
