//! What the service says about a session: granted resources, timestamps, and what is billed.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use sandbox_bench_core::{Call, Observation, Resources, Result, SandboxState};
use sandbox_bench_kit::guest::Usage;

use crate::client::Api;
use crate::error;
use crate::wire::{Session, Status};

/// Pause between two looks at a session whose state is about to change, as the official Python client 0.10.0 has it.
pub(crate) const POLL: Duration = Duration::from_millis(500);

/// What the sandbox got.
pub(crate) fn granted(session: &Session) -> Resources {
    Resources { cpus: session.vcpus, memory_mb: session.memory, ..Resources::default() }
}

/// The service's timestamps of the session, by event.
pub(crate) fn times(session: &Session) -> BTreeMap<String, Timestamp> {
    [("requested", session.requested_at), ("started", session.started_at), ("stopped", session.stopped_at)]
        .into_iter()
        .filter_map(|(event, at)| Some((event.to_owned(), timestamp(at?)?)))
        .collect()
}

/// A time on the wire is in milliseconds since the epoch.
pub(crate) fn timestamp(milliseconds: i64) -> Option<Timestamp> {
    Timestamp::from_millisecond(milliseconds).ok()
}

/// What bears on cost, by name. CPU time and transfer are there once the session has stopped.
pub(crate) fn cost(session: &Session) -> BTreeMap<String, String> {
    let transfer = session.network_transfer;
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    [
        ("active_cpu_ms", number(session.active_cpu_duration_ms)),
        ("session_ms", number(session.duration)),
        ("network_ingress_bytes", number(transfer.map(|transfer| transfer.ingress))),
        ("network_egress_bytes", number(transfer.map(|transfer| transfer.egress))),
        ("vcpus", session.vcpus.map(|vcpus| vcpus.to_string())),
        ("memory_mb", number(session.memory)),
        ("region", session.region.clone()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect()
}

/// The state of a sandbox, for a search.
pub(crate) fn state(status: Status) -> SandboxState {
    match status {
        Status::Pending => SandboxState::Starting,
        Status::Running | Status::Stopping | Status::Snapshotting => SandboxState::Running,
        Status::Stopped | Status::Failed | Status::Aborted => SandboxState::Stopped,
        Status::Unknown => SandboxState::Unknown,
    }
}

/// What is known of a running sandbox.
///
/// # Errors
/// `SandboxLost` if it has ended.
pub(crate) async fn observe(
    api: &Api,
    call: &Call,
    (name, session): (&str, &str),
    usage: Usage,
) -> Result<Observation> {
    let session = api.session(call, session).await?;
    if session.status.over() {
        return Err(error::lost(name));
    }
    Ok(Observation {
        granted: granted(&session),
        cpu_us: usage.cpu_us,
        peak_memory_bytes: usage.peak_memory_bytes,
        provider_times: times(&session),
        cost_evidence: cost(&session),
    })
}
