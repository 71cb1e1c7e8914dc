//! A command from its start to its end.

use std::time::Duration;

use sandbox_bench_core::{Call, Completion, Error, ErrorKind, ExecReport, ExecSpec, Result, TreeKill};
use sandbox_bench_kit::guest::{Closed, Manner, Mark, Streams, Usage, not_become, out_of_time};
use sandbox_bench_kit::wait::winding_up;
use serde_json::Value;
use tokio::time::Instant;

use crate::command::not_started;
use crate::gateway::Gateway;
use crate::handle::Handle;
use crate::kill;
use crate::output::Output;
use crate::wire::ExecResult;

/// First and longest pause between two looks at the output.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LAST_LOOK: Duration = Duration::from_secs(1);
/// Step of the guest's clock, `/proc/uptime`.
const GUEST_CLOCK: Duration = Duration::from_millis(10);
/// Limit for taking the rest of the output of a command that was stopped.
const REST_LIMIT: Duration = Duration::from_secs(10);
/// Limit for tidying up after a command.
const TIDY_LIMIT: Duration = Duration::from_secs(5);
/// The exit code of a process that was ended by SIGKILL, by the shell's convention.
const KILLED: i32 = 137;

/// A command under way.
pub(crate) struct Session<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) call: &'a Call,
    pub(crate) mark: Mark,
    pub(crate) handle: Handle<'a>,
    pub(crate) output: Output<'a>,
    pub(crate) streams: Streams<'a>,
    /// Pause between the last two looks.
    pub(crate) pause: Duration,
}

/// Why the wait for a command ended.
enum Ended {
    /// The daemon says so.
    Told(ExecResult),
    /// Nothing more will be heard of it.
    Cut(Error),
    /// Its time was over.
    Deadline,
    /// The caller wants no more.
    Cancelled,
}

