//! One command in its session, from its start to its end, whatever that is.
//!
//! Its log is followed for output and for the wrapper's word on its end, and the platform is asked for the exit code
//! meanwhile: whichever of the two is lost, the other is there.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sandbox_bench_core::{Call, Completion, Error, ErrorKind, ExecReport, ExecSpec, Result, StreamReport, TreeKill};
use sandbox_bench_kit::guest::{Closed, Manner, Mark, Streams, Usage, as_user, kill_argv, kill_verdict, not_become};
use sandbox_bench_kit::wait::winding_up;
use tokio::time::{Instant, sleep, sleep_until};

use crate::logs::{Demux, Follow};
use crate::sandbox::Guest;

/// Step of the guest's clock, `/proc/uptime`.
const GUEST_CLOCK: Duration = Duration::from_millis(10);
/// Pause between two questions for the exit code, at first and at last.
const LOOK_FIRST: Duration = Duration::from_millis(250);
const LOOK_LAST: Duration = Duration::from_secs(1);
/// Limit for one question.
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// So many questions may fail in a row.
const LOOK_FAILURES: u32 = 5;
/// How long a log may be silent once the exit code is known; also that of a command that was kept from starting.
const OUTPUT_GRACE: Duration = Duration::from_secs(5);
const REFUSAL_GRACE: Duration = Duration::from_millis(1500);
/// So often in a row the log is asked for anew.
const FOLLOWS: u32 = 5;
const FOLLOW_PAUSE: Duration = Duration::from_millis(100);
/// What is still on its way when everything has been killed.
const DRAIN_LIMIT: Duration = Duration::from_millis(300);
/// Limit for the whole kill, seen from the host. It may end after the call's deadline: the contract grants a command
/// ten seconds for winding up.
const KILL_LIMIT: Duration = Duration::from_secs(9);
/// What a command that has not started leaves of the call's time for winding up.
const START_MARGIN: Duration = Duration::from_secs(1);
/// Limit for each question about a command that has ended.
pub(crate) const WIND_UP_LIMIT: Duration = Duration::from_secs(6);
/// The exit code of a process that was ended by SIGKILL, by the shell's convention.
const KILLED: i32 = 137;

/// A command in a session.
#[derive(Clone, Copy)]
pub(crate) struct Command<'a> {
    /// The sandbox.
    pub(crate) guest: &'a Guest,
    /// The call that it belongs to.
    pub(crate) call: &'a Call,
    /// The session's id.
    pub(crate) session: &'a str,
    /// The command's id in the session.
    pub(crate) id: &'a str,
    /// What its processes are known by.
    pub(crate) mark: Mark,
}

