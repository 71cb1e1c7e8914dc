//! Reading runs into a report.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use sandbox_bench_core::evidence::{Attempt, CleanupState, Creates, EnvironmentWay, Variant};
use sandbox_bench_core::{Condition, ConditionProof, FailureClass, Phase};
use serde::de::DeserializeOwned;

use crate::cleanup::CleanupReport;
use crate::derived::{CLEANUP, SUMMARY, TRIALS, TrialRow, TrialRows};
use crate::evidence::{EvidenceError, Run};
use crate::render::plain;
use crate::stats::{Bootstrap, Ecdf, KaplanMeier, Time};
use crate::summary::{Cell, End, Summary, hash, unfinished};

use super::model::anchor;
use super::ramp::{Launch, ramps};
use super::saving::savings;
use super::spread::{Groups, Spread};
use super::{
    AttemptView, CellView, CleanupLine, Comparable, FailureMode, LISTED, Ramp, Report, RunView, TaskCell, TaskView,
    links,
};

/// Different messages that are shown of failures of one kind.
const EXAMPLES: usize = 3;

/// Reads the runs in these directories; links lead from `report`.
pub(super) fn collect(directories: &[PathBuf], report: &Path) -> Result<Report, EvidenceError> {
    let mut collector = Collector::default();
    let several = directories.len() > 1;
    for (index, directory) in directories.iter().enumerate() {
        let base = links::between(report, directory).map_err(|error| EvidenceError::io(directory, error))?;
        let run = Run::open(directory)?;
        let label = if several { format!("R{}", index + 1) } else { String::new() };
        collector.run(run, base, label)?;
    }
    Ok(collector.finish())
}

type CellKey = (usize, String, Condition, Option<String>, Variant);
type TaskKey = (String, String, String);

#[derive(Default)]
struct Collector {
    runs: Vec<RunView>,
    cells: Vec<CellDraft>,
    known: HashMap<CellKey, usize>,
    /// By data set, id and digest; for each the cells by index.
    tasks: BTreeMap<TaskKey, BTreeMap<usize, TaskCell>>,
    accepted: Vec<(TaskKey, AttemptView)>,
    others: Vec<(TaskKey, AttemptView)>,
    unlisted: u64,
    failures: BTreeMap<(&'static str, &'static str), ModeDraft>,
}

struct CellDraft {
    run: usize,
    name: String,
    figures: Cell,
    start: Vec<f64>,
    total: Vec<f64>,
    start_by_task: Groups,
    total_by_task: Groups,
    total_by_sandbox: Groups,
    launches: Vec<Launch>,
    /// Artifacts that its sandboxes were started from.
    artifacts: BTreeSet<String>,
}

impl CellDraft {
    fn new(run: usize, name: String, figures: Cell) -> Self {
        Self {
            run,
            name,
            figures,
            start: Vec::new(),
            total: Vec::new(),
            start_by_task: Groups::default(),
            total_by_task: Groups::default(),
            total_by_sandbox: Groups::default(),
            launches: Vec::new(),
            artifacts: BTreeSet::new(),
        }
    }

    fn add(&mut self, attempt: &Attempt, end: End) {
        let task = hash(&(&attempt.trial.dataset, &attempt.trial.task, &attempt.task_digest));
        let start = start_us(attempt);
        if let Some(us) = start {
            self.start.push(us as f64);
            self.start_by_task.add(task, us as f64);
        }
        if matches!(end, End::Accepted | End::Rejected) {
            let us = attempt.total_us as f64;
            self.total_by_task.add(task, us);
            if let Some(sandbox) = &attempt.sandbox {
                self.total_by_sandbox.add(hash(&sandbox.id), us);
            }
        }
        if end == End::Accepted {
            self.total.push(attempt.total_us as f64);
        }
        if !attempt.phases.is_empty() {
            let start_us = attempt.started_at.as_microsecond();
            self.launches.push(Launch { start_us, total_us: attempt.total_us, ready_us: start });
        }
        if let Some(environment) = attempt.environment.as_ref().filter(|e| e.way == EnvironmentWay::Artifact)
            && !self.artifacts.contains(&environment.asked)
        {
            self.artifacts.insert(environment.asked.clone());
        }
    }

    fn finish(self, verdict: KaplanMeier, ramp: Option<Ramp>) -> CellView {
        CellView {
            run: self.run,
            name: self.name,
            figures: self.figures,
            start: Ecdf::of(self.start),
            total: Ecdf::of(self.total),
            verdict,
            spread: Spread {
                start_by_task: self.start_by_task.components(),
                total_by_task: self.total_by_task.components(),
                total_by_sandbox: self.total_by_sandbox.components(),
            },
            ramp,
        }
    }
}

#[derive(Default)]
struct ModeDraft {
    counts: BTreeMap<usize, u64>,
    examples: Vec<(String, String)>,
}

