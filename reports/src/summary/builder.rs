//! One pass over a journal's events, in memory that grows with the cells and the tasks, but not with the trials: a few numbers
//! of each attempt are kept, beyond some megabytes on disk ([`Kept`]).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;

use jiff::Timestamp;
use sandbox_bench_core::evidence::{
    Attempt, CleanupEntry, CleanupState, Event, Listing, Manifest, SCHEMA_VERSION, TrialKey, Variant,
};
use sandbox_bench_core::{CacheUse, Condition, ConditionProof, Decision, FailureClass, Phase};

use super::agents::{self, AgentFigures, ReplayFigures};
use super::kept::{Kept, Times, Told, Trial};
use super::{
    ArtifactBuild, CacheCounts, Cell, CleanupCounts, Outcome, PhaseTimes, ProofCounts, RatesUsed, Summary, TotalTimes,
    Trials, times,
};
use crate::cost::{CostTally, RateCard, price};
use crate::stats::proportion::wilson;
use crate::stats::{Bootstrap, Time};

/// Condenses the events of a run, given in the order of its journal.
#[derive(Debug)]
pub struct SummaryBuilder {
    cells: Vec<CellBuilder>,
    planned: Option<u64>,
    /// Times, ends and tags, by hashes: 64 bits keep apart more trials than any run has.
    kept: Kept,
    cleanup: CleanupCounts,
    finished: bool,
    interrupted: bool,
    unknown_events: BTreeMap<String, u64>,
    disagreements: Listing,
    artifacts: Vec<ArtifactBuild>,
    manifest: Manifest,
    rates: RateCard,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Accepted,
    Rejected,
    Failed(FailureClass),
}

impl End {
    pub(crate) fn of(attempt: &Attempt) -> Self {
        match &attempt.failure {
            _ if attempt.accepted() => Self::Accepted,
            Some(failure) if failure.class == FailureClass::Rejected => Self::Rejected,
            Some(failure) => Self::Failed(failure.class),
            None if attempt.verdict.as_ref().is_some_and(|v| v.decision == Decision::Rejected) => Self::Rejected,
            None => Self::Failed(FailureClass::Verifier),
        }
    }
}

/// The classes of failures, each at its code.
const CLASSES: [FailureClass; 11] = [
    FailureClass::Startup,
    FailureClass::Transport,
    FailureClass::Environment,
    FailureClass::Solver,
    FailureClass::Patch,
    FailureClass::Timeout,
    FailureClass::Rejected,
    FailureClass::Verifier,
    FailureClass::Cleanup,
    FailureClass::Unavailable,
    FailureClass::Interrupted,
];

impl End {
    /// A small number that stands for it.
    pub(crate) fn code(self) -> u64 {
        match self {
            Self::Accepted => 0,
            Self::Rejected => 1,
            Self::Failed(class) => 2 + class as u64,
        }
    }

    /// The end that has this code.
    pub(crate) fn of_code(code: u64) -> Self {
        match code {
            0 => Self::Accepted,
            1 => Self::Rejected,
            _ => Self::Failed(CLASSES.get(code as usize - 2).copied().unwrap_or(FailureClass::Verifier)),
        }
    }
}

