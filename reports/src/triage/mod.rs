//! Why trials failed: the cause of each failed attempt with the line of evidence that decided it, grouped across backends.
//!
//! What is typed decides first: the failure's class, the verdict's tests, what the reference solution came to elsewhere.
//! Only where these leave it open do words in the outputs decide, by a fixed table of patterns in a fixed order. A cause is
//! an aid for the one who looks: no figure of a report follows from it.
//!
//! A reference solution that is rejected says nothing about a solver: where the same task was accepted on another backend,
//! the environment differs; where it was accepted on the same one, the task is flaky; where it never was, the task or all
//! its environments are broken. What was learnt of that is kept in a [`Baseline`], over runs.

mod baseline;
mod cause;
mod patterns;
mod quarantine;
mod render;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use sandbox_bench_core::evidence::{Attempt, SCHEMA_VERSION};
use sandbox_bench_core::{Condition, FailureClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::derived::{TRIALS, TrialRows};
use crate::evidence::{EvidenceError, Run};
use crate::summary::End;

pub use baseline::{Baseline, BaselineError, History, Quarantined, TaskName};
pub use cause::{Cause, Decided, Evidence};
pub use quarantine::{Listed, Quarantine, QuarantineError};
pub use render::text;

use cause::decide;

/// Examples that are kept of a group.
const EXAMPLES: usize = 5;

/// Groups of one task and cell that are told apart; further ones are counted with the last.
const MOST_GROUPS: usize = 100_000;

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Triage {
    /// Version of the evidence schemas.
    pub schema_version: String,
    /// The runs.
    pub runs: Vec<String>,
    /// Attempts that were looked at.
    pub attempts: u64,
    /// Those that failed or were rejected.
    pub failed: u64,
    /// By cause, the most frequent first.
    pub causes: Vec<CauseGroup>,
    /// Tasks that were accepted and rejected in one and the same cell.
    pub flaky: Vec<TaskFinding>,
    /// Tasks that ran and were accepted nowhere.
    pub never_passing: Vec<TaskFinding>,
    /// Tasks whose reference solution came to something else than in the runs of the baseline.
    pub changed: Vec<Changed>,
    /// Tasks that should not be used to judge anything, by what the reference solution came to in these runs and the
    /// baseline.
    pub quarantine: Vec<Quarantined>,
}

/// The failed attempts of one cause.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CauseGroup {
    /// The cause.
    pub cause: Cause,
    /// How it was decided, and for how many attempts.
    pub decided_by: BTreeMap<String, u64>,
    /// Attempts.
    pub attempts: u64,
    /// … by backend and condition.
    pub cells: BTreeMap<String, u64>,
    /// Tasks.
    pub tasks: u64,
    /// Some attempts, of different tasks and cells as far as there are.
    pub examples: Vec<Example>,
}

/// An attempt and what decided its cause.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Example {
    /// The run.
    pub run: String,
    /// Backend and condition, as `docker/cold`.
    pub cell: String,
    /// The task.
    pub task: String,
    /// What decided.
    pub decided: Decided,
}

/// What became of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TaskFinding {
    /// The task.
    pub task: TaskName,
    /// Accepted and other trials by cell, as `docker/cold`.
    pub cells: BTreeMap<String, Counts>,
}

/// A task whose reference solution was only accepted on a backend and is now rejected there, or the other way round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Changed {
    /// The task.
    #[serde(flatten)]
    pub task: TaskName,
    /// The backend.
    pub backend: String,
    /// In the runs of the baseline.
    pub before: Counts,
    /// In these runs.
    pub now: Counts,
}

/// Counts of attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Accepted.
    pub accepted: u64,
    /// Rejected by the verifier.
    pub rejected: u64,
    /// Without a verdict.
    pub failed: u64,
}

impl Counts {
    fn add(&mut self, end: End) {
        match end {
            End::Accepted => self.accepted += 1,
            End::Rejected => self.rejected += 1,
            End::Failed(_) => self.failed += 1,
        }
    }

    fn merge(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.rejected += other.rejected;
        self.failed += other.failed;
    }
}

