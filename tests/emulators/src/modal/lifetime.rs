//! A sandbox's life, from the start of its machine to its end and result.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

use super::process::{Exit, Piping, Process};
use super::proto::client::GenericResult;
use super::proto::client::generic_result::GenericStatus;
use super::sandbox::{Sandbox, Stage};
use super::{Modal, Result};
use crate::Flags;
use crate::machine::{Machine, MachineSpec};

/// What shells add to the number of a signal.
const BY_SIGNAL: i32 = 128;

/// The result of a sandbox that has ended this way.
fn result(status: GenericStatus, exitcode: i32, exception: impl Into<String>) -> GenericResult {
    GenericResult { status: status.into(), exitcode, exception: exception.into() }
}

/// The status that a fault script names; `otherwise` if it names none.
pub(super) fn scripted_end(number: u64, otherwise: GenericStatus) -> GenericStatus {
    let named = i32::try_from(number).ok().and_then(|number| GenericStatus::try_from(number).ok());
    named.filter(|status| *status != GenericStatus::Unspecified).unwrap_or(otherwise)
}

/// How a fault script wants a sandbox to start.
pub(super) struct Start {
    delay: Duration,
    fails: Option<GenericStatus>,
}

impl Start {
    pub(super) fn of(flags: &Flags) -> Start {
        Start {
            delay: Duration::from_millis(flags.value("slow-start").unwrap_or_default()),
            fails: flags.value("start-fails").map(|status| scripted_end(status, GenericStatus::InitFailure)),
        }
    }
}

impl Modal {
    pub(super) async fn live(self: Arc<Self>, sandbox: Arc<Sandbox>, spec: MachineSpec, start: Start) {
        let deadline = Instant::now() + Duration::from_secs(sandbox.definition.timeout_secs.into());
        let ended = tokio::select! {
            () = tokio::time::sleep(self.emulation.timing.transition + start.delay) => {
                start.fails.map(|status| result(status, 1, "Failed by the fault script."))
            }
            result = sandbox.ended_from_outside(deadline) => Some(result),
        };
        let ended = match ended {
            Some(result) => result,
            // Not interrupted: a machine that is half made would be left behind.
            None => match self.emulation.machines.create(spec).await {
                Ok(machine) => {
                    let machine = Arc::new(machine);
                    sandbox.machine.send_replace(Stage::Running(Arc::clone(&machine)));
                    self.run(&sandbox, &machine, deadline).await
                }
                Err(error) => result(GenericStatus::InitFailure, 1, error.to_string()),
            },
        };
        sandbox.finish(ended);
        let stage = sandbox.machine.send_replace(Stage::Gone);
        if let Stage::Running(machine) = stage {
            // What cannot be destroyed now is when the emulator ends, which says so.
            let _ = self.emulation.machines.destroy(&machine).await;
        }
        sandbox.output.close();
        sandbox.processes().clear();
        sandbox.buried.cancel();
    }

    async fn run(&self, sandbox: &Arc<Sandbox>, machine: &Arc<Machine>, deadline: Instant) -> GenericResult {
        let idle = async {
            match sandbox.definition.idle_timeout_secs {
                Some(seconds) => sandbox.idle(Duration::from_secs(seconds.into())).await,
                None => std::future::pending().await,
            }
        };
        let ready = async {
            sandbox.probe(machine).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            result = sandbox.ended_from_outside(deadline) => result,
            result = sandbox.main_process(machine) => result,
            () = idle => result(GenericStatus::IdleTimeout, 0, "Sandbox was idle for too long."),
            () = ready => result(GenericStatus::InternalFailure, 1, "unreachable"),
        }
    }

    /// Ends a sandbox; its result shows a moment later. One that has ended stays as it is.
    pub(super) fn terminate(&self, id: &str, ignored: bool) -> Result<Option<GenericResult>> {
        let sandbox = self.sandbox(id)?;
        let existing = sandbox.result();
        if existing.is_none() && !ignored {
            let pause = self.emulation.timing.transition;
            self.emulation.tasks.spawn(async move {
                tokio::time::sleep(pause).await;
                sandbox.terminate.cancel();
            });
        }
        Ok(existing)
    }
}

impl Sandbox {
    /// Returns when it is terminated or its time is over.
    async fn ended_from_outside(&self, deadline: Instant) -> GenericResult {
        tokio::select! {
            () = self.terminate.cancelled() => result(GenericStatus::Terminated, 0, "Sandbox was terminated."),
            () = tokio::time::sleep_until(deadline) => result(GenericStatus::Timeout, 0, "Sandbox timed out."),
        }
    }

    /// Runs the main process to its end. Saving files ends it too; it then starts again, as the vendor's does not notice.
    async fn main_process(self: &Arc<Self>, machine: &Arc<Machine>) -> GenericResult {
        let arguments = &self.definition.entrypoint_args;
        if arguments.is_empty() {
            // Images have no command of their own here.
            std::future::pending::<()>().await;
        }
        let piping = Piping { stdout: true, stderr: true, merged: false };
        loop {
            let (started, saves) = {
                let _no_saving = self.saving.read().await;
                let command = self.command(machine, arguments, None);
                let started = Process::start(machine, command, self.output.clone(), piping, None);
                (started, self.saves.load(Relaxed))
            };
            let (process, task) = match started {
                Ok(started) => started,
                Err(error) => return result(GenericStatus::InitFailure, 1, error.to_string()),
            };
            self.input.send_replace(Some(Arc::clone(&process.stdin)));
            task.await;
            let exit = process.exited().await;
            // A capture that is still going on has to be over first.
            let _no_saving = self.saving.read().await;
            if exit == Exit::Signal(9) && self.saves.load(Relaxed) != saves {
                continue;
            }
            return match exit {
                Exit::Code(0) => result(GenericStatus::Success, 0, ""),
                Exit::Code(code) => result(GenericStatus::Failure, code, ""),
                Exit::Signal(signal) => result(GenericStatus::Failure, BY_SIGNAL + signal, ""),
            };
        }
    }
}