impl Collector {
    fn run(&mut self, run: Run, base: String, label: String) -> Result<(), EvidenceError> {
        let directory = run.dir().to_owned();
        let summary: Summary = read(&directory.join(SUMMARY))?;
        let ledger: CleanupReport = read(&directory.join(CLEANUP))?;
        let index = self.runs.len();
        for figures in &summary.cells {
            let (model, variant) = (figures.model.clone(), figures.variant.clone());
            let key = (index, figures.backend.clone(), figures.condition, model, variant);
            let variant = figures.variant.to_string();
            let parts = [
                Some(label.as_str()),
                Some(&figures.backend),
                Some(figures.condition.name()),
                figures.model.as_deref(),
                Some(&variant),
            ];
            let name: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
            self.known.insert(key, self.cells.len());
            self.cells.push(CellDraft::new(index, plain(&name.join(" ")), figures.clone()));
        }
        let (mut counts, mut left) = (BTreeMap::new(), Vec::new());
        for entry in ledger.entries {
            let kind = if entry.creates == Creates::Sandbox { "sandbox" } else { "artifact" };
            *counts.entry((entry.backend.clone(), kind, entry.state)).or_default() += 1;
            if matches!(entry.state, CleanupState::Unconfirmed | CleanupState::Retained) && left.len() < LISTED {
                left.push(CleanupLine {
                    backend: entry.backend,
                    id: entry.id.map_or_else(|| format!("tag {}", plain(entry.tag.as_str())), |id| plain(&id)),
                    state: entry.state,
                    why: entry.why.as_deref().map(plain).unwrap_or_default(),
                });
            }
        }
        self.runs.push(RunView { label, base: base.clone(), manifest: run.manifest, summary, cleanup: counts, left });
        self.trials(&directory, index, &base)
    }

    fn trials(&mut self, directory: &Path, run: usize, base: &str) -> Result<(), EvidenceError> {
        for row in TrialRows::open(directory)? {
            let (line, row) = row?;
            self.attempt(&row, Place { directory, run, base, line });
        }
        Ok(())
    }

    fn attempt(&mut self, row: &TrialRow, place: Place<'_>) {
        let attempt = &row.attempt;
        let trial = &attempt.trial;
        let (model, variant) = (trial.model.clone(), trial.variant.clone());
        let key = (place.run, trial.backend.clone(), trial.condition, model, variant);
        // Every cell of the trials is in the summary, both being made from the same journal; what only warms up is in none.
        if trial.is_warm_up() {
            return;
        }
        let Some(&cell) = self.known.get(&key) else { return };
        let end = End::of(attempt);
        if let Some(draft) = self.cells.get_mut(cell) {
            draft.add(attempt, end);
        }
        let task: TaskKey = (trial.dataset.clone(), trial.task.clone(), attempt.task_digest.to_string());
        let kept = if end == End::Accepted { &mut self.accepted } else { &mut self.others };
        let link = if kept.len() < LISTED {
            kept.push((task.clone(), view(row, cell, end, &place)));
            format!("#{}", anchor(place.run, place.line))
        } else {
            self.unlisted += 1;
            format!("{}{TRIALS}", place.base)
        };
        if let Some(failure) = &attempt.failure {
            let mode = self.failures.entry((failure.class.name(), failure.phase.name())).or_default();
            *mode.counts.entry(cell).or_default() += 1;
            let message = plain(&failure.message);
            if mode.examples.len() < EXAMPLES && mode.examples.iter().all(|(known, _)| *known != message) {
                mode.examples.push((message, link.clone()));
            }
        }
        let known = self.tasks.entry(task).or_default().entry(cell).or_default();
        known.ends.insert(trial.replicate, end);
        known.times.extend(to_verdict(attempt, end));
        known.link.get_or_insert(link);
    }

