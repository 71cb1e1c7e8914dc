//! What of a run is published beside its files: what was asked, and what came of it. Both of `run` and of `fixture`.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::Context as _;
use sandbox_bench_core::evidence::{Manifest, Variant};
use sandbox_bench_core::{BackendInfo, Decision, Evaluation, Phase, TrackedStatus};
use sandbox_bench_reports::derived::{SUMMARY, TRIALS, TrialRow};
use sandbox_bench_reports::evidence::{Lines, Run};
use sandbox_bench_reports::percentile::Durations;
use sandbox_bench_reports::summary::{Outcome, Summary};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::figures::Figures;
use crate::exit::Exit;
use crate::fixture::{self, is_fixture};

/// Word that all tracked runs can be listed by.
const TAG: &str = "sandbox-bench";

/// What was asked.
pub struct Asked {
    /// The run.
    pub evaluation: Evaluation,
    /// Revisions, cases, configuration.
    pub inputs: Map<String, Value>,
}

/// What came of it.
pub struct Came {
    /// Figures and series.
    pub figures: Figures,
    /// How it ended.
    pub status: TrackedStatus,
    /// The same in words.
    pub why: &'static str,
}

/// What was asked of the run in `directory`, from its manifest.
///
/// # Errors
/// It is not there or not one.
pub fn asked(directory: &Path) -> anyhow::Result<Asked> {
    if is_fixture(directory) {
        let manifest = fixture::manifest(directory)?;
        let evaluation = evaluation(&manifest.run, fixture::KIND, &manifest.backends);
        return Ok(Asked { evaluation, inputs: of_fixture(&manifest) });
    }
    let manifest = Run::open(directory)?.manifest;
    Ok(Asked { evaluation: evaluation(&manifest.run, "run", &manifest.backends), inputs: of_run(&manifest) })
}

fn evaluation(run: &str, kind: &str, backends: &[BackendInfo]) -> Evaluation {
    let tags = [TAG, kind, run].into_iter().chain(backends.iter().map(|backend| backend.name.as_str()));
    Evaluation { run: run.to_owned(), kind: kind.to_owned(), tags: tags.map(str::to_owned).collect() }
}

fn of_run(manifest: &Manifest) -> Map<String, Value> {
    let mut inputs = object(json!({
        "kind": "run",
        "run": manifest.run,
        "schema_version": manifest.schema_version,
        "binary_version": manifest.binary_version,
        "binary_revision": manifest.binary_revision,
        "case_set": manifest.datasets,
        "cases": manifest.datasets.iter().map(|dataset| dataset.tasks).sum::<u64>(),
        "trials": manifest.trials,
        "solver": manifest.solver,
        "model_gateway": manifest.model_gateway,
        "forwarded_env": manifest.forwarded_env,
        "host": manifest.host,
    }));
    inputs.extend(object(json!(manifest.plan)));
    inputs.extend(of_backends(&manifest.backends));
    inputs
}

fn of_fixture(manifest: &fixture::Manifest) -> Map<String, Value> {
    let files = manifest.files.iter().map(|file| (file.name.clone(), json!(file.digest)));
    let mut inputs = object(json!({
        "kind": fixture::KIND,
        "run": manifest.run,
        "schema_version": manifest.schema_version,
        "binary_version": manifest.binary_version,
        "binary_revision": manifest.binary_revision,
        "case_set": Value::Object(files.collect()),
        "modes": manifest.modes,
        "batches": manifest.batches,
        "repetitions": manifest.repetitions,
        "alternate": manifest.alternate,
        "profile": manifest.profile,
        "cleanup_limit_seconds": manifest.cleanup_limit_seconds,
        "trials": manifest.planned() * (manifest.modes.len() * manifest.backends.len()) as u64,
        "host": manifest.host,
    }));
    inputs.extend(of_backends(&manifest.backends));
    inputs
}

