//! Sessions: one virtual machine's life, and the states it passes through.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::error::{ApiError, Result};
use super::policy::Policy;
use super::process::Process;
use super::request::MEMORY_PER_VCPU;
use crate::machine::Machine;

/// Words of the wire. A session never is `failed` or `aborted` here: a fault script can make answers say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Pending,
    Running,
    Stopping,
    Snapshotting,
    Stopped,
}

/// What never changes in a session.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) id: String,
    /// Name of its sandbox.
    pub(super) sandbox: String,
    pub(super) project_id: String,
    pub(super) region: String,
    pub(super) vcpus: u32,
    pub(super) runtime: Option<String>,
    pub(super) source_snapshot: Option<String>,
    /// Milliseconds since the epoch.
    pub(super) requested_at: u64,
}

/// What a session runs on.
pub(super) struct Host {
    pub(super) machine: Machine,
    /// Working directory of commands that name none.
    pub(super) cwd: String,
    /// Environment of all commands.
    pub(super) env: BTreeMap<String, String>,
}

/// A session. Its commands and files are gone when it has stopped; what is said of it stays.
pub(super) struct Session {
    pub(super) identity: Identity,
    pub(super) host: Arc<Host>,
    state: Mutex<State>,
    /// Notified of every change of status.
    changes: watch::Sender<Status>,
    processes: Mutex<Vec<Arc<Process>>>,
}

struct State {
    status: Status,
    /// Milliseconds from the start.
    timeout: u64,
    started: Instant,
    started_at: u64,
    updated_at: u64,
    requested_stop_at: Option<u64>,
    stopped_at: Option<u64>,
    snapshotted_at: Option<u64>,
    policy: Policy,
    transfer: Transfer,
    active_cpu_ms: Option<u64>,
}

/// Bytes into and out of the machine by the file routes; the emulator does not see its other traffic.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Transfer {
    pub(super) ingress: u64,
    pub(super) egress: u64,
}

/// A session on the wire.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionView {
    id: String,
    status: Status,
    memory: u32,
    vcpus: u32,
    region: String,
    timeout: u64,
    requested_at: u64,
    created_at: u64,
    updated_at: u64,
    cwd: String,
    project_id: String,
    source_sandbox_name: String,
    network_policy: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_stop_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshotted_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_snapshot_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_cpu_duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_transfer: Option<Transfer>,
}

impl Session {
    pub(super) fn new(identity: Identity, host: Host, status: Status, timeout: u64, policy: Policy) -> Session {
        let now = now_ms();
        let state = State {
            status,
            timeout,
            started: Instant::now(),
            started_at: now,
            updated_at: now,
            requested_stop_at: None,
            stopped_at: None,
            snapshotted_at: None,
            policy,
            transfer: Transfer::default(),
            active_cpu_ms: None,
        };
        Session {
            identity,
            host: Arc::new(host),
            state: Mutex::new(state),
            changes: watch::Sender::new(status),
            processes: Mutex::default(),
        }
    }

    pub(super) fn status(&self) -> Status {
        self.lock().status
    }

    /// The answer to requests that need a running machine.
    pub(super) fn need_running(&self) -> Result<()> {
        let in_transition = |code, what: &str| {
            Err(ApiError::new(axum::http::StatusCode::UNPROCESSABLE_ENTITY, code, format!("Sandbox is {what}.")))
        };
        match self.status() {
            Status::Running => Ok(()),
            Status::Pending => in_transition("sandbox_pending", "not running yet"),
            Status::Stopping => in_transition("sandbox_stopping", "stopping"),
            Status::Snapshotting => in_transition("sandbox_snapshotting", "creating a snapshot"),
            Status::Stopped => Err(ApiError::stopped()),
        }
    }

    /// Goes from one status to another, if it is in the first.
    pub(super) fn shift(&self, from: Status, to: Status) -> bool {
        let mut state = self.lock();
        if state.status != from {
            return false;
        }
        let now = now_ms();
        state.status = to;
        state.updated_at = now;
        match to {
            Status::Stopping => state.requested_stop_at = Some(now),
            Status::Snapshotting => state.snapshotted_at = Some(now),
            Status::Stopped => state.stopped_at = Some(now),
            Status::Pending | Status::Running => {}
        }
        drop(state);
        self.changes.send_replace(to);
        true
    }

