//! One pass over a journal's events. Kept per attempt: one number for each phase that it reached. Kept per trial: how it
//! ended.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use sandbox_bench_core::evidence::{
    Attempt, CleanupEntry, CleanupState, Event, Listing, Manifest, SCHEMA_VERSION, TrialKey, Variant,
};
use sandbox_bench_core::{CacheUse, Condition, ConditionProof, Decision, FailureClass, Phase};

use super::agents::{self, AgentFigures, ReplayFigures};
use super::times::TaskTimes;
use super::{
    AllTimes, ArtifactBuild, CacheCounts, Cell, CleanupCounts, Outcome, PhaseTimes, ProofCounts, RatesUsed, Summary,
    TotalTimes, Trials, times,
};
use crate::cost::{CostTally, RateCard, price};
use crate::percentile::Durations;
use crate::stats::proportion::wilson;
use crate::stats::{Bootstrap, Time};

/// Condenses the events of a run, given in the order of its journal.
#[derive(Debug)]
pub struct SummaryBuilder {
    cells: Vec<CellBuilder>,
    planned: Option<u64>,
    /// How each trial ended, by the hash of its key: 64 bits keep apart more trials than any run has.
    trials: HashMap<u64, Trial>,
    /// The cell of each attempt's tag, by its hash.
    tags: HashMap<u64, usize>,
    finished: bool,
    interrupted: bool,
    unknown_events: BTreeMap<String, u64>,
    disagreements: Listing,
    artifacts: Vec<ArtifactBuild>,
    manifest: Manifest,
    rates: RateCard,
}

/// The state of a trial after its last recorded attempt.
#[derive(Debug)]
struct Trial {
    cell: usize,
    attempts: u64,
    end: End,
    /// Hash of the task.
    task: u64,
    /// True if the verifier had its word.
    judged: bool,
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

impl SummaryBuilder {
    /// Begins the summary of the run with this manifest; costs are estimated by `rates`.
    #[must_use]
    pub fn new(manifest: Manifest, rates: RateCard) -> Self {
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
            trials: HashMap::new(),
            tags: HashMap::new(),
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
        let task = hash(&(&attempt.trial.dataset, &attempt.trial.task));
        let new = Trial { cell: index, attempts: 0, end, task, judged: false };
        let trial = self.trials.entry(hash(&attempt.trial)).or_insert(new);
        trial.attempts += 1;
        trial.end = end;
        trial.judged = attempt.verdict.as_ref().is_some_and(|v| v.decision != Decision::Undecided);
        self.tags.insert(hash(&attempt.tag), index);
        // A sandbox that serves many trials has a tag of its own.
        if let Some(sandbox) = &attempt.sandbox {
            self.tags.insert(hash(&sandbox.tag), index);
        }
        let against = attempt.verdict.as_ref().map(|verdict| verdict.disagreements.as_slice()).unwrap_or_default();
        if !against.is_empty() && attempt.failure.as_ref().is_none_or(|f| f.class != FailureClass::Verifier) {
            let words = || format!("{} {} {}: {}", key.backend, key.condition, key.task, against.join("; "));
            self.disagreements.add(words);
        }
        if let Some(cell) = self.cells.get_mut(index) {
            cell.attempt(attempt, end, &self.rates);
        }
    }