fn of_backends(backends: &[BackendInfo]) -> Map<String, Value> {
    let each = |of: fn(&BackendInfo) -> Value| -> Value {
        Value::Object(backends.iter().map(|backend| (backend.name.clone(), of(backend))).collect())
    };
    object(json!({
        "backends": backends.iter().map(|backend| &backend.name).collect::<Vec<_>>(),
        "adapter_versions": each(|backend| json!(backend.adapter_version)),
        "backend_versions": each(|backend| json!(backend.backend_version)),
        "regions": each(|backend| json!(backend.region)),
        "endpoints": each(|backend| json!(backend.endpoint)),
        "isolation": each(|backend| json!(backend.capabilities.isolation)),
    }))
}

/// What came of the run in `directory`, from its derived files, which must be up to date.
///
/// # Errors
/// One is not there or damaged.
pub fn came(directory: &Path) -> anyhow::Result<Came> {
    if is_fixture(directory) { came_of_fixture(directory) } else { came_of_run(directory) }
}

fn came_of_run(directory: &Path) -> anyhow::Result<Came> {
    let summary: Summary = json_file(directory, SUMMARY)?;
    let mut figures = Figures::default();
    let totals = &summary.totals;
    figures.fact("outcome", json!(summary.outcome));
    figures.facts(
        "",
        &[
            ("trials_attempted", totals.attempted),
            ("trials_accepted", totals.accepted),
            ("trials_rejected", totals.rejected),
            ("trials_failed", totals.failed),
            ("trials_unavailable", totals.unavailable),
            ("cleanup_unconfirmed", summary.cleanup.unconfirmed),
        ],
    );
    for cell in &summary.cells {
        let name = cell_name(&cell.backend, cell.condition.name(), (cell.model.as_deref(), &cell.variant));
        figures.facts(
            &name,
            &[
                ("trials_attempted", cell.trials.attempted),
                ("trials_accepted", cell.trials.accepted),
                ("trials_rejected", cell.trials.rejected),
                ("trials_failed", cell.trials.failed),
                ("proven", cell.proof.proven),
            ],
        );
        for phase in Phase::ALL {
            durations(&mut figures, (&name, phase.name()), cell.completed(phase));
        }
        durations(&mut figures, (&name, "accepted"), cell.total.accepted);
    }
    let path = directory.join(TRIALS);
    let mut lines = Lines::new(BufReader::new(File::open(&path).with_context(|| path.display().to_string())?));
    while let Some(line) = lines.next_line().with_context(|| path.display().to_string())? {
        let row: TrialRow = serde_json::from_slice(line).with_context(|| format!("{} is damaged", path.display()))?;
        add_attempt(&mut figures, &row);
    }
    let (status, why) = match summary.outcome {
        Outcome::Accepted => (TrackedStatus::Succeeded, "every trial was accepted"),
        Outcome::Rejected => (TrackedStatus::Succeeded, "every trial came to a decision; some were rejected"),
        Outcome::Infrastructure => (TrackedStatus::Failed, "some trials came to no decision"),
        Outcome::Cleanup => (TrackedStatus::Failed, "a sandbox is not confirmed gone"),
        Outcome::Interrupted => (TrackedStatus::Stopped, "the run did not come to its end"),
    };
    Ok(Came { figures, status, why })
}

/// Latency is kept by category: each phase that was completed, and whole attempts by what they came to.
fn add_attempt(figures: &mut Figures, row: &TrialRow) {
    let attempt = &row.attempt;
    let trial = &attempt.trial;
    if trial.is_warm_up() {
        return;
    }
    let cell = cell_name(&trial.backend, trial.condition.name(), (trial.model.as_deref(), &trial.variant));
    let mut point = figures.point(cell, attempt.started_at);
    for phase in Phase::ALL {
        let completed = attempt.phases.iter().filter(|span| span.phase == phase).all(|span| span.ok);
        if let Some(us) = attempt.phase_us(phase).filter(|_| completed) {
            point.seconds(phase.name(), us);
        }
    }
    let end = match attempt.verdict.as_ref().map(|verdict| verdict.decision) {
        Some(_) if attempt.accepted() => "accepted",
        Some(Decision::Rejected) => "rejected",
        _ => "failed",
    };
    point.seconds(end, attempt.total_us);
    point.value("acceptance", if attempt.accepted() { 1.0 } else { 0.0 });
}