impl Session<'_> {
    /// Waits for the command's end, and reports on it and on what the sandbox has used so far.
    pub(crate) async fn complete(mut self, spec: &ExecSpec) -> Result<(ExecReport, Usage)> {
        let ended = self.wait(spec).await;
        let resolution = self.pause.max(GUEST_CLOCK);
        let completion = self.conclude(spec, ended).await;
        self.tidy(&completion).await;
        let completion = completion?;
        let closed = self.streams.closed();
        let (stdout, stderr) = self.streams.finish();
        let guest_time = closed.and_then(|closed| closed.guest_time);
        let report = ExecReport { completion, stdout, stderr, guest_time, resolution: Some(resolution) };
        Ok((report, closed.map(|closed| closed.usage).unwrap_or_default()))
    }

    async fn wait(&mut self, spec: &ExecSpec) -> Ended {
        let Self { call, handle, output, streams, .. } = self;
        let limit = Instant::now() + spec.limit(call);
        let mut look = FIRST_LOOK;
        let mut next = Instant::now() + look;
        loop {
            tokio::select! {
                // The limits first: a flood of output must not keep them waiting.
                biased;
                () = call.cancel.cancelled() => return Ended::Cancelled,
                () = tokio::time::sleep_until(limit) => return Ended::Deadline,
                told = handle.told() => return told.map_or_else(Ended::Cut, |result| {
                    self.pause = Duration::ZERO;
                    Ended::Told(result)
                }),
                () = tokio::time::sleep_until(next) => {
                    self.pause = look;
                    if let Err(error) = output.pull(call, streams).await {
                        tracing::debug!(%error, "a look at a command's output failed");
                    }
                    if streams.closed().is_some() {
                        // The wrapper's own word, should the daemon's be late or lost.
                        return Ended::Told(ExecResult::default());
                    }
                    match handle.asked(call).await {
                        Ok(Some(result)) => return Ended::Told(result),
                        Ok(None) => {}
                        Err(error) => return Ended::Cut(error),
                    }
                    look = (look * 3 / 2).min(LAST_LOOK);
                    next = Instant::now() + look;
                }
            }
        }
    }

    async fn conclude(&mut self, spec: &ExecSpec, ended: Ended) -> Result<Completion> {
        match ended {
            Ended::Told(result) => self.settle(spec, result).await,
            Ended::Cut(error) => self.diagnose(spec, error).await,
            Ended::Deadline => {
                let (tree_killed, seen) = self.stop().await;
                self.only_if_started(ErrorKind::DeadlineExceeded)?;
                Ok(out_of_time(seen, tree_killed))
            }
            Ended::Cancelled => {
                let (tree_killed, _) = self.stop().await;
                self.only_if_started(ErrorKind::Cancelled)?;
                Ok(Completion::Cancelled { tree_killed })
            }
        }
    }

    /// The end of a command that the daemon has seen to end.
    async fn settle(&mut self, spec: &ExecSpec, result: ExecResult) -> Result<Completion> {
        let call = &winding_up(self.call, REST_LIMIT.max(self.call.remaining()));
        if let Err(error) = self.output.drain(call, &mut self.streams).await {
            return self.diagnose(spec, error).await;
        }
        if let Some(closed) = self.streams.closed() {
            return Ok(self.closed(spec, closed).await);
        }
        if self.streams.opened().is_none() {
            let what = self.gateway.what("command");
            let text = self.streams.foreign_text();
            if let Some(error) = not_become(&what, &text) {
                return Err(error);
            }
            self.handle.fetch_words(call).await;
            return Err(not_started(&what, spec, &format!("{} {text}", self.handle.words)));
        }
        if result.timed_out == Some(true) {
            return Ok(Completion::DeadlineExceeded { tree_killed: self.kill(Manner::Forced).await });
        }
        // The wrapper itself was killed: the daemon is the only witness.
        let code = result.exit_code.and_then(|code| i32::try_from(code).ok()).filter(|code| (0..=255).contains(code));
        let code = result.signal.as_ref().and_then(signal).map(|signal| 128 + signal).or(code);
        Ok(code.map_or(Completion::TransportLost, |code| Completion::Exited { code }))
    }

    /// The end of a command whose wrapper has reported.
    async fn closed(&mut self, spec: &ExecSpec, closed: Closed) -> Completion {
        if !spec.keep_background && !closed.nothing_left && self.kill(Manner::Forced).await != TreeKill::Yes {
            tracing::warn!(run = self.gateway.run, "background processes may have survived");
        }
        if closed.code == KILLED && closed.out_of_memory == Some(true) {
            return Completion::OutOfMemory;
        }
        Completion::Exited { code: closed.code }
    }

    /// Finds out what became of a command of which nothing more is heard. Its output files are a second witness.
    async fn diagnose(&mut self, spec: &ExecSpec, error: Error) -> Result<Completion> {
        tracing::debug!(%error, "a command's end was not told");
        let call = winding_up(self.call, REST_LIMIT);
        let rest = self.output.pull(&call, &mut self.streams).await;
        if let Some(closed) = self.streams.closed() {
            return Ok(self.closed(spec, closed).await);
        }
        let unreachable = rest.err().map(|e| e.kind().clone());
        let meaning = self.gateway.meaning(&call, error).await;
        if *meaning.kind() == ErrorKind::SandboxLost {
            return if self.streams.opened().is_some() { Ok(Completion::SandboxLost) } else { Err(meaning) };
        }
        if unreachable.is_none() {
            // It may go on: nobody would ever stop it.
            self.kill(Manner::Forced).await;
        }
        Ok(Completion::TransportLost)
    }

    /// Ends a command whose time is over, and takes what it had written. True if the sandbox was seen meanwhile.
    async fn stop(&mut self) -> (TreeKill, bool) {
        let before = self.look_once().await;
        let killed = self.kill(Manner::Asked).await;
        let after = self.look_once().await;
        (killed, before || after)
    }

    async fn look_once(&mut self) -> bool {
        let call = winding_up(self.call, TIDY_LIMIT);
        let looked = self.output.pull(&call, &mut self.streams).await;
        if let Err(error) = &looked {
            tracing::debug!(%error, "the rest of a command's output could not be taken");
        }
        looked.is_ok()
    }

    async fn kill(&mut self, manner: Manner) -> TreeKill {
        self.mark.unmarked_root = self.streams.opened().filter(|opened| !opened.marked).map(|opened| opened.pid);
        kill::tree(self.gateway, self.call, self.mark, manner).await
    }

    fn only_if_started(&self, kind: ErrorKind) -> Result<()> {
        if self.streams.opened().is_some() {
            return Ok(());
        }
        Err(Error::new(kind, self.gateway.what("the command had not started when its time was over")))
    }

    /// Removes what the command left of ours, unless the sandbox is gone with it.
    async fn tidy(&mut self, completion: &Result<Completion>) {
        if matches!(completion, Ok(Completion::SandboxLost | Completion::TransportLost)) {
            return;
        }
        let call = winding_up(self.call, TIDY_LIMIT);
        let (removed, ()) = tokio::join!(self.output.remove(&call), self.handle.forget(&call));
        if let Err(error) = removed {
            tracing::debug!(%error, "a command's output files stay in the sandbox");
        }
    }
}

/// The number of a signal, which daemons write as a name or a number.
fn signal(said: &Value) -> Option<i32> {
    const NAMES: [(&str, i32); 10] = [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("ILL", 4),
        ("ABRT", 6),
        ("FPE", 8),
        ("KILL", 9),
        ("SEGV", 11),
        ("PIPE", 13),
        ("TERM", 15),
    ];
    if let Some(number) = said.as_i64() {
        return i32::try_from(number).ok().filter(|number| (1..=64).contains(number));
    }
    let name = said.as_str()?.trim().to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    known.or_else(|| match name {
        "KILLED" => Some(9),
        "TERMINATED" => Some(15),
        _ => name.parse().ok().filter(|number| (1..=64).contains(number)),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn signals_are_read_by_name_and_number() {
        for (said, number) in [
            (json!("SIGKILL"), Some(9)),
            (json!("term"), Some(15)),
            (json!(11), Some(11)),
            (json!("9"), Some(9)),
            (json!(""), None),
            (json!(null), None),
            (json!(-3), None),
            (json!("SIGNONSENSE"), None),
        ] {
            assert_eq!(signal(&said), number, "{said}");
        }
    }
}
