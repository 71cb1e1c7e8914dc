//! Reading runs into a report.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sandbox_bench_core::evidence::{Attempt, CleanupState, Creates, EnvironmentWay, Variant};
use sandbox_bench_core::{Condition, ConditionProof, FailureClass, Phase};
use serde::de::DeserializeOwned;

use crate::cleanup::read_entries;
use crate::derived::{CLEANUP, SUMMARY, TRIALS, TrialRow, TrialRows};
use crate::evidence::{EvidenceError, Run};
use crate::render::plain;
use crate::stats::{Bootstrap, Time};
use crate::summary::{Cell, End, Summary, hash, unfinished};

use super::kept::{Kept, Of, Told};
use super::model::anchor;
use super::ramp::Launch;
use super::saving::savings;
use super::spread::Spread;
use super::{
    AttemptView, CellView, CleanupLine, Comparable, Curve, FailureMode, LISTED, Report, RunView, TaskCell, TaskView,
    Verdicts, links,
};

/// Different messages that are shown of failures of one kind.
const EXAMPLES: usize = 3;

/// Reads the runs in these directories; links lead from `report`.
pub(super) fn collect(directories: &[PathBuf], report: &Path) -> Result<Report, EvidenceError> {
    let mut collector = Collector::new(report);
    let several = directories.len() > 1;
    for (index, directory) in directories.iter().enumerate() {
        let base = links::between(report, directory).map_err(|error| EvidenceError::io(directory, error))?;
        let run = Run::open(directory)?;
        let label = if several { format!("R{}", index + 1) } else { String::new() };
        collector.run(run, base, label)?;
    }
    collector.finish().map_err(|error| EvidenceError::io(report, error))
}

type CellKey = (usize, String, Condition, Option<String>, Variant);
type TaskKey = (String, String, String);

struct Collector {
    runs: Vec<RunView>,
    cells: Vec<CellDraft>,
    known: HashMap<CellKey, usize>,
    /// By data set, id and digest, in the order in which they occurred; a task's number is its place here.
    tasks: Vec<TaskKey>,
    /// … by the hash of that.
    numbers: HashMap<u64, u32>,
    /// What every cell has of a task, by the numbers of both.
    links: HashMap<(u32, usize), Linked>,
    accepted: Vec<(u32, AttemptView)>,
    others: Vec<(u32, AttemptView)>,
    unlisted: u64,
    failures: BTreeMap<(&'static str, &'static str), ModeDraft>,
    kept: Kept,
}

/// A task in a cell: link to the evidence of its first attempt, and how many have a time to a verdict so far.
struct Linked {
    link: String,
    timed: u32,
}

struct CellDraft {
    run: usize,
    name: String,
    figures: Cell,
    /// Artifacts that its sandboxes were started from.
    artifacts: BTreeSet<String>,
}

impl CellDraft {
    fn finish(self, index: usize, told: &Told, timed: bool) -> CellView {
        CellView {
            run: self.run,
            name: self.name,
            figures: self.figures,
            start: Curve::of(told.starts(index)),
            total: Curve::of(told.totals(index)),
            verdict: Verdicts::of(|| told.verdicts(index), Bootstrap::default().confidence),
            spread: Spread {
                start_by_task: told.start_by_task(index),
                total_by_task: told.total_by_task(index),
                total_by_sandbox: told.total_by_sandbox(index),
            },
            ramp: timed.then(|| told.ramp(self.run, index)).filter(|ramp| ramp.most > 0),
        }
    }
}

#[derive(Default)]
struct ModeDraft {
    counts: BTreeMap<usize, u64>,
    examples: Vec<(String, String)>,
}

impl Collector {
    fn new(scratch: &Path) -> Self {
        Self {
            runs: Vec::new(),
            cells: Vec::new(),
            known: HashMap::new(),
            tasks: Vec::new(),
            numbers: HashMap::new(),
            links: HashMap::new(),
            accepted: Vec::new(),
            others: Vec::new(),
            unlisted: 0,
            failures: BTreeMap::new(),
            kept: Kept::new(scratch),
        }
    }