    /// The summary, given what is known of everything that was created.
    #[must_use]
    pub fn finish(mut self, ledger: &[CleanupEntry]) -> Summary {
        let mut totals = Trials::default();
        for trial in self.trials.values() {
            if let Some(cell) = self.cells.get_mut(trial.cell) {
                count(&mut cell.trials, trial);
                cell.judge(trial);
            }
            count(&mut totals, trial);
        }
        let mut cleanup = CleanupCounts::default();
        for entry in ledger {
            count_cleanup(&mut cleanup, entry.state);
            let cell = self.tags.get(&hash(&entry.tag)).and_then(|&cell| self.cells.get_mut(cell));
            if let Some(cell) = cell {
                count_cleanup(&mut cell.cleanup, entry.state);
            }
        }
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
        let ranking = times::ranking(&self.cells);
        Summary {
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
            cells: self.cells.into_iter().map(|cell| cell.finish(planned)).collect(),
            artifacts: self.artifacts,
            unknown_events: self.unknown_events,
        }
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
    /// Of each task, by its hash: trials with a verdict, and accepted ones.
    tasks: BTreeMap<u64, (u64, u64)>,
    agent: Option<AgentFigures>,
    replay: Option<ReplayFigures>,
    environment: CacheCounts,
    /// Values of each phase of [`Phase::ALL`]: completed, failed.
    phases: [(Vec<u64>, Vec<u64>); Phase::ALL.len()],
    accepted: Vec<u64>,
    rejected: Vec<u64>,
    failed: Vec<u64>,
    first_create: Option<(Timestamp, u64)>,
    proof: ProofCounts,
    cleanup: CleanupCounts,
    cost: CostTally,
    /// Times of accepted attempts, and of all to a verdict, by task.
    accepted_by_task: TaskTimes,
    pub(super) to_verdict: TaskTimes,
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
            phases: Default::default(),
            accepted: Vec::new(),
            rejected: Vec::new(),
            failed: Vec::new(),
            first_create: None,
            proof: ProofCounts::default(),
            cleanup: CleanupCounts::default(),
            cost: CostTally::default(),
            accepted_by_task: TaskTimes::default(),
            to_verdict: TaskTimes::default(),
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

    fn attempt(&mut self, attempt: &Attempt, end: End, rates: &RateCard) {
        agents::add(&mut self.agent, &mut self.replay, attempt);
        for (phase, (completed, failed)) in Phase::ALL.iter().zip(&mut self.phases) {
            if let Some(duration) = attempt.phase_us(*phase) {
                let ok = attempt.phases.iter().filter(|span| span.phase == *phase).all(|span| span.ok);
                if ok { completed.push(duration) } else { failed.push(duration) }
            }
        }
        if let Some(cost) = price(attempt, rates) {
            self.cost.add(&cost);
        }
        let task = hash(&(&attempt.trial.dataset, &attempt.trial.task));
        let total = Time::seen(attempt.total_us as f64);
        match end {
            End::Accepted => {
                self.accepted.push(attempt.total_us);
                self.accepted_by_task.add(task, total);
                self.to_verdict.add(task, total);
            }
            End::Rejected => {
                self.rejected.push(attempt.total_us);
                self.to_verdict.add(task, total);
            }
            // Nothing was tried, so nothing took time.
            End::Failed(FailureClass::Unavailable) => {}
            End::Failed(_) if attempt.phases.is_empty() => {}
            End::Failed(_) => {
                self.failed.push(attempt.total_us);
                self.to_verdict.add(task, times::unfinished(attempt, attempt.total_us));
            }
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

    fn finish(self, planned: Option<u64>) -> Cell {
        let phases = Phase::ALL
            .into_iter()
            .zip(self.phases)
            .map(|(phase, (completed, failed))| PhaseTimes {
                phase,
                completed: Durations::of(completed),
                failed: Durations::of(failed),
            })
            .filter(|times| times.completed.is_some() || times.failed.is_some())
            .collect();
        let trials = Trials { planned, ..self.trials };
        let all = AllTimes::of(self.accepted.iter().chain(&self.rejected).chain(&self.failed).copied());
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
            total_p50: self.accepted_by_task.median(),
            trials,
            environment: self.environment,
            phases,
            total: TotalTimes {
                accepted: Durations::of(self.accepted),
                rejected: Durations::of(self.rejected),
                failed: Durations::of(self.failed),
                all,
            },
            first_create_us: self.first_create.map(|(_, create)| create),
            proof: self.proof,
            cleanup: self.cleanup,
        }
    }
}
