//! Readiness probes.

use std::sync::Arc;
use std::time::Duration;

use super::ids::timestamp;
use super::proto::client::Probe;
use super::proto::client::probe::ProbeOneof;
use super::sandbox::Sandbox;
use super::{Modal, Result};
use crate::machine::{Command, End, Machine};
use tonic::Status;

/// Milliseconds between two tries that a probe does not say.
const INTERVAL: u32 = 100;
/// Longest time of one try.
const TRY: Duration = Duration::from_secs(10);

impl Sandbox {
    /// Tries until it is ready. Without a probe it is never called so.
    pub(super) async fn probe(&self, machine: &Arc<Machine>) {
        let Some(Probe { interval_ms, probe_oneof: Some(probe) }) = &self.definition.readiness_probe else { return };
        let argv = match probe {
            ProbeOneof::ExecCommand(command) => command.argv.clone(),
            ProbeOneof::TcpPort(port) => {
                ["bash", "-c", &format!("exec 3<>/dev/tcp/127.0.0.1/{port}")].map(str::to_owned).to_vec()
            }
        };
        let pause = Duration::from_millis(interval_ms.unwrap_or(INTERVAL).max(1).into());
        loop {
            let tried = {
                let _no_saving = self.saving.read().await;
                let command = Command { timeout: Some(TRY), ..self.command(machine, &argv, None) };
                machine.run(command, None).await
            };
            if tried.is_ok_and(|done| done.end == End::Exited(0)) {
                self.ready_at.send_replace(Some(timestamp()));
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

impl Modal {
    /// Seconds since the epoch at which the sandbox was ready.
    pub(super) async fn wait_until_ready(&self, task_id: &str, timeout: f32) -> Result<f64> {
        let sandbox = self.sandbox_of_task(task_id)?;
        sandbox.machine().await?;
        if sandbox.definition.readiness_probe.is_none() {
            return Err(Status::failed_precondition("The sandbox has no readiness probe"));
        }
        let limit = Duration::try_from_secs_f32(timeout).map_err(|_| super::status::violation("timeout"))?;
        let mut ready = sandbox.ready_at.subscribe();
        tokio::select! {
            at = ready.wait_for(Option::is_some) => at.ok().and_then(|at| *at).ok_or_else(|| sandbox.gone()),
            () = sandbox.over.cancelled() => Err(sandbox.gone()),
            () = tokio::time::sleep(limit) => Err(Status::deadline_exceeded("The sandbox is not ready yet")),
        }
    }
}
