//! Evidence for tests: small, but complete.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use sandbox_bench_core::evidence::{
    Attempt, Cleanup, Creates, DatasetRecord, EnvironmentRecord, EnvironmentWay, Event, Failure, Host, JournalLine,
    Manifest, PlanSettings, SCHEMA_VERSION, TrialKey,
};
use sandbox_bench_core::{
    BackendInfo, CacheUse, Capabilities, Condition, ConditionProof, Decision, Destruction, Digest, FailureClass,
    MeterReading, NetworkPolicy, Observation, OutputRef, Phase, PhaseSpan, Resources, SandboxRef, Tag, TestCounts,
    Verdict,
};

use crate::evidence::{JOURNAL, MANIFEST};
use crate::files::replace_json;

/// The run of all samples.
pub(crate) const RUN: &str = "r1";

pub(crate) fn start() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

/// A manifest over `local` and `docker`, each of `conditions`, with `tasks` tasks.
pub(crate) fn manifest(conditions: &[Condition], tasks: u64) -> Manifest {
    let backend = |name: &str| BackendInfo {
        name: name.into(),
        adapter_version: "0.1.0".into(),
        backend_version: None,
        api_version: None,
        endpoint: "embedded".into(),
        region: None,
        architecture: "x86_64".into(),
        capabilities: Capabilities::default(),
    };
    Manifest {
        schema_version: SCHEMA_VERSION.into(),
        run: RUN.into(),
        started_at: start(),
        binary_version: "0.1.0".into(),
        binary_revision: None,
        host: Some(Host {
            os: "Linux".into(),
            kernel: "6.1".into(),
            architecture: "x86_64".into(),
            cpus: 2,
            memory_mb: 4096,
        }),
        imported: None,
        backends: vec![backend("local"), backend("docker")],
        datasets: vec![DatasetRecord { name: "smoke".into(), digest: Digest::of(b"smoke"), tasks }],
        solver: "gold".into(),
        plan: PlanSettings {
            conditions: conditions.to_vec(),
            replicates: 1,
            order: "interleaved".into(),
            seed: 1,
            concurrency: 2,
            max_attempts: 2,
            ..PlanSettings::default()
        },
        trials: 2 * conditions.len() as u64 * tasks,
        forwarded_env: Vec::new(),
        model_gateway: None,
        left_out: Default::default(),
        quarantined: Default::default(),
    }
}

pub(crate) fn tag(unit: &str) -> Tag {
    Tag::new(RUN, unit)
}

pub(crate) fn sandbox(backend: &str, unit: &str) -> SandboxRef {
    SandboxRef { backend: backend.into(), id: format!("id-{unit}"), tag: tag(unit) }
}

/// An accepted attempt at task `number`, submitted `number` seconds after the start of the run. Its times grow with
/// `number`: create 100 ms + 10 ms each, ready 5 ms, solve 1 s.
pub(crate) fn attempt(backend: &str, condition: Condition, number: u64) -> Attempt {
    let unit = format!("{backend}-{condition}-{number}");
    let create = 100_000 + 10_000 * number;
    let span = |phase, start_us, duration_us| PhaseSpan { phase, start_us, duration_us, guest_us: None, ok: true };
    Attempt {
        schema_version: SCHEMA_VERSION.into(),
        run: RUN.into(),
        trial: TrialKey {
            backend: backend.into(),
            condition,
            dataset: "smoke".into(),
            task: format!("task-{number}"),
            replicate: 1,
            model: None,
            variant: Default::default(),
        },
        attempt: 1,
        last: true,
        tag: tag(&unit),
        adapter_version: "0.1.0".into(),
        task_digest: Digest::of(unit.as_bytes()),
        started_at: start() + SignedDuration::from_secs(i64::try_from(number).unwrap()),
        total_us: create + 1_005_000,
        sandbox: Some(sandbox(backend, &unit)),
        environment: Some(EnvironmentRecord {
            way: EnvironmentWay::Image,
            fingerprint: Digest::of(b"environment"),
            asked: "debian:bookworm-slim".into(),
            resolved: "sha256:1234".into(),
            cache: Some(CacheUse::Hit),
        }),
        proof: Some(ConditionProof::Proven { why: "new pid namespace".into() }),
        freshness: None,
        phases: vec![
            span(Phase::Create, 0, create),
            span(Phase::Ready, create, 5_000),
            span(Phase::Solve, create + 5_000, 1_000_000),
        ],
        meter: MeterReading { api_calls: 7, bytes_up: 10, bytes_down: 20, retries: 0 },
        resolution_us: Some(1_000),
        requested: Resources { cpus: Some(1.0), memory_mb: Some(512), ..Resources::default() },
        network: NetworkPolicy::NoNetwork,
        observation: Some(Observation { cpu_us: Some(900_000), ..Observation::default() }),
        solver: None,
        agent: None,
        replay: None,
        verifier: None,
        verdict: Some(verdict(Decision::Accepted)),
        failure: None,
        cleanup: Cleanup::Confirmed,
        inputs: Vec::new(),
        outputs: vec![OutputRef {
            name: "verifier.stdout".into(),
            path: None,
            digest: Digest::of(b"output"),
            size: 6,
            media_type: "text/plain".into(),
            stored: "outputs/ab/cd".into(),
            truncated: false,
        }],
        warnings: Vec::new(),
    }
}

