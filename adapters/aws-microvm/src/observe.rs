//! What the service says about a MicroVM: timestamps, and what bears on cost.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_lambdamicrovms::operation::get_microvm::GetMicrovmOutput;
use aws_sdk_lambdamicrovms::types::MicrovmState;
use jiff::Timestamp;
use sandbox_bench_core::{Call, Observation, Result, SandboxState};
use sandbox_bench_kit::guest::Usage;

use crate::cloud::timestamp;
use crate::vm::Vm;

/// The state of a sandbox, for a search.
pub(crate) fn state(state: &MicrovmState) -> SandboxState {
    match state {
        MicrovmState::Pending => SandboxState::Starting,
        MicrovmState::Running | MicrovmState::Suspending => SandboxState::Running,
        MicrovmState::Suspended | MicrovmState::Terminating | MicrovmState::Terminated => SandboxState::Stopped,
        _ => SandboxState::Unknown,
    }
}

/// The service's timestamps, by event.
fn times(seen: &GetMicrovmOutput) -> BTreeMap<String, Timestamp> {
    [("started", Some(&seen.started_at)), ("terminated", seen.terminated_at.as_ref())]
        .into_iter()
        .filter_map(|(event, at)| Some((event.to_owned(), timestamp(at?)?)))
        .collect()
}

/// How long a MicroVM is billed as running, once it has ended: by the service's clock, without the time that it was suspended,
/// which the service does not tell.
pub(crate) fn running(seen: &GetMicrovmOutput, suspended: Duration) -> BTreeMap<String, String> {
    let suspended = suspended.as_secs_f64();
    let seconds = seen.terminated_at.as_ref().map(|end| end.as_secs_f64() - seen.started_at.as_secs_f64());
    let Some(seconds) = seconds.filter(|seconds| *seconds >= 0.0) else { return BTreeMap::new() };
    let running = ("running_seconds".to_owned(), format!("{:.3}", (seconds - suspended).max(0.0)));
    let suspended = (suspended > 0.0).then(|| ("suspended_seconds".to_owned(), format!("{suspended:.3}")));
    std::iter::once(running).chain(suspended).collect()
}

/// What is known of a running sandbox.
///
/// # Errors
/// `SandboxLost` if it has ended.
pub(crate) async fn observe(vm: &Vm, call: &Call, usage: Usage) -> Result<Observation> {
    let seen = vm.look(call).await?;
    let settings = &vm.cloud.settings;
    let mut cost = BTreeMap::from([
        ("region".to_owned(), settings.region.clone()),
        ("architecture".to_owned(), settings.architecture.wire().to_owned()),
        ("baseline_memory_mib".to_owned(), vm.image.size.memory_mb.to_string()),
        ("image_version".to_owned(), format!("{}@{}", seen.image_arn, seen.image_version)),
        // What is used above the baseline is billed too, and the service does not tell it.
        ("lower_bound".to_owned(), "use above the baseline is billed and not told".to_owned()),
    ]);
    if let Some(bytes) = vm.images.snapshot_bytes(&vm.cloud, call, &vm.image).await {
        cost.insert("snapshot_bytes".to_owned(), bytes.to_string());
    }
    Ok(Observation {
        granted: vm.image.size.granted(),
        cpu_us: usage.cpu_us,
        peak_memory_bytes: usage.peak_memory_bytes,
        provider_times: times(&seen),
        cost_evidence: cost,
    })
}
