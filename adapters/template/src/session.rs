//! One command from its start to its end, whatever that is. Nothing here is the example service's.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use sandbox_bench_core::{Call, Completion, Error, ErrorKind, ExecReport, ExecSpec, Result, TreeKill};
use sandbox_bench_kit::guest::{
    Closed, Manner, Mark, Streams, Usage, kill_argv, kill_verdict, not_become, out_of_time,
};
use sandbox_bench_kit::wait::winding_up;
use tokio::time::Instant;

use crate::error;
use crate::exec::Guest;
use crate::log::{Event, Log, Over};

/// How long the rest of the output is awaited once the command was killed.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// Step of the guest's clock, `/proc/uptime`.
const GUEST_CLOCK: Duration = Duration::from_millis(10);
/// What a command that has not started leaves of the call's time for winding up.
const START_MARGIN: Duration = Duration::from_secs(1);
/// Limit for ending a command's processes. It may end after the call's deadline: the contract grants a command ten
/// seconds for winding up.
const KILL_LIMIT: Duration = Duration::from_secs(9);

/// A command and its output.
pub(crate) struct Session<'a> {
    /// Where it runs.
    pub(crate) guest: Guest<'a>,
    /// The call that it belongs to.
    pub(crate) call: &'a Call,
    /// What its processes are known by.
    pub(crate) mark: Mark,
    /// Its output on the way to the caller.
    pub(crate) streams: Streams<'a>,
    /// Its output as the service gives it.
    pub(crate) log: Log<'a>,
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

impl Session<'_> {
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
                let seen = !self.log.broken();
                let tree_killed = self.end(ErrorKind::DeadlineExceeded).await?;
                out_of_time(seen, tree_killed)
            }
            Ended::Cancelled => Completion::Cancelled { tree_killed: self.end(ErrorKind::Cancelled).await? },
        };
        let (stdout, stderr) = self.streams.finish();
        let guest_time = closed.and_then(|closed| closed.guest_time);
        let report = ExecReport { completion, stdout, stderr, guest_time, resolution: Some(GUEST_CLOCK) };
        Ok((report, closed.map(|closed| closed.usage).unwrap_or_default()))
    }

    async fn wait(&mut self, spec: &ExecSpec) -> Ended {
        let call = self.call;
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
            Event::Output(stream, bytes) => {
                self.call.meter.received(bytes.len() as u64);
                self.streams.take(stream, &bytes);
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

    /// Ends every process of the command and takes what still arrives of it. An error of this kind if it never began.
    async fn end(&mut self, kind: ErrorKind) -> Result<TreeKill> {
        let tree_killed = self.kill(Manner::Asked).await;
        // Running out of time is normal when a background process holds the output open.
        let _ = tokio::time::timeout(DRAIN_LIMIT, async { while self.step().await.is_none() {} }).await;
        match self.streams.opened() {
            Some(_) => Ok(tree_killed),
            None => Err(Error::new(kind, self.guest.what("the command had not started when its time was over"))),
        }
    }

    async fn kill(&mut self, manner: Manner) -> TreeKill {
        let (guest, mut mark) = (self.guest, self.mark);
        mark.unmarked_root = self.streams.opened().filter(|opened| !opened.marked).map(|opened| opened.pid);
        let (call, argv) = (winding_up(self.call, KILL_LIMIT), kill_argv(mark, manner));
        match self.alongside(guest.helper(&call, &argv)).await {
            Ok(answer) => kill_verdict(&answer, mark),
            Err(error) => {
                tracing::warn!(sandbox = guest.name, %error, "a command's processes could not be ended");
                TreeKill::Unknown
            }
        }
    }

    /// After the end of a command of which everything has arrived: what it left behind goes too, if that was asked for.
    async fn settle(&mut self, spec: &ExecSpec, closed: Closed) {
        if !spec.keep_background && !closed.nothing_left && self.kill(Manner::Forced).await != TreeKill::Yes {
            tracing::warn!(sandbox = self.guest.name, "background processes may have survived");
        }
    }

    /// The output ended before the command's wrapper reported its end.
    fn diagnose(&self, over: Over) -> Result<Completion> {
        let started = self.streams.opened().is_some();
        match over {
            Over::Exited(code) if started => Ok(Completion::Exited { code }),
            Over::Exited(code) => {
                let (what, text) = (self.guest.what("command"), self.streams.foreign_text());
                Err(not_become(&what, &text).unwrap_or_else(|| {
                    let message = format!("{what}: it cannot be started (exit code {code}): {}", text.trim());
                    Error::new(ErrorKind::Failed, message)
                }))
            }
            Over::SandboxLost if started => Ok(Completion::SandboxLost),
            Over::SandboxLost => Err(error::lost(self.guest.name)),
            Over::TransportLost => Ok(Completion::TransportLost),
        }
    }
}