impl SummaryBuilder {
    /// Begins the summary of the run with this manifest; costs are estimated by `rates`. What does not fit into memory goes
    /// to files without names in the directory `scratch`.
    #[must_use]
    pub fn new(manifest: Manifest, rates: RateCard, scratch: &Path) -> Self {
        let plan = &manifest.plan;
        let variants = plan.variants();
        let none = plan.models.is_empty().then_some(None);
        let models: Vec<Option<&String>> = plan.models.iter().map(Some).chain(none).collect();
        // A run of prewarm plans no trials, and so has no cells.
        let conditions: &[Condition] = if plan.replicates == 0 { &[] } else { &plan.conditions };
        let mut cells = Vec::new();
        for backend in &manifest.backends {
            for &condition in conditions {
                for model in &models {
                    let of = |variant: &Variant| CellBuilder::new(&backend.name, condition, *model, variant);
                    cells.extend(variants.iter().map(of));
                }
            }
        }
        // A plan is a full matrix; if it is not, nothing is claimed about its parts.
        let tasks = manifest.datasets.iter().fold(0u64, |tasks, dataset| tasks.saturating_add(dataset.tasks));
        let per_cell = tasks.saturating_mul(manifest.plan.replicates.into());
        let planned = (per_cell.saturating_mul(cells.len() as u64) == manifest.trials).then_some(per_cell);
        Self {
            cells,
            planned,
            kept: Kept::new(scratch),
            cleanup: CleanupCounts::default(),
            finished: false,
            interrupted: false,
            unknown_events: BTreeMap::new(),
            disagreements: Listing::default(),
            artifacts: Vec::new(),
            manifest,
            rates,
        }
    }

    /// Takes in one event.
    pub fn record(&mut self, event: &Event) {
        match event {
            // A run that goes on after its end (`resume`) has to end again.
            Event::RunStarted { .. } => (self.finished, self.interrupted) = (false, false),
            Event::RunFinished { interrupted } => (self.finished, self.interrupted) = (true, *interrupted),
            Event::AttemptFinished { attempt } => self.attempt(attempt),
            _ => {}
        }
    }

    /// Takes in what was learnt of the run's warm artifacts.
    pub fn artifacts(&mut self, artifacts: Vec<ArtifactBuild>) {
        self.artifacts = artifacts;
    }

    /// Takes note of a line that this program does not understand.
    pub fn unknown(&mut self, event: &str) {
        *self.unknown_events.entry(event.to_owned()).or_default() += 1;
    }

    fn attempt(&mut self, attempt: &Attempt) {
        let key = &attempt.trial;
        if key.is_warm_up() {
            return;
        }
        let found = self.cells.iter().position(|cell| cell.holds(key));
        let index = found.unwrap_or_else(|| {
            self.cells.push(CellBuilder::new(&key.backend, key.condition, key.model.as_ref(), &key.variant));
            self.cells.len() - 1
        });
        let end = End::of(attempt);
        let task = hash(&(&key.dataset, &key.task));
        let judged = attempt.verdict.as_ref().is_some_and(|v| v.decision != Decision::Undecided);
        self.kept.end(hash(key), task, index, end, judged);
        self.kept.tag(hash(&attempt.tag), index);
        // A sandbox that serves many trials has a tag of its own.
        if let Some(sandbox) = attempt.sandbox.as_ref().filter(|sandbox| sandbox.tag != attempt.tag) {
            self.kept.tag(hash(&sandbox.tag), index);
        }
        let against = attempt.verdict.as_ref().map(|verdict| verdict.disagreements.as_slice()).unwrap_or_default();
        if !against.is_empty() && attempt.failure.as_ref().is_none_or(|f| f.class != FailureClass::Verifier) {
            let words = || format!("{} {} {}: {}", key.backend, key.condition, key.task, against.join("; "));
            self.disagreements.add(words);
        }
        if let Some(cell) = self.cells.get_mut(index) {
            cell.attempt(attempt, &self.rates);
        }
        self.times(index, attempt, end, task);
    }

    /// Keeps the times of an attempt.
    fn times(&mut self, cell: usize, attempt: &Attempt, end: End, task: u64) {
        for (index, phase) in Phase::ALL.into_iter().enumerate() {
            if let Some(us) = attempt.phase_us(phase) {
                let ok = attempt.phases.iter().filter(|span| span.phase == phase).all(|span| span.ok);
                self.kept.time(cell, if ok { Times::Completed(index) } else { Times::Broken(index) }, us);
            }
        }
        let us = attempt.total_us;
        let (which, time) = match end {
            End::Accepted => (Times::Accepted, Time::seen(us as f64)),
            End::Rejected => (Times::Rejected, Time::seen(us as f64)),
            // Nothing was tried, so nothing took time.
            End::Failed(FailureClass::Unavailable) => return,
            End::Failed(_) if attempt.phases.is_empty() => return,
            End::Failed(_) => (Times::Failed, times::unfinished(attempt, us)),
        };
        self.kept.total(cell, which, us, task);
        self.kept.verdict(cell, time, task);
    }