    /// Returns when the session has stopped.
    pub(super) async fn stopped(&self) {
        let mut changes = self.changes.subscribe();
        // The sender lives as long as we do.
        let _ = changes.wait_for(|status| *status == Status::Stopped).await;
    }

    /// Milliseconds since the epoch.
    pub(super) fn updated_at(&self) -> u64 {
        self.lock().updated_at
    }

    /// Milliseconds since the epoch: its deadline by the wall clock.
    pub(super) fn expires_at(&self) -> u64 {
        let state = self.lock();
        state.started_at + state.timeout
    }

    /// Milliseconds that it ran, if it has stopped.
    pub(super) fn duration(&self) -> Option<u64> {
        let state = self.lock();
        state.stopped_at.map(|stopped| stopped.saturating_sub(state.started_at))
    }

    /// When its time is over.
    pub(super) fn deadline(&self) -> Instant {
        let state = self.lock();
        state.started + Duration::from_millis(state.timeout)
    }

    /// Milliseconds more, at most to `longest` in all. False if that would be too long.
    pub(super) fn extend(&self, more: u64, longest: u64) -> bool {
        let mut state = self.lock();
        let timeout = state.timeout.saturating_add(more);
        if timeout <= longest {
            state.timeout = timeout;
            state.updated_at = now_ms();
        }
        timeout <= longest
    }

    pub(super) fn set_policy(&self, policy: Policy) {
        let mut state = self.lock();
        state.policy = policy;
        state.updated_at = now_ms();
    }

    pub(super) fn count_transfer(&self, ingress: u64, egress: u64) {
        let transfer = &mut self.lock().transfer;
        transfer.ingress += ingress;
        transfer.egress += egress;
    }

    /// What it has used becomes visible; its commands become unknown.
    pub(super) fn settle(&self, cpu: Duration) -> (Transfer, u64) {
        self.processes().clear();
        let cpu_ms = cpu.as_millis() as u64;
        let mut state = self.lock();
        state.active_cpu_ms = Some(cpu_ms);
        (state.transfer, cpu_ms)
    }

    pub(super) fn processes(&self) -> MutexGuard<'_, Vec<Arc<Process>>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn process(&self, id: &str) -> Result<Arc<Process>> {
        let found = self.processes().iter().find(|process| process.id == id).cloned();
        found.ok_or_else(|| ApiError::not_found("Command"))
    }

    pub(super) fn view(&self) -> SessionView {
        let Identity { id, sandbox, project_id, region, vcpus, runtime, source_snapshot, requested_at } =
            self.identity.clone();
        let state = self.lock();
        let measured = state.active_cpu_ms.is_some();
        SessionView {
            id,
            status: state.status,
            memory: vcpus * MEMORY_PER_VCPU,
            vcpus,
            region,
            timeout: state.timeout,
            requested_at,
            created_at: requested_at,
            updated_at: state.updated_at,
            cwd: self.host.cwd.clone(),
            project_id,
            source_sandbox_name: sandbox,
            network_policy: state.policy.readback.clone(),
            runtime,
            started_at: (state.status != Status::Pending).then_some(state.started_at),
            requested_stop_at: state.requested_stop_at,
            stopped_at: state.stopped_at,
            snapshotted_at: state.snapshotted_at,
            duration: state.stopped_at.map(|stopped| stopped.saturating_sub(state.started_at)),
            source_snapshot_id: source_snapshot,
            active_cpu_duration_ms: state.active_cpu_ms,
            network_transfer: measured.then_some(state.transfer),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Milliseconds since the epoch.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// A new id as the vendor makes them: a prefix and letters and digits.
pub(super) fn new_id(prefix: &str) -> String {
    format!("{prefix}_{}", uuid::Uuid::new_v4().simple())
}