    fn run(&mut self, run: Run, base: String, label: String) -> Result<(), EvidenceError> {
        let directory = run.dir().to_owned();
        let summary: Summary = read(&directory.join(SUMMARY))?;
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
            let (name, figures) = (plain(&name.join(" ")), figures.clone());
            self.cells.push(CellDraft { run: index, name, figures, artifacts: BTreeSet::new() });
        }
        let (mut counts, mut left) = (BTreeMap::new(), Vec::new());
        read_entries(&directory.join(CLEANUP), |entry| {
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
        })?;
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
        let task = self.number(attempt);
        let kept = if end == End::Accepted { &mut self.accepted } else { &mut self.others };
        let link = if kept.len() < LISTED {
            kept.push((task, view(row, cell, end, &place)));
            format!("#{}", anchor(place.run, place.line))
        } else {
            self.unlisted += 1;
            format!("{}{TRIALS}", place.base)
        };
        if let Some(failure) = &attempt.failure {
            let mode = self.failures.entry((failure.class.name(), failure.phase.name())).or_default();
            *mode.counts.entry(cell).or_default() += 1;
            if mode.examples.len() < EXAMPLES {
                let message = plain(&failure.message);
                if mode.examples.iter().all(|(known, _)| *known != message) {
                    mode.examples.push((message, link.clone()));
                }
            }
        }
        if let Some(environment) = attempt.environment.as_ref().filter(|e| e.way == EnvironmentWay::Artifact)
            && let Some(draft) = self.cells.get_mut(cell)
            && !draft.artifacts.contains(&environment.asked)
        {
            draft.artifacts.insert(environment.asked.clone());
        }
        let linked = self.links.entry((task, cell)).or_insert(Linked { link, timed: 0 });
        let of = Of { run: place.run, cell, task, trial: linked.timed, replicate: trial.replicate };
        linked.timed += u32::from(keep(&mut self.kept, of, attempt, end));
    }

    /// The number of the attempt's task.
    fn number(&mut self, attempt: &Attempt) -> u32 {
        let trial = &attempt.trial;
        *self.numbers.entry(hash(&(&trial.dataset, &trial.task, &attempt.task_digest))).or_insert_with(|| {
            self.tasks.push((trial.dataset.clone(), trial.task.clone(), attempt.task_digest.to_string()));
            self.tasks.len() as u32 - 1
        })
    }

    fn finish(self) -> io::Result<Report> {
        let told = self.kept.sorted()?;
        let timed = |run: usize| {
            let imported = self.runs.get(run).and_then(|run: &RunView| run.manifest.imported.as_ref());
            imported.is_none_or(|imported| imported.timed)
        };
        let (artifacts, cells): (Vec<BTreeSet<String>>, Vec<CellView>) = self
            .cells
            .into_iter()
            .enumerate()
            .map(|(index, mut draft)| {
                let timed = timed(draft.run);
                (std::mem::take(&mut draft.artifacts), draft.finish(index, &told, timed))
            })
            .unzip();
        // Tasks are shown in the order of their names.
        let mut shown: Vec<(TaskKey, usize)> = self.tasks.into_iter().zip(0..).collect();
        shown.sort_unstable();
        let numbers: Vec<usize> = shown.iter().map(|(_, number)| *number).collect();
        let mut places = vec![0; numbers.len()];
        for (place, number) in numbers.iter().enumerate() {
            if let Some(slot) = places.get_mut(*number) {
                *slot = place;
            }
        }
        let mut tasks = task_views(shown, cells.len());
        let mut of_task = |number: usize, cell: usize, change: &mut dyn FnMut(&mut TaskCell)| {
            let task = places.get(number).and_then(|place| tasks.get_mut(*place));
            if let Some(cell) = task.and_then(|task| task.cells.get_mut(cell)) {
                change(cell);
            }
        };
        for cell in 0..cells.len() {
            told.ends(cell).for_each(|(task, end)| of_task(task, cell, &mut |of| of.counts.add(end)));
            told.verdicts_by_task(cell).for_each(|(task, times)| of_task(task, cell, &mut |of| of.time(&times)));
        }
        for ((task, cell), linked) in self.links {
            let mut link = Some(linked.link);
            of_task(task as usize, cell, &mut |of| of.link = link.take());
        }
        let number = |(task, view): (u32, AttemptView)| {
            let task = places.get(task as usize).copied().unwrap_or(0);
            AttemptView { task, ..view }
        };
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
        let comparable = Comparable::of(&tasks, &numbers, cells.len(), &told);
        let savings = savings(&self.runs, &cells, &tasks, &artifacts);
        told.check()?;
        Ok(Report { runs: self.runs, cells, tasks, attempts, unlisted: self.unlisted, failures, comparable, savings })
    }
}

/// The tasks in their order, with nothing known of them in any cell yet.
fn task_views(shown: Vec<(TaskKey, usize)>, cells: usize) -> Vec<TaskView> {
    let mut names: HashMap<(String, String), usize> = HashMap::new();
    for ((dataset, task, _), _) in &shown {
        *names.entry((dataset.clone(), task.clone())).or_default() += 1;
    }
    let view = |((dataset, task, digest), _): (TaskKey, usize)| {
        let digest = digest.rsplit(':').next().unwrap_or_default().chars().take(8).collect();
        let (shown, name) = ((plain(&dataset), plain(&task)), (dataset, task));
        let changed = names.get(&name).is_some_and(|n| *n > 1);
        let cells = (0..cells).map(|_| TaskCell::default()).collect();
        TaskView { dataset: shown.0, task: shown.1, digest: changed.then_some(digest), cells }
    };
    shown.into_iter().map(view).collect()
}

/// Keeps what figures need of an attempt; true if it has a time to a verdict, or to giving up.
fn keep(kept: &mut Kept, of: Of, attempt: &Attempt, end: End) -> bool {
    let start = start_us(attempt);
    if let Some(us) = start {
        kept.start(of, us);
    }
    if matches!(end, End::Accepted | End::Rejected)
        && let Some(sandbox) = &attempt.sandbox
    {
        kept.sandbox(of, hash(&sandbox.id), attempt.total_us);
    }
    if end == End::Accepted {
        kept.total(of, attempt.total_us);
    }
    if !attempt.phases.is_empty() {
        let start_us = attempt.started_at.as_microsecond();
        kept.launch(of, Launch { start_us, total_us: attempt.total_us, ready_us: start });
    }
    kept.end(of, end);
    let time = to_verdict(attempt, end);
    if let Some(time) = time {
        kept.verdict(of, time);
    }
    time.is_some()
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