impl Command<'_> {
    fn names(&self) -> (&str, &str) {
        (self.session, self.id)
    }

    /// Asks for the exit code until there is one.
    ///
    /// # Errors
    /// There is no such command any more, or the question fails again and again. `away` tells if it failed last time.
    async fn exit_code(self, away: &AtomicBool) -> Result<i32> {
        let what = self.guest.what("end of a command");
        let (mut pause, mut failures) = (LOOK_FIRST, 0);
        loop {
            sleep(pause).await;
            pause = (pause * 5 / 4).min(LOOK_LAST);
            let looked = self.guest.toolbox.exit_code(&self.call.within(LOOK_LIMIT), &what, self.names()).await;
            away.store(looked.is_err(), Ordering::Relaxed);
            match looked {
                Ok(Some(code)) => return Ok(code),
                Ok(None) => failures = 0,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::SandboxLost) => {
                    return Err(error);
                }
                Err(error) => {
                    failures += 1;
                    if failures == LOOK_FAILURES {
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// A command and the log that carries its output.
pub(crate) struct Session<'a> {
    command: Command<'a>,
    streams: Streams<'a>,
    demux: Demux,
    follow: Option<Follow>,
    /// Bytes of the log that were taken, and those of a new stream that are known already.
    seen: u64,
    known: u64,
    follows: u32,
    /// When something of the log arrived for the last time.
    heard: Instant,
    code: Option<i32>,
}

/// Why the wait for a command ended.
enum Ended {
    /// Everything of it has arrived.
    Closed(Closed),
    /// The platform has an exit code, but the end of the output did not arrive.
    Code(i32),
    /// Neither is to be had any more.
    Lost(Error),
    /// Its time was over.
    Deadline,
    /// The caller wants no more.
    Cancelled,
}

impl<'a> Session<'a> {
    /// A session in which the command was started.
    pub(crate) fn new(command: Command<'a>, streams: Streams<'a>) -> Self {
        let demux = Demux::default();
        Self { command, streams, demux, follow: None, seen: 0, known: 0, follows: 0, heard: Instant::now(), code: None }
    }

    /// Waits for the command's end and reports on it.
    pub(crate) async fn complete(mut self, spec: &ExecSpec) -> Result<(ExecReport, Usage)> {
        let (mut closed, mut cut) = (None, true);
        let mut ended = self.wait(spec).await;
        if let Ended::Code(_) = ended {
            self.read_at_once().await;
            ended = self.streams.closed().map_or(ended, Ended::Closed);
        }
        let completion = match ended {
            Ended::Closed(facts) => {
                (closed, cut) = (Some(facts), false);
                self.settle(spec, facts).await
            }
            Ended::Code(code) => {
                self.close();
                self.started_or_refused().await?;
                match code {
                    0..=255 => Completion::Exited { code },
                    _ => Completion::TransportLost,
                }
            }
            Ended::Lost(error) => self.diagnose(error).await?,
            Ended::Deadline => {
                let tree_killed = self.end(ErrorKind::DeadlineExceeded).await?;
                Completion::DeadlineExceeded { tree_killed }
            }
            Ended::Cancelled => {
                let tree_killed = self.end(ErrorKind::Cancelled).await?;
                Completion::Cancelled { tree_killed }
            }
        };
        let streams = &mut self.streams;
        self.demux.finish(|stream, bytes| streams.take(stream, bytes));
        let (stdout, stderr) = self.streams.finish();
        // Bytes that are no text may have been lost on the way without notice: the totals are unknown. When the end of
        // the output did not arrive, what came of it may not be all.
        let lost = cut && matches!(completion, Completion::Exited { .. });
        let told = |report: StreamReport| StreamReport {
            total_bytes: None,
            gap_at: report.gap_at.or(lost.then_some(report.delivered_bytes)),
            ..report
        };
        let report = ExecReport {
            completion,
            stdout: told(stdout),
            stderr: told(stderr),
            guest_time: closed.and_then(|closed| closed.guest_time),
            resolution: Some(if cut { LOOK_LAST } else { GUEST_CLOCK }),
        };
        Ok((report, closed.map(|closed| closed.usage).unwrap_or_default()))
    }

    async fn wait(&mut self, spec: &ExecSpec) -> Ended {
        let call = self.command.call;
        let mut limit = Instant::now() + call.remaining().saturating_sub(START_MARGIN);
        let mut started = false;
        let away = AtomicBool::new(false);
        let mut looking = pin!(self.command.exit_code(&away));
        loop {
            if let Some(closed) = self.streams.closed() {
                return Ended::Closed(closed);
            }
            if !started && self.streams.opened().is_some() {
                started = true;
                limit = Instant::now() + spec.limit(call);
            }
            let grace = self.code.map(|code| (code, if started { OUTPUT_GRACE } else { REFUSAL_GRACE }));
            let silence = self.heard;
            let over = async {
                match grace {
                    Some((code, grace)) => {
                        sleep_until(silence + grace).await;
                        Ended::Code(code)
                    }
                    None => pending().await,
                }
            };
            tokio::select! {
                // The limits first: a flood of output must not keep them waiting.
                biased;
                () = call.cancel.cancelled() => return Ended::Cancelled,
                () = sleep_until(limit) => return match self.code {
                    Some(code) => Ended::Code(code),
                    // A command that nobody has seen at its limit may have ended long before.
                    None if away.load(Ordering::Relaxed) => Ended::Lost(Error::new(
                        ErrorKind::Transport,
                        self.command.guest.what("the platform does not answer when a command's time is over"),
                    )),
                    None => Ended::Deadline,
                },
                ended = over => return ended,
                looked = &mut looking, if self.code.is_none() => match looked {
                    Ok(code) => (self.code, self.heard) = (Some(code), Instant::now()),
                    Err(error) => return Ended::Lost(error),
                },
                () = self.step() => {}
            }
        }
    }

    /// Takes the next piece of the log, or asks for it anew.
    async fn step(&mut self) {
        if let Some(follow) = &mut self.follow {
            match follow.next().await {
                Some(piece) => self.take(&piece),
                None => self.follow = None,
            }
            return;
        }
        if self.follows == FOLLOWS {
            // The exit code tells what became of it.
            return pending().await;
        }
        sleep(FOLLOW_PAUSE * self.follows).await;
        self.follows += 1;
        let Command { guest, call, .. } = self.command;
        let request = guest.toolbox.log(self.command.names());
        match Follow::open(&call.within(LOOK_LIMIT), &guest.what("log of a command"), request).await {
            Ok(follow) => {
                self.follow = Some(follow);
                // It begins at the beginning each time.
                self.known = self.seen;
            }
            Err(error) => tracing::debug!(sandbox = guest.id, %error, "the log of a command cannot be followed"),
        }
    }

    /// The log as it is, where it could not be followed to its end.
    async fn read_at_once(&mut self) {
        let Command { guest, call, .. } = self.command;
        let what = guest.what("log of a command");
        match guest.toolbox.whole_log(&winding_up(call, WIND_UP_LIMIT), &what, self.command.names()).await {
            Ok(log) => {
                self.known = self.seen;
                self.take(log.as_bytes());
            }
            Err(error) => tracing::debug!(sandbox = guest.id, %error, "the log of a command cannot be read"),
        }
    }

    fn take(&mut self, piece: &[u8]) {
        let known = usize::try_from(self.known).unwrap_or(usize::MAX).min(piece.len());
        self.known -= known as u64;
        let new = piece.get(known..).unwrap_or_default();
        if new.is_empty() {
            return;
        }
        (self.follows, self.heard) = (0, Instant::now());
        self.seen += new.len() as u64;
        self.command.call.meter.received(new.len() as u64);
        let streams = &mut self.streams;
        self.demux.push(new, |stream, bytes| streams.take(stream, bytes));
    }

    /// Does `work` while output goes on arriving.
    async fn alongside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.step() => {}
            }
        }
    }

    /// The command has ended: brings to an end what it may not leave behind.
    async fn settle(&mut self, spec: &ExecSpec, closed: Closed) -> Completion {
        if !spec.keep_background && !closed.nothing_left && self.kill(Manner::Forced).await != TreeKill::Yes {
            tracing::warn!(sandbox = self.command.guest.id, "background processes may have survived");
        }
        if closed.nothing_left || !spec.keep_background {
            self.close();
        }
        if closed.code == KILLED && closed.out_of_memory == Some(true) {
            return Completion::OutOfMemory;
        }
        Completion::Exited { code: closed.code }
    }

    /// Ends the command and everything that it started. An error of this kind if it never began.
    async fn end(&mut self, kind: ErrorKind) -> Result<TreeKill> {
        let Command { guest, call, session, .. } = self.command;
        let tree_killed = self.kill(Manner::Asked).await;
        self.alongside(sleep(DRAIN_LIMIT)).await;
        if self.streams.opened().is_some() {
            self.close();
            return Ok(tree_killed);
        }
        // Without its session it does not begin later either.
        let what = guest.what("command");
        match guest.toolbox.close(&winding_up(call, WIND_UP_LIMIT), session).await {
            Ok(()) => Err(Error::new(kind, format!("{what}: ended before it was started"))),
            Err(failed) => {
                let message = format!("{what}: it is unknown whether it was started");
                Err(guest.explained(call, Error::new(ErrorKind::Transport, message).because(failed)).await)
            }
        }
    }

    /// Ends every process of the command. Bounded, and not ended by the caller's cancellation.
    async fn kill(&mut self, manner: Manner) -> TreeKill {
        let Command { guest, call, mut mark, .. } = self.command;
        mark.unmarked_root = self.streams.opened().filter(|opened| !opened.marked).map(|opened| opened.pid);
        let argv = as_user("0", &Default::default(), kill_argv(mark, manner));
        let what = guest.what("end of a command's processes");
        let call = winding_up(call, KILL_LIMIT);
        let killed = self.alongside(guest.toolbox.execute(&call, &what, &argv, KILL_LIMIT)).await;
        match killed {
            Ok(answer) => kill_verdict(&answer.result, mark),
            Err(error) => {
                tracing::warn!(sandbox = guest.id, %error, "a command's processes could not be ended");
                TreeKill::Unknown
            }
        }
    }

    /// Nothing of the command is left, or may be: its session goes too, while the caller goes on.
    fn close(&self) {
        let Command { guest, call, session, .. } = self.command;
        guest.close_later(call, session);
    }

    /// Neither exit code nor output is to be had any more: finds out why.
    async fn diagnose(&mut self, error: Error) -> Result<Completion> {
        let Command { guest, call, .. } = self.command;
        let error = guest.explained(call, error).await;
        let lost = *error.kind() == ErrorKind::SandboxLost;
        if !lost {
            self.close();
        }
        match self.streams.opened() {
            None if lost => Err(error),
            // The question failed, not the start: nobody may start it once more.
            None => {
                let message = format!("{}: it is unknown whether it was started", guest.what("command"));
                Err(Error::new(ErrorKind::Transport, message).because(error))
            }
            Some(_) if lost => Ok(Completion::SandboxLost),
            Some(_) => Ok(Completion::TransportLost),
        }
    }

    /// An error if the command was not started: in that case what came instead of its output says why.
    async fn started_or_refused(&mut self) -> Result<()> {
        if self.streams.opened().is_some() {
            return Ok(());
        }
        let guest = self.command.guest;
        let text = self.streams.foreign_text();
        if let Some(error) = not_become(&guest.what("command"), &text) {
            return Err(error);
        }
        let error = match text.trim() {
            "" => Error::new(ErrorKind::Transport, format!("{}: its log was lost", guest.what("command"))),
            text => Error::new(ErrorKind::Failed, format!("{}: it cannot be started: {text}", guest.what("command"))),
        };
        Err(guest.explained(self.command.call, error).await)
    }
}
