//! One side of a comparison: a cell of a run, with all that is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sandbox_bench_core::evidence::{Attempt, Event, Manifest};
use sandbox_bench_core::{FailureClass, Phase};

use super::{CellName, Span};
use crate::cost::{Cost, RateCard, price};
use crate::evidence::{Entry, EvidenceError, Run};
use crate::stats::Time;
use crate::summary::{hash, unfinished};

/// A task, by its id and what is in it: a task that was changed is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskKey {
    pub(super) id: String,
    pub(super) digest: String,
}

/// One backend under one condition in one run.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) cell: CellName,
    pub(super) manifest: Manifest,
    pub(super) tasks: BTreeMap<TaskKey, TaskFacts>,
}

/// What is known of one task in a cell.
#[derive(Debug, Default)]
pub(super) struct TaskFacts {
    /// Times in microseconds.
    times: BTreeMap<usize, Vec<Time>>,
    /// By the hash of their key.
    trials: BTreeMap<u64, TrialFacts>,
    /// What the sandboxes started from, as resolved, and how.
    pub(super) environments: BTreeSet<String>,
    pub(super) adapters: BTreeSet<String>,
    /// Resources asked for.
    pub(super) resources: BTreeSet<String>,
}

/// A trial, by its last attempt; costs are those of all attempts.
#[derive(Debug, Default, Clone)]
pub(super) struct TrialFacts {
    pub(super) accepted: bool,
    pub(super) unavailable: bool,
    pub(super) usd: f64,
    /// Why the cost of an attempt is unknown.
    pub(super) unpriced: Option<String>,
}

impl TaskFacts {
    /// The times of a span, one for each attempt that reached it.
    pub(super) fn times(&self, span: Span) -> &[Time] {
        self.times.get(&position(span)).map_or(&[], Vec::as_slice)
    }

    /// The trials that the backend could run.
    pub(super) fn trials(&self) -> impl Iterator<Item = &TrialFacts> {
        self.trials.values().filter(|trial| !trial.unavailable)
    }

    fn add(&mut self, attempt: &Attempt, rates: &RateCard) {
        let unavailable = attempt.failure.as_ref().is_some_and(|f| f.class == FailureClass::Unavailable);
        for phase in Phase::ALL {
            if let Some(us) = attempt.phase_us(phase) {
                let ok = attempt.phases.iter().filter(|span| span.phase == phase).all(|span| span.ok);
                let time = if ok { Time::seen(us as f64) } else { unfinished(attempt, us) };
                self.add_time(Span::Phase(phase), time);
            }
        }
        if !unavailable && !attempt.phases.is_empty() {
            let judged = attempt.accepted()
                || attempt.failure.as_ref().is_none_or(|failure| failure.class == FailureClass::Rejected);
            let us = attempt.total_us;
            let time = if judged { Time::seen(us as f64) } else { unfinished(attempt, us) };
            self.add_time(Span::Total, time);
        }
        let trial = self.trials.entry(hash(&attempt.trial)).or_default();
        (trial.accepted, trial.unavailable) = (attempt.accepted(), unavailable);
        match price(attempt, rates) {
            Some(Cost::Unknown { why }) => trial.unpriced = Some(why),
            cost => trial.usd += cost.and_then(|cost| cost.usd()).unwrap_or(0.0),
        }
        if let Some(environment) = &attempt.environment {
            let way = format!("{:?}", environment.way).to_lowercase();
            self.environments.insert(format!("{way} {}", environment.resolved));
        }
        self.adapters.insert(attempt.adapter_version.clone());
        let asked = serde_json::to_string(&(&attempt.requested, &attempt.network)).unwrap_or_default();
        self.resources.insert(asked);
    }

    fn add_time(&mut self, span: Span, time: Time) {
        self.times.entry(position(span)).or_default().push(time);
    }
}

fn position(span: Span) -> usize {
    Span::all().position(|known| known == span).unwrap_or(0)
}

/// Every cell of the run in `directory` that has a recorded attempt, by name.
///
/// # Errors
/// What is wrong with the evidence.
pub(super) fn read(directory: &Path, rates: &RateCard) -> Result<Vec<Side>, EvidenceError> {
    let run = Run::open(directory)?;
    let mut sides: Vec<Side> = Vec::new();
    for entry in run.journal()? {
        let Entry::Known(line) = entry? else { continue };
        let Event::AttemptFinished { attempt } = line.event else { continue };
        if attempt.trial.is_warm_up() {
            continue;
        }
        let cell = CellName {
            run: run.manifest.run.clone(),
            backend: attempt.trial.backend.clone(),
            condition: attempt.trial.condition,
            model: attempt.trial.model.clone(),
            variant: attempt.trial.variant.clone(),
        };
        let found = sides.iter().position(|side| side.cell == cell);
        let index = found.unwrap_or_else(|| {
            sides.push(Side { cell, manifest: run.manifest.clone(), tasks: BTreeMap::new() });
            sides.len() - 1
        });
        if let Some(side) = sides.get_mut(index) {
            let key = TaskKey { id: attempt.trial.task.clone(), digest: attempt.task_digest.to_string() };
            side.tasks.entry(key).or_default().add(&attempt, rates);
        }
    }
    sides.sort_by(|a, b| a.cell.order().cmp(&b.cell.order()));
    Ok(sides)
}