    /// Takes in what is known at last of an object that the run created.
    pub fn object(&mut self, entry: &CleanupEntry) {
        count_cleanup(&mut self.cleanup, entry.state);
        self.kept.object(hash(&entry.tag), entry.state);
    }

    /// The summary, once all events and objects are told.
    ///
    /// # Errors
    /// What keeping numbers on disk failed with.
    pub fn finish(mut self) -> io::Result<Summary> {
        let told = self.kept.sorted()?;
        let mut totals = Trials::default();
        for trial in told.trials() {
            if let Some(cell) = self.cells.get_mut(trial.cell) {
                count(&mut cell.trials, &trial);
                cell.judge(&trial);
            }
            count(&mut totals, &trial);
        }
        for (cell, state) in told.objects() {
            if let Some(cell) = self.cells.get_mut(cell) {
                count_cleanup(&mut cell.cleanup, state);
            }
        }
        let cleanup = self.cleanup;
        let planned = self.planned;
        totals.planned = Some(self.manifest.trials);
        let outcome = match () {
            () if cleanup.unconfirmed > 0 => Outcome::Cleanup,
            () if self.interrupted || !self.finished => Outcome::Interrupted,
            () if self.manifest.plan.replicates == 0 && !self.artifacts.is_empty() => Outcome::Accepted,
            () if totals.failed > 0 || totals.runnable() == 0 => Outcome::Infrastructure,
            () if totals.rejected > 0 => Outcome::Rejected,
            () => Outcome::Accepted,
        };
        let ranking = times::ranking(&self.cells, &told);
        let cells = self.cells.into_iter().enumerate();
        let cells: Vec<Cell> = cells.map(|(index, cell)| cell.finish(planned, index, &told)).collect();
        told.check()?;
        Ok(Summary {
            schema_version: SCHEMA_VERSION.to_owned(),
            run: self.manifest.run,
            started_at: self.manifest.started_at,
            solver: self.manifest.solver,
            outcome,
            interrupted: self.interrupted,
            finished: self.finished,
            totals,
            cleanup,
            imported: self.manifest.imported.map(|imported| imported.from),
            left_out: self.manifest.left_out,
            quarantined: self.manifest.quarantined,
            disagreements: self.disagreements,
            rates: RatesUsed::of(&self.rates),
            ranking,
            cells,
            artifacts: self.artifacts,
            unknown_events: self.unknown_events,
        })
    }
}

fn count(trials: &mut Trials, trial: &Trial) {
    trials.attempted += 1;
    trials.retries += trial.attempts - 1;
    match trial.end {
        End::Accepted => trials.accepted += 1,
        End::Rejected => trials.rejected += 1,
        End::Failed(FailureClass::Unavailable) => trials.unavailable += 1,
        End::Failed(class) => {
            trials.failed += 1;
            *trials.failures.entry(class.name().to_owned()).or_default() += 1;
        }
    }
}

fn count_cleanup(counts: &mut CleanupCounts, state: CleanupState) {
    match state {
        CleanupState::Never => {}
        CleanupState::Confirmed => counts.confirmed += 1,
        CleanupState::Retained => counts.retained += 1,
        CleanupState::Unconfirmed => counts.unconfirmed += 1,
    }
}

