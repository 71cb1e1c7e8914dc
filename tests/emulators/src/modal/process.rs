//! Processes: a command in the machine, or the vendor's file tool, which the emulator plays itself.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::output::Output;
use super::stdin::{Sink, Stdin};
use crate::machine::{Command, End, Event, Machine, MachineError, NotStarted, Running, Stream};

/// SIGKILL.
const KILLED: i32 = 9;
/// Bytes of input that the file tool has not taken yet, in messages.
const TOOL_INPUT: usize = 8;

/// How a process is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Code(i32),
    Signal(i32),
}

/// A process that was started.
pub(super) struct Process {
    pub(super) output: Output,
    pub(super) stdin: Arc<Stdin>,
    exit: watch::Sender<Option<Exit>>,
}

/// What happens to the two output streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piping {
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    /// Standard error goes where standard output goes.
    pub(super) merged: bool,
}

impl Process {
    fn new(output: Output, stdin: Stdin) -> Arc<Process> {
        Arc::new(Process { output, stdin: Arc::new(stdin), exit: watch::Sender::new(None) })
    }

    /// A command, and the task that must run to its end with it. The output stays open.
    ///
    /// # Errors
    /// The machine has ended; the command is not one.
    pub(super) fn start(
        machine: &Machine,
        command: Command,
        output: Output,
        piping: Piping,
        limit: Option<Duration>,
    ) -> Result<(Arc<Process>, impl Future<Output = ()> + Send + use<>), MachineError> {
        let running = machine.start(Command { stdin: true, output_cap: usize::MAX, ..command })?;
        let process = Process::new(output, Stdin::new(Sink::Command(running.input())));
        let attended = Arc::clone(&process);
        let task = async move {
            let exit = attend(running, &attended.output, piping, limit).await;
            attended.exit.send_replace(Some(exit));
        };
        Ok((process, task))
    }

    /// A process that the emulator plays: `play` gets the input and the output, and answers with the exit code.
    pub(super) fn tool(
        cancelled: CancellationToken,
        limit: Option<Duration>,
        play: impl FnOnce(mpsc::Receiver<Bytes>, Output) -> BoxFuture<'static, i32>,
    ) -> (Arc<Process>, BoxFuture<'static, ()>) {
        let (sender, input) = mpsc::channel(TOOL_INPUT);
        let output = Output::default();
        let play = play(input, output.clone());
        let process = Process::new(output, Stdin::new(Sink::Tool(Some(sender))));
        let attended = Arc::clone(&process);
        let task = async move {
            let exit = tokio::select! {
                code = play => Exit::Code(code),
                () = elapsed(limit) => Exit::Signal(KILLED),
                () = cancelled.cancelled() => Exit::Signal(KILLED),
            };
            attended.exit.send_replace(Some(exit));
        };
        (process, task.boxed())
    }

    /// How it ended, if it has.
    pub(super) fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    /// Returns when it is over.
    pub(super) async fn exited(&self) -> Exit {
        let mut exit = self.exit.subscribe();
        // The sender lives as long as we do.
        let exited = exit.wait_for(Option::is_some).await;
        exited.ok().and_then(|exit| *exit).unwrap_or(Exit::Signal(KILLED))
    }
}

async fn elapsed(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// Takes the output as it comes, and kills when the limit passes.
async fn attend(mut running: Running, output: &Output, piping: Piping, limit: Option<Duration>) -> Exit {
    let over = elapsed(limit);
    tokio::pin!(over);
    let mut killed = false;
    loop {
        let event = tokio::select! {
            event = running.next() => event,
            () = &mut over, if !killed => {
                killed = true;
                running.kill();
                continue;
            }
        };
        match event {
            Ok(Some(Event::Output(Stream::Stderr, bytes))) if !piping.merged => {
                if piping.stderr {
                    output.stderr.write(&bytes);
                }
            }
            Ok(Some(Event::Output(_, bytes))) if piping.stdout => output.stdout.write(&bytes),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    // A machine that ended under it, or whose files were saved, has killed it.
    let Ok(outcome) = running.outcome().await else { return Exit::Signal(KILLED) };
    match outcome.end {
        End::Exited(code) => Exit::Code(code),
        End::Signalled(signal) => Exit::Signal(signal),
        End::NotStarted(why) => {
            let log = if piping.merged { &output.stdout } else { &output.stderr };
            log.line(&why.to_string());
            Exit::Code(if matches!(why, NotStarted::NoProgram { .. }) { 127 } else { 126 })
        }
        End::TransferFailed(_) => Exit::Code(126),
    }
}
