//! From state to state. Each transition answers at once and goes on in a task of the emulator.

use std::sync::Arc;

use super::failure::{Answer, Failure};
use super::quota;
use super::record::{BuildInfo, State};
use super::sandbox::Sandbox;
use super::state::Daytona;
use crate::faults::Flags;
use crate::machine::{Limits, MachineError, MachineSpec, Source};

/// What a sandbox is made of.
pub(super) enum Origin {
    Source { source: Source, pull: bool },
    Build(Box<BuildInfo>),
}

/// Brings a new sandbox up.
pub(super) fn bring_up(daytona: &Arc<Daytona>, sandbox: &Arc<Sandbox>, origin: Origin, flags: &Flags) {
    if flags.has("state-stuck") {
        return;
    }
    let (daytona, sandbox, fails) = (Arc::clone(daytona), Arc::clone(sandbox), flags.has("start-fails"));
    Arc::clone(&daytona).emulation.tasks.spawn(async move {
        let source = match origin {
            Origin::Source { source, pull } => {
                if pull {
                    daytona.pass(&sandbox, State::PullingSnapshot).await;
                }
                source
            }
            Origin::Build(info) => match build(&daytona, &sandbox, &info).await {
                Ok(source) => source,
                Err(reason) => return daytona.fail(&sandbox, State::BuildFailed, reason, false),
            },
        };
        daytona.pass(&sandbox, State::Creating).await;
        match boot(&daytona, &sandbox, source).await {
            Ok(()) if fails => {
                daytona.fail(&sandbox, State::Error, "runner failed to start container".into(), true);
            }
            Ok(()) => daytona.started(&sandbox).await,
            Err(error) => daytona.fail(&sandbox, State::Error, error.to_string(), false),
        }
    });
}

async fn build(daytona: &Daytona, sandbox: &Sandbox, info: &BuildInfo) -> Result<Source, String> {
    tokio::time::sleep(daytona.emulation.timing.transition).await;
    if !daytona.builds.cached(info) {
        daytona.pass(sandbox, State::BuildingSnapshot).await;
    }
    Ok(Source::Saved(daytona.build(info, &sandbox.build_log).await?))
}

async fn boot(daytona: &Daytona, sandbox: &Sandbox, source: Source) -> Result<(), MachineError> {
    let record = sandbox.record();
    let mut env = record.env;
    env.insert("DAYTONA_SANDBOX_ID".into(), record.id);
    env.insert("DAYTONA_SANDBOX_USER".into(), record.user);
    let limits =
        Limits { memory: Some(record.size.memory << 30), cpus: Some(record.size.cpu as f64), ..Limits::default() };
    let spec = MachineSpec { source, env, limits, offline: record.network_block_all };
    let machine = daytona.emulation.machines.create(spec).await?;
    // The daemon runs as the image's user, so its file endpoints do too.
    machine.set_tool_user(machine.facts().user);
    sandbox.set_machine(Some(Arc::new(machine)));
    Ok(())
}

/// Starts a stopped, archived or failed one.
pub(super) fn start(daytona: &Arc<Daytona>, sandbox: &Arc<Sandbox>, flags: &Flags) -> Answer<()> {
    let startable = [State::Stopped, State::Archived];
    quota::check_total(&daytona.options.quota, &daytona.holdings(), quota::start_size(&sandbox.record()))?;
    let before = daytona.begin(sandbox, &startable, State::Starting, "Sandbox is not in valid state")?;
    if flags.has("state-stuck") {
        return Ok(());
    }
    let (daytona, sandbox, fails) = (Arc::clone(daytona), Arc::clone(sandbox), flags.has("start-fails"));
    Arc::clone(&daytona).emulation.tasks.spawn(async move {
        if before == State::Archived {
            daytona.pass(&sandbox, State::Restoring).await;
        }
        if fails {
            return daytona.fail(&sandbox, State::Error, "runner failed to start container".into(), true);
        }
        daytona.started(&sandbox).await;
    });
    Ok(())
}