fn came_of_fixture(directory: &Path) -> anyhow::Result<Came> {
    let summary: fixture::Summary = json_file(directory, SUMMARY)?;
    let mut figures = Figures::default();
    figures.facts(
        "",
        &[
            ("trials_attempted", summary.cells.iter().map(|cell| cell.attempted).sum()),
            ("trials_succeeded", summary.cells.iter().map(|cell| cell.succeeded).sum()),
            ("trials_failed", summary.cells.iter().map(|cell| cell.failed).sum()),
            ("trials_unattempted", summary.cells.iter().map(|cell| cell.unattempted).sum()),
            ("submissions_uncertain", summary.uncertain.len() as u64),
            ("cleanup_unconfirmed", summary.cleanup_unconfirmed),
        ],
    );
    figures.fact("wall_seconds", json!(summary.cells.iter().map(|cell| cell.wall_seconds).sum::<f64>()));
    for cell in &summary.cells {
        let name = cell_name(&cell.backend, cell.mode.name(), (None, &Variant::default()));
        figures.facts(
            &name,
            &[
                ("attempted", cell.attempted),
                ("succeeded", cell.succeeded),
                ("failed", cell.failed),
                ("unattempted", cell.unattempted),
                ("command_timeouts", cell.command_timeouts),
            ],
        );
        let command = cell.command.as_ref();
        let command = command.map(|c| Durations { n: c.n, p50_us: c.p50_us, p95_us: c.p95_us, max_us: c.max_us });
        durations(&mut figures, (&name, "command"), command);
        figures.fact(&format!("{name}_wall_seconds"), json!(cell.wall_seconds));
        figures.fact(&format!("{name}_wall_seconds_per_success"), json!(cell.wall_seconds_per_success));
    }
    for trial in fixture::trials(directory)? {
        let mut point =
            figures.point(cell_name(&trial.backend, trial.mode.name(), (None, &Variant::default())), trial.started_at);
        let succeeded = trial.failure.is_none();
        point.value("success", if succeeded { 1.0 } else { 0.0 });
        let times = &trial.times;
        let measured = [
            ("create", times.create_us),
            ("ready", times.ready_us),
            ("inputs", times.inputs_us),
            ("command", times.command_us),
            ("guest", times.guest_us),
            ("collect", times.collect_us),
            ("destroy", times.destroy_us),
        ];
        for (name, us) in measured.into_iter().filter(|_| succeeded) {
            if let Some(us) = us {
                point.seconds(name, us);
            }
        }
        point.seconds(if succeeded { "succeeded" } else { "failed" }, times.total_us);
    }
    let (status, why) = match summary.exit() {
        Exit::Accepted => (TrackedStatus::Succeeded, "every total and count was right"),
        Exit::Rejected => (TrackedStatus::Succeeded, "some totals or counts were wrong"),
        Exit::Cleanup => (TrackedStatus::Failed, "a sandbox is not confirmed gone"),
        Exit::Interrupted => (TrackedStatus::Stopped, "the run did not come to its end"),
        _ => (TrackedStatus::Failed, "some trials failed"),
    };
    Ok(Came { figures, status, why })
}

fn durations(figures: &mut Figures, (cell, of): (&str, &str), durations: Option<Durations>) {
    let Some(Durations { n, p50_us, p95_us, max_us }) = durations else { return };
    figures.fact(&format!("{cell}_{of}_n"), json!(n));
    for (name, us) in [("p50", p50_us), ("p95", p95_us), ("max", max_us)] {
        figures.fact(&format!("{cell}_{of}_{name}_seconds"), json!(us as f64 / 1e6));
    }
}

fn cell_name(backend: &str, condition: &str, (model, variant): (Option<&str>, &Variant)) -> String {
    let (profile, level) = (variant.profile.as_deref(), variant.concurrency.map(|level| format!("x{level}")));
    let bytes = variant.input_bytes.map(|bytes| format!("{bytes}B"));
    let parts = [Some(backend), Some(condition), model, profile, bytes.as_deref(), level.as_deref()];
    parts.into_iter().flatten().collect::<Vec<_>>().join("-")
}

fn json_file<T: DeserializeOwned>(directory: &Path, name: &str) -> anyhow::Result<T> {
    let path = directory.join(name);
    let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{} is damaged; `sandbox-bench report` rebuilds it", path.display()))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
