//! What the platform says about a sandbox: state, granted resources, timestamps, facts that bear on cost.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandbox_bench_core::{Error, ErrorKind, Resources, SandboxState};

use crate::wire::{SandboxObject, State, timestamp, whole};

/// True if commands can run in it, now or in a moment.
pub(crate) fn alive(sandbox: &SandboxObject) -> bool {
    use State::{Creating, Other, Restoring, Snapshotting, Started, Starting};
    matches!(sandbox.state, None | Some(Creating | Restoring | Starting | Started | Snapshotting | Other))
}

/// True if nothing of it is left. One that was evicted or never got a place can be looked at for a day.
pub(crate) fn gone(sandbox: &SandboxObject) -> bool {
    sandbox.state == Some(State::Destroyed)
}

/// Its state in the contract's words.
pub(crate) fn state(sandbox: &SandboxObject) -> SandboxState {
    use State::*;
    match sandbox.state {
        Some(PendingBuild | BuildingSnapshot | PullingSnapshot | Creating | Starting | Restoring) => {
            SandboxState::Starting
        }
        Some(Started | Snapshotting) => SandboxState::Running,
        Some(Stopping | Stopped | Archiving | Archived | Error | BuildFailed | Destroying | Destroyed) => {
            SandboxState::Stopped
        }
        Some(Other) | None => SandboxState::Unknown,
    }
}

/// The error of a sandbox that is not there any more.
pub(crate) fn lost(id: &str) -> Error {
    Error::new(ErrorKind::SandboxLost, format!("sandbox {id} is gone"))
        .hint("its lifetime was over, it was idle for too long, or somebody deleted it")
}

/// The error of a sandbox that has ended.
pub(crate) fn ended(sandbox: &SandboxObject) -> Error {
    let state = sandbox.state.map_or("in an unknown state".to_owned(), |state| format!("{state:?}").to_lowercase());
    let why = sandbox.error_reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    Error::new(ErrorKind::SandboxLost, format!("sandbox {} does not run any more: it is {state}{why}", sandbox.id))
}

/// What it got.
pub(crate) fn granted(sandbox: &SandboxObject) -> Resources {
    let mib = |gib: Option<f64>| whole(gib.map(|gib| gib * 1024.0));
    Resources {
        cpus: sandbox.cpu,
        memory_mb: mib(sandbox.memory),
        disk_mb: mib(sandbox.disk),
        pids: None,
        gpus: whole(sandbox.gpu).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0),
    }
}

/// The platform's timestamps, by event.
pub(crate) fn times(sandbox: &SandboxObject) -> BTreeMap<String, Timestamp> {
    [
        ("created", sandbox.created_at.as_deref()),
        ("updated", sandbox.updated_at.as_deref()),
        ("last_activity", sandbox.last_activity_at.as_deref()),
    ]
    .into_iter()
    .filter_map(|(event, text)| Some((event.to_owned(), timestamp(text)?)))
    .collect()
}

/// What a bill is made from: the platform charges reserved resources by the second while a sandbox runs, and tells no
/// amount. And what bears on how comparable two measurements are.
pub(crate) fn cost_evidence(sandbox: &SandboxObject) -> BTreeMap<String, String> {
    let number = |value: Option<f64>| value.map(|value| value.to_string());
    [
        ("reserved_vcpu", number(sandbox.cpu)),
        ("reserved_memory_gib", number(sandbox.memory)),
        ("reserved_disk_gib", number(sandbox.disk)),
        ("reserved_gpu", number(sandbox.gpu)),
        ("region", sandbox.target.clone()),
        ("sandbox_class", sandbox.sandbox_class.clone()),
        ("runner", sandbox.runner_id.clone()),
        ("daemon_version", sandbox.daemon_version.clone()),
        ("warm_pool", sandbox.warm_pool_id.clone()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_gibibytes_are_told_in_mebibytes() {
        let sandbox = SandboxObject { cpu: Some(2.0), memory: Some(4.0), gpu: Some(0.0), ..SandboxObject::default() };
        let granted = granted(&sandbox);
        assert_eq!(
            (granted.cpus, granted.memory_mb, granted.disk_mb, granted.gpus),
            (Some(2.0), Some(4096), None, None)
        );
        let evidence = cost_evidence(&sandbox);
        assert_eq!(evidence.get("reserved_memory_gib").map(String::as_str), Some("4"));
        assert!(!evidence.contains_key("reserved_disk_gib"), "what is not said is not evidence");
    }

    #[test]
    fn a_sandbox_that_ended_says_how() {
        let sandbox = SandboxObject {
            id: "s1".into(),
            state: Some(State::Error),
            error_reason: Some("out of disk".into()),
            ..SandboxObject::default()
        };
        assert!(!alive(&sandbox));
        let error = ended(&sandbox).to_string();
        assert!(error.contains("s1") && error.contains("error: out of disk"), "{error}");
    }
}