/// From a failed start that can be repaired back to `stopped`.
pub(super) fn recover(daytona: &Arc<Daytona>, sandbox: &Arc<Sandbox>) -> Answer<()> {
    let record = sandbox.record();
    if record.state == State::Error && !record.recoverable {
        return Err(Failure::bad("Sandbox is not recoverable"));
    }
    daytona.begin(sandbox, &[State::Error], State::Starting, "Sandbox is not in error state")?;
    daytona.change(sandbox, |record| (record.error_reason, record.recoverable) = (None, false));
    Ok(())
}

/// Stops it; one that is ephemeral goes altogether.
pub(super) fn stop(daytona: &Arc<Daytona>, sandbox: &Arc<Sandbox>, stuck: bool) -> Answer<()> {
    daytona.begin(sandbox, &[State::Started], State::Stopping, "Sandbox is not in a stoppable state")?;
    daytona.change(sandbox, |record| record.desired = "stopped");
    if stuck {
        return Ok(());
    }
    let (daytona, sandbox) = (Arc::clone(daytona), Arc::clone(sandbox));
    Arc::clone(&daytona).emulation.tasks.spawn(async move {
        daytona.pass(&sandbox, State::Stopping).await;
        sandbox.forget_sessions();
        if let Some(machine) = sandbox.machine()
            && let Err(error) = machine.kill_all().await
        {
            return daytona.fail(&sandbox, State::Error, error.to_string(), false);
        }
        if sandbox.record().ephemeral() {
            return daytona.destroyed(&sandbox).await;
        }
        daytona.change(&sandbox, |record| record.state = State::Stopped);
    });
    Ok(())
}

/// Removes it.
pub(super) fn delete(daytona: &Arc<Daytona>, sandbox: &Arc<Sandbox>, stuck: bool) -> Answer<()> {
    use State::{Archived, BuildFailed, Error, Started, Stopped};
    let deletable = [Started, Stopped, Archived, Error, BuildFailed];
    daytona.begin(sandbox, &deletable, State::Destroying, "Sandbox is not in valid state")?;
    daytona.change(sandbox, |record| record.desired = "destroyed");
    if stuck {
        return Ok(());
    }
    let (daytona, sandbox) = (Arc::clone(daytona), Arc::clone(sandbox));
    Arc::clone(&daytona).emulation.tasks.spawn(async move { daytona.destroyed(&sandbox).await });
    Ok(())
}

/// Moves a stopped one to cheap storage.
pub(super) fn archive(daytona: &Arc<Daytona>, sandbox: &Arc<Sandbox>) -> Answer<()> {
    if sandbox.record().ephemeral() {
        return Err(Failure::bad("Ephemeral sandboxes cannot be archived"));
    }
    daytona.begin(sandbox, &[State::Stopped], State::Archiving, "Sandbox is not stopped")?;
    daytona.change(sandbox, |record| record.desired = "archived");
    let (daytona, sandbox) = (Arc::clone(daytona), Arc::clone(sandbox));
    Arc::clone(&daytona).emulation.tasks.spawn(async move {
        daytona.pass(&sandbox, State::Archiving).await;
        daytona.change(&sandbox, |record| record.state = State::Archived);
    });
    Ok(())
}

impl Daytona {
    /// Shows a state for as long as states take.
    pub(super) async fn pass(&self, sandbox: &Sandbox, state: State) {
        self.change(sandbox, |record| record.state = state);
        tokio::time::sleep(self.emulation.timing.transition).await;
    }

    /// The last steps up.
    pub(super) async fn started(&self, sandbox: &Sandbox) {
        self.pass(sandbox, State::Starting).await;
        sandbox.touch();
        self.change(sandbox, |record| (record.state, record.desired) = (State::Started, "started"));
    }

    pub(super) fn fail(&self, sandbox: &Sandbox, state: State, reason: String, recoverable: bool) {
        self.change(sandbox, |record| {
            (record.state, record.error_reason, record.recoverable) = (state, Some(reason), recoverable);
        });
    }

    async fn destroyed(&self, sandbox: &Sandbox) {
        self.pass(sandbox, State::Destroying).await;
        sandbox.forget_sessions();
        if let Some(machine) = sandbox.machine()
            && let Err(error) = self.emulation.machines.destroy(&machine).await
        {
            return self.fail(sandbox, State::Error, error.to_string(), false);
        }
        sandbox.set_machine(None);
        self.change(sandbox, |record| record.state = State::Destroyed);
        self.holdings().sandboxes.remove(&sandbox.id);
    }
}