    fn finish(mut self) -> Report {
        let ramps = self.ramps();
        let artifacts: Vec<BTreeSet<String>> =
            self.cells.iter_mut().map(|draft| std::mem::take(&mut draft.artifacts)).collect();
        let mut verdicts: Vec<Vec<Time>> = vec![Vec::new(); self.cells.len()];
        for (cell, task) in self.tasks.values().flatten() {
            if let Some(times) = verdicts.get_mut(*cell) {
                times.extend(&task.times);
            }
        }
        let confidence = Bootstrap::default().confidence;
        let drafts = self.cells.into_iter().zip(verdicts).zip(ramps);
        let cells: Vec<CellView> =
            drafts.map(|((draft, times), ramp)| draft.finish(KaplanMeier::of(&times, confidence), ramp)).collect();
        let numbers: HashMap<TaskKey, usize> = self.tasks.keys().cloned().zip(0..).collect();
        let mut names: HashMap<(String, String), usize> = HashMap::new();
        for (dataset, task, _) in self.tasks.keys() {
            *names.entry((dataset.clone(), task.clone())).or_default() += 1;
        }
        let tasks: Vec<TaskView> = self
            .tasks
            .into_iter()
            .map(|((dataset, task, digest), mut by_cell)| {
                let changed = names.get(&(dataset.clone(), task.clone())).is_some_and(|n| *n > 1);
                let digest = digest.rsplit(':').next().unwrap_or_default().chars().take(8).collect();
                TaskView {
                    dataset: plain(&dataset),
                    task: plain(&task),
                    digest: changed.then_some(digest),
                    cells: (0..cells.len()).map(|cell| by_cell.remove(&cell).unwrap_or_default()).collect(),
                }
            })
            .collect();
        let number =
            |(key, view): (TaskKey, AttemptView)| AttemptView { task: numbers.get(&key).copied().unwrap_or(0), ..view };
        let mut attempts: Vec<AttemptView> = self.others.into_iter().chain(self.accepted).map(number).collect();
        attempts.sort_by_key(|a| (a.cell, a.task, a.replicate, a.attempt, a.line));
        let mut failures: Vec<FailureMode> = self
            .failures
            .into_iter()
            .map(|((class, phase), draft)| FailureMode {
                class,
                phase,
                counts: (0..cells.len()).map(|cell| draft.counts.get(&cell).copied().unwrap_or(0)).collect(),
                examples: draft.examples,
            })
            .collect();
        failures.sort_by_key(|mode| std::cmp::Reverse(mode.total()));
        let comparable = Comparable::of(&tasks, cells.len());
        let savings = savings(&self.runs, &cells, &tasks, &artifacts);
        Report { runs: self.runs, cells, tasks, attempts, unlisted: self.unlisted, failures, comparable, savings }
    }

    /// How each cell went on in time, where the run knows when its attempts began.
    fn ramps(&mut self) -> Vec<Option<Ramp>> {
        let mut drawn: Vec<Option<Ramp>> = Vec::new();
        for (index, run) in self.runs.iter().enumerate() {
            let own = self.cells.iter_mut().filter(|draft| draft.run == index);
            let launches: Vec<Vec<Launch>> = own.map(|draft| std::mem::take(&mut draft.launches)).collect();
            let timed = run.manifest.imported.as_ref().is_none_or(|imported| imported.timed);
            drawn.extend(ramps(launches).into_iter().map(|ramp| Some(ramp).filter(|ramp| timed && ramp.most > 0)));
        }
        drawn
    }
}

/// Where a row of `trials.jsonl` stands.
struct Place<'a> {
    directory: &'a Path,
    run: usize,
    base: &'a str,
    line: u64,
}

fn view(row: &TrialRow, cell: usize, end: End, place: &Place<'_>) -> AttemptView {
    let attempt = &row.attempt;
    let output = |output: &sandbox_bench_core::OutputRef| {
        (plain(&output.name), links::inside(place.directory, place.base, &output.stored))
    };
    AttemptView {
        cell,
        task: 0,
        replicate: attempt.trial.replicate,
        attempt: attempt.attempt,
        line: place.line,
        end,
        phase: attempt.failure.as_ref().map(|failure| failure.phase),
        message: attempt.failure.as_ref().map(|failure| plain(&failure.message)).unwrap_or_default(),
        total_us: attempt.total_us,
        create_us: attempt.phase_us(Phase::Create),
        ready_us: attempt.phase_us(Phase::Ready),
        usd: row.cost.as_ref().and_then(crate::cost::Cost::usd),
        proof: match attempt.proof {
            Some(ConditionProof::Proven { .. }) => "proven",
            Some(ConditionProof::Unproven { .. }) => "unproven",
            Some(ConditionProof::Violated { .. }) => "violated",
            None => "",
        },
        outputs: attempt.outputs.iter().map(output).collect(),
    }
}

/// Create and ready together, where both were completed.
fn start_us(attempt: &Attempt) -> Option<u64> {
    let completed = |phase: Phase| {
        let ok = attempt.phases.iter().filter(|span| span.phase == phase).all(|span| span.ok);
        attempt.phase_us(phase).filter(|_| ok)
    };
    Some(completed(Phase::Create)?.saturating_add(completed(Phase::Ready)?))
}

fn to_verdict(attempt: &Attempt, end: End) -> Option<Time> {
    match end {
        End::Accepted | End::Rejected => Some(Time::seen(attempt.total_us as f64)),
        End::Failed(FailureClass::Unavailable) => None,
        End::Failed(_) if attempt.phases.is_empty() => None,
        End::Failed(_) => Some(unfinished(attempt, attempt.total_us)),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, EvidenceError> {
    let text = fs::read(path).map_err(|error| EvidenceError::io(path, error))?;
    serde_json::from_slice(&text)
        .map_err(|error| EvidenceError::Damaged { path: path.to_owned(), why: error.to_string() })
}