/// A cell of a task.
type CellKey = (String, Condition);
/// What became of each task, by cell.
type TaskCounts = BTreeMap<TaskName, BTreeMap<CellKey, Counts>>;
/// Failed attempts that are alike: the run, the cell, the task, how it was decided.
type GroupKey = (usize, CellKey, TaskName, Cause, &'static str);

#[derive(Default)]
struct Collector {
    runs: Vec<String>,
    /// True for each run whose solver is the reference solution.
    gold: Vec<bool>,
    attempts: u64,
    failed: u64,
    tasks: TaskCounts,
    /// … of the reference solutions alone.
    gold_tasks: TaskCounts,
    /// … of those in runs that the baseline does not hold yet.
    new_gold: TaskCounts,
    groups: BTreeMap<GroupKey, (u64, Decided)>,
}

/// Looks at the runs in these directories, whose derived files must be up to date; `baseline` is what is known from
/// earlier runs. One pass over the attempts; kept is a count for each task and cell, and one line of evidence for each
/// kind of failure of it.
///
/// # Errors
/// What is wrong with the evidence.
pub fn triage(directories: &[PathBuf], baseline: &Baseline) -> Result<Triage, EvidenceError> {
    let mut collector = Collector::default();
    for directory in directories {
        collector.run(directory, baseline)?;
    }
    Ok(collector.finish(baseline))
}

impl Collector {
    fn run(&mut self, directory: &Path, baseline: &Baseline) -> Result<(), EvidenceError> {
        let manifest = Run::open(directory)?.manifest;
        let index = self.runs.len();
        let gold = manifest.solver == "gold";
        let new = gold && !baseline.runs.contains(&manifest.run) && !self.runs.contains(&manifest.run);
        self.runs.push(manifest.run);
        self.gold.push(gold);
        for row in TrialRows::open(directory)? {
            let (line, row) = row?;
            for (of, counts) in [(true, &mut self.tasks), (gold, &mut self.gold_tasks), (new, &mut self.new_gold)] {
                if of {
                    count(counts, &row.attempt);
                }
            }
            self.attempt(index, directory, line, &row.attempt);
        }
        Ok(())
    }

    fn attempt(&mut self, run: usize, directory: &Path, line: u64, attempt: &Attempt) {
        self.attempts += 1;
        let end = End::of(attempt);
        let name = TaskName::of(attempt);
        let cell = (attempt.trial.backend.clone(), attempt.trial.condition);
        if end == End::Accepted {
            return;
        }
        self.failed += 1;
        let decided = decide(directory, line, attempt);
        let key = (run, cell, name, decided.cause, decided.by);
        let full = self.groups.len() >= MOST_GROUPS;
        match self.groups.entry(key) {
            Entry::Occupied(mut known) => known.get_mut().0 += 1,
            Entry::Vacant(new) if !full => {
                new.insert((1, decided));
            }
            Entry::Vacant(_) => {
                if let Some(mut last) = self.groups.last_entry() {
                    last.get_mut().0 += 1;
                }
            }
        }
    }

    fn finish(mut self, baseline: &Baseline) -> Triage {
        self.judge_gold(baseline);
        let mut causes: BTreeMap<Cause, CauseGroup> = BTreeMap::new();
        let mut seen: BTreeMap<Cause, std::collections::BTreeSet<TaskName>> = BTreeMap::new();
        for ((run, cell, task, cause, by), (n, decided)) in std::mem::take(&mut self.groups) {
            let group = causes.entry(cause).or_insert_with(|| CauseGroup {
                cause,
                decided_by: BTreeMap::new(),
                attempts: 0,
                cells: BTreeMap::new(),
                tasks: 0,
                examples: Vec::new(),
            });
            group.attempts += n;
            *group.decided_by.entry(by.to_owned()).or_default() += n;
            *group.cells.entry(cell_name(&cell)).or_default() += n;
            let new_task = seen.entry(cause).or_default().insert(task.clone());
            group.tasks += u64::from(new_task);
            let new_cell = group.examples.iter().all(|example| example.cell != cell_name(&cell));
            if group.examples.len() < EXAMPLES && (new_task || new_cell) {
                let run = self.runs.get(run).cloned().unwrap_or_default();
                group.examples.push(Example { run, cell: cell_name(&cell), task: task.task.clone(), decided });
            }
        }
        let mut causes: Vec<CauseGroup> = causes.into_values().collect();
        causes.sort_by_key(|group| std::cmp::Reverse(group.attempts));
        let finding = |(task, cells): (&TaskName, &BTreeMap<CellKey, Counts>)| TaskFinding {
            task: task.clone(),
            cells: cells.iter().map(|(cell, counts)| (cell_name(cell), *counts)).collect(),
        };
        let flaky = |cells: &BTreeMap<CellKey, Counts>| cells.values().any(|c| c.accepted > 0 && c.rejected > 0);
        let never = |cells: &BTreeMap<CellKey, Counts>| cells.values().all(|c| c.accepted == 0);
        let changed = baseline.changed(&self.new_gold);
        let mut known = baseline.clone();
        known.merge_counts(&self.new_gold);
        Triage {
            schema_version: SCHEMA_VERSION.to_owned(),
            attempts: self.attempts,
            failed: self.failed,
            causes,
            flaky: self.tasks.iter().filter(|(_, cells)| flaky(cells)).map(finding).collect(),
            never_passing: self.tasks.iter().filter(|(_, cells)| never(cells)).map(finding).collect(),
            changed,
            quarantine: known.quarantine(),
            runs: self.runs,
        }
    }

    /// Gives rejected reference solutions their cause, from what they came to elsewhere.
    fn judge_gold(&mut self, baseline: &Baseline) {
        let groups = std::mem::take(&mut self.groups);
        for ((run, cell, task, cause, by), (n, decided)) in groups {
            let gold = self.gold.get(run).copied().unwrap_or(false);
            let judged = (gold && cause == Cause::Rejected).then(|| self.gold_cause(&cell, &task, baseline)).flatten();
            let (cause, by, decided) = match judged {
                Some((cause, by, words)) => {
                    (cause, by, Decided { cause, by, evidence: Evidence { text: words, ..decided.evidence } })
                }
                None => (cause, by, decided),
            };
            let (count, _) = self.groups.entry((run, cell, task, cause, by)).or_insert((0, decided));
            *count += n;
        }
    }

    fn gold_cause(
        &self,
        cell: &CellKey,
        task: &TaskName,
        baseline: &Baseline,
    ) -> Option<(Cause, &'static str, String)> {
        let cells = self.gold_tasks.get(task)?;
        let here = cells.get(cell).copied().unwrap_or_default();
        let known = baseline.history(task);
        let before = known.and_then(|history| history.backends.get(&cell.0)).copied().unwrap_or_default();
        if here.accepted + before.accepted > 0 {
            let words = "the reference solution was accepted on this backend, too".to_owned();
            return Some((Cause::Flaky, "gold, same backend", words));
        }
        let other = cells
            .iter()
            .find(|(other, counts)| *other != cell && counts.accepted > 0)
            .map(|(other, _)| cell_name(other));
        let earlier = || {
            known?
                .backends
                .iter()
                .find(|(name, counts)| **name != cell.0 && counts.accepted > 0)
                .map(|(name, _)| name.clone())
        };
        match other.or_else(earlier) {
            Some(other) => Some((
                Cause::Environment,
                "gold, another backend",
                format!("the reference solution was accepted on {other}: the environment here differs"),
            )),
            None => Some((
                Cause::Task,
                "gold, nowhere",
                "the reference solution was accepted nowhere: the task, or every environment of it, is broken"
                    .to_owned(),
            )),
        }
    }
}

fn count(counts: &mut TaskCounts, attempt: &Attempt) {
    let end = End::of(attempt);
    if end != End::Failed(FailureClass::Unavailable) {
        let cell = (attempt.trial.backend.clone(), attempt.trial.condition);
        counts.entry(TaskName::of(attempt)).or_default().entry(cell).or_default().add(end);
    }
}

fn cell_name((backend, condition): &CellKey) -> String {
    format!("{backend}/{condition}")
}

/// Adds the runs in these directories whose solver is the reference solution to `baseline`. A run that is in it already
/// is not counted again. Returns how many were added.
///
/// # Errors
/// What is wrong with the evidence.
pub fn learn(directories: &[PathBuf], baseline: &mut Baseline) -> Result<u64, EvidenceError> {
    let mut added = 0;
    for directory in directories {
        let manifest = Run::open(directory)?.manifest;
        if manifest.solver != "gold" || baseline.runs.contains(&manifest.run) {
            continue;
        }
        let mut collector = Collector::default();
        collector.run(directory, baseline)?;
        baseline.merge_counts(&collector.new_gold);
        baseline.runs.insert(manifest.run);
        added += 1;
    }
    Ok(added)
}

/// The name of the file that typed evidence is in.
const TYPED: &str = TRIALS;