/// A hash that is the same in every process.
pub(crate) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The figures of one cell in the making.
#[derive(Debug)]
pub(super) struct CellBuilder {
    pub(super) backend: String,
    pub(super) condition: Condition,
    pub(super) model: Option<String>,
    pub(super) variant: Variant,
    trials: Trials,
    /// Of each task, by its number: trials with a verdict, and accepted ones.
    tasks: BTreeMap<u64, (u64, u64)>,
    agent: Option<AgentFigures>,
    replay: Option<ReplayFigures>,
    environment: CacheCounts,
    first_create: Option<(Timestamp, u64)>,
    proof: ProofCounts,
    cleanup: CleanupCounts,
    cost: CostTally,
}

impl CellBuilder {
    fn new(backend: &str, condition: Condition, model: Option<&String>, variant: &Variant) -> Self {
        Self {
            backend: backend.to_owned(),
            condition,
            model: model.cloned(),
            variant: variant.clone(),
            trials: Trials::default(),
            tasks: BTreeMap::new(),
            agent: None,
            replay: None,
            environment: CacheCounts::default(),
            first_create: None,
            proof: ProofCounts::default(),
            cleanup: CleanupCounts::default(),
            cost: CostTally::default(),
        }
    }

    /// True if the trial belongs here.
    fn holds(&self, key: &TrialKey) -> bool {
        (&self.backend, self.condition, &self.model, &self.variant)
            == (&key.backend, key.condition, &key.model, &key.variant)
    }

    /// Takes in how a trial ended, for pass@k.
    fn judge(&mut self, trial: &Trial) {
        if self.model.is_some() && trial.judged {
            let (judged, accepted) = self.tasks.entry(trial.task).or_default();
            *judged += 1;
            *accepted += u64::from(trial.end == End::Accepted);
        }
    }

    fn attempt(&mut self, attempt: &Attempt, rates: &RateCard) {
        agents::add(&mut self.agent, &mut self.replay, attempt);
        if let Some(cost) = price(attempt, rates) {
            self.cost.add(&cost);
        }
        if let Some(create) = attempt.phase_us(Phase::Create)
            && self.first_create.is_none_or(|(at, _)| attempt.started_at < at)
        {
            self.first_create = Some((attempt.started_at, create));
        }
        match attempt.environment.as_ref().and_then(|environment| environment.cache) {
            Some(CacheUse::Hit) => self.environment.hits += 1,
            Some(CacheUse::Miss) => self.environment.misses += 1,
            None => {}
        }
        match attempt.proof {
            Some(ConditionProof::Proven { .. }) => self.proof.proven += 1,
            Some(ConditionProof::Unproven { .. }) => self.proof.unproven += 1,
            Some(ConditionProof::Violated { .. }) => self.proof.violated += 1,
            None => {}
        }
    }

    fn finish(self, planned: Option<u64>, index: usize, told: &Told) -> Cell {
        let durations = |which: Times| told.durations(index, which);
        let phases = Phase::ALL
            .into_iter()
            .enumerate()
            .map(|(at, phase)| PhaseTimes {
                phase,
                completed: durations(Times::Completed(at)),
                failed: durations(Times::Broken(at)),
            })
            .filter(|times| times.completed.is_some() || times.failed.is_some())
            .collect();
        let trials = Trials { planned, ..self.trials };
        Cell {
            backend: self.backend,
            condition: self.condition,
            model: self.model,
            variant: self.variant,
            pass_at: agents::pass_at(&self.tasks.into_values().collect::<Vec<_>>()),
            agent: agents::finish(self.agent, trials.accepted),
            replay: self.replay,
            accepted_share: wilson(trials.accepted, trials.runnable(), Bootstrap::default().confidence),
            cost: self.cost.finish(trials.accepted),
            total_p50: told.median(index),
            trials,
            environment: self.environment,
            phases,
            total: TotalTimes {
                accepted: durations(Times::Accepted),
                rejected: durations(Times::Rejected),
                failed: durations(Times::Failed),
                all: told.all(index),
            },
            first_create_us: self.first_create.map(|(_, create)| create),
            proof: self.proof,
            cleanup: self.cleanup,
        }
    }
}