fn verdict(decision: Decision) -> Verdict {
    Verdict {
        decision,
        decided_by: "reward".into(),
        rewards: BTreeMap::from([("reward".into(), f64::from(u8::from(decision == Decision::Accepted)))]),
        exit_code: Some(0),
        tests: Some(TestCounts { passed: 3, failed: 0, skipped: 0, failing: Vec::new() }),
        disagreements: Vec::new(),
        preseeded_reward: false,
    }
}

/// The same attempt, ended by a failure in its last phase.
pub(crate) fn failed(mut attempt: Attempt, class: FailureClass) -> Attempt {
    attempt.verdict = (class == FailureClass::Rejected).then(|| verdict(Decision::Rejected));
    if class == FailureClass::Unavailable {
        (attempt.phases, attempt.sandbox, attempt.proof, attempt.environment) = (Vec::new(), None, None, None);
        attempt.cleanup = Cleanup::Nothing;
    }
    let last = attempt.phases.last_mut();
    let phase = last.as_ref().map_or(Phase::Environment, |span| span.phase);
    if let Some(span) = last {
        span.ok = class == FailureClass::Rejected;
    }
    attempt.failure = Some(Failure {
        class,
        phase,
        message: format!("it ended as {class}"),
        error_kind: None,
        retryable: class == FailureClass::Transport,
    });
    attempt
}

/// Everything that the journal holds of an attempt.
pub(crate) fn events(attempt: Attempt) -> Vec<Event> {
    let mut events = Vec::new();
    if let Some(sandbox) = attempt.sandbox.clone() {
        let intent =
            Event::Intent { tag: attempt.tag.clone(), backend: sandbox.backend.clone(), creates: Creates::Sandbox };
        events.extend([
            intent,
            Event::Created { sandbox: sandbox.clone() },
            Event::DestroyRequested { sandbox: sandbox.clone() },
            Event::Destroyed { sandbox, outcome: Destruction::Confirmed },
        ]);
    }
    events.push(Event::AttemptFinished { attempt: Box::new(attempt) });
    events
}

pub(crate) fn started() -> Event {
    Event::RunStarted { run: RUN.into(), schema_version: SCHEMA_VERSION.into() }
}

pub(crate) fn finished() -> Event {
    Event::RunFinished { interrupted: false }
}

/// The events as lines of a journal.
pub(crate) fn lines(events: &[Event]) -> Vec<u8> {
    let mut text = Vec::new();
    for (event, seq) in events.iter().zip(1..) {
        let at = start() + SignedDuration::from_millis(i64::try_from(seq).unwrap());
        serde_json::to_writer(&mut text, &JournalLine { seq, at, event: event.clone() }).unwrap();
        text.push(b'\n');
    }
    text
}

/// Writes a run directory.
pub(crate) fn write_run(dir: &Path, manifest: &Manifest, events: &[Event]) {
    replace_json(&dir.join(MANIFEST), manifest).unwrap();
    fs::File::create(dir.join(JOURNAL)).unwrap().write_all(&lines(events)).unwrap();
}
