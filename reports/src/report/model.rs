//! What a report shows.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandbox_bench_core::evidence::{CleanupState, Manifest};
use sandbox_bench_core::{FailureClass, Phase};

use crate::render::objects;
use crate::stats::{Sample, Time};
use crate::summary::{Cell, End, Summary};

use super::Comparable;
use super::curve::{Curve, Verdicts};
use super::ramp::Ramp;
use super::saving::Saving;
use super::spread::Spread;

/// One or more runs, condensed.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) runs: Vec<RunView>,
    /// The cells of all runs, in their order.
    pub(crate) cells: Vec<CellView>,
    /// By data set, id and content.
    pub(crate) tasks: Vec<TaskView>,
    /// The attempts that are listed, by cell, task and number.
    pub(crate) attempts: Vec<AttemptView>,
    /// Attempts that are not.
    pub(crate) unlisted: u64,
    /// Most frequent first.
    pub(crate) failures: Vec<FailureMode>,
    pub(crate) comparable: Comparable,
    /// Warm cells against cold ones.
    pub(crate) savings: Vec<Saving>,
}

/// A run.
#[derive(Debug)]
pub(crate) struct RunView {
    /// Short name, where several runs are shown: `R1`.
    pub(crate) label: String,
    /// Link to its directory, ending in `/`.
    pub(crate) base: String,
    pub(crate) manifest: Manifest,
    pub(crate) summary: Summary,
    /// Number of objects by backend, kind and state.
    pub(crate) cleanup: BTreeMap<(String, &'static str, CleanupState), u64>,
    /// What may still exist, as far as it is listed.
    pub(crate) left: Vec<CleanupLine>,
}

impl RunView {
    /// When it was started, to the second.
    pub(crate) fn started(&self) -> Timestamp {
        let at = self.summary.started_at;
        Timestamp::from_second(at.as_second()).unwrap_or(at)
    }

    /// "6 replicates"
    pub(crate) fn replicates(&self) -> String {
        objects(self.manifest.plan.replicates.into(), "replicate")
    }

    /// The run, to begin or end a sentence with.
    pub(crate) fn name(&self) -> &str {
        if self.label.is_empty() { "the run" } else { &self.label }
    }
}

/// An object that is not confirmed gone.
#[derive(Debug)]
pub(crate) struct CleanupLine {
    pub(crate) backend: String,
    pub(crate) id: String,
    pub(crate) state: CleanupState,
    pub(crate) why: String,
}

/// A cell of a run.
#[derive(Debug)]
pub(crate) struct CellView {
    /// Index of its run.
    pub(crate) run: usize,
    pub(crate) name: String,
    pub(crate) figures: Cell,
    /// Times from the create request to a sandbox that runs commands (create and ready), in microseconds.
    pub(crate) start: Curve,
    /// Times of accepted attempts in microseconds.
    pub(crate) total: Curve,
    /// Times to a verdict in microseconds; what was given up on is censored.
    pub(crate) verdict: Verdicts,
    /// Where the spread of the times lies.
    pub(crate) spread: Spread,
    /// How it went on in time; none if that is not known.
    pub(crate) ramp: Option<Ramp>,
}

/// A task, with what became of it in every cell.
#[derive(Debug)]
pub(crate) struct TaskView {
    pub(crate) dataset: String,
    pub(crate) task: String,
    /// First digits of its digest, where tasks of the same id differ.
    pub(crate) digest: Option<String>,
    /// One for each cell.
    pub(crate) cells: Vec<TaskCell>,
}

/// A task in a cell.
#[derive(Debug, Default)]
pub(crate) struct TaskCell {
    /// How its trials ended, each by its last attempt.
    pub(crate) counts: Tasks,
    /// How many attempts have a time to a verdict, or to giving up.
    pub(crate) times: usize,
    /// True if some of them were given up on.
    pub(crate) censored: bool,
    /// The median of these times in microseconds: infinite if most came to no verdict, none of no times.
    pub(crate) median: Option<f64>,
    /// … by Kaplan-Meier, even if none was given up on.
    pub(crate) survival_median: Option<f64>,
    /// Link to the evidence of its first attempt.
    pub(crate) link: Option<String>,
}

/// Counts of the trials of a [`TaskCell`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tasks {
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    pub(crate) failed: u64,
    pub(crate) unavailable: u64,
}

impl Tasks {
    pub(crate) fn runnable(self) -> u64 {
        self.accepted + self.rejected + self.failed
    }
}

impl Tasks {
    /// Counts a trial.
    pub(super) fn add(&mut self, end: End) {
        match end {
            End::Accepted => self.accepted += 1,
            End::Rejected => self.rejected += 1,
            End::Failed(FailureClass::Unavailable) => self.unavailable += 1,
            End::Failed(_) => self.failed += 1,
        }
    }
}

impl TaskCell {
    pub(crate) fn counts(&self) -> Tasks {
        self.counts
    }

    /// Takes in the times of the task.
    pub(super) fn time(&mut self, times: &[Time]) {
        let sample = Sample::new(times.iter().map(|time| (*time, 0)));
        let median = |censoring: bool| Some(sample.quantile(0.5, &[1], censoring)).filter(|median| !median.is_nan());
        self.times = times.len();
        self.censored = sample.has_censored();
        (self.median, self.survival_median) = (median(self.censored), median(true));
    }
}

/// An attempt that is listed.
#[derive(Debug)]
pub(crate) struct AttemptView {
    pub(crate) cell: usize,
    /// Index of its task.
    pub(crate) task: usize,
    pub(crate) replicate: u32,
    pub(crate) attempt: u32,
    /// Its line in `trials.jsonl`.
    pub(crate) line: u64,
    pub(crate) end: End,
    pub(crate) phase: Option<Phase>,
    pub(crate) message: String,
    pub(crate) total_us: u64,
    pub(crate) create_us: Option<u64>,
    pub(crate) ready_us: Option<u64>,
    pub(crate) usd: Option<f64>,
    pub(crate) proof: &'static str,
    /// Name and link of each output; no link if the file is not there.
    pub(crate) outputs: Vec<(String, Option<String>)>,
}

impl AttemptView {
    /// Its anchor on the page.
    pub(crate) fn anchor(&self, cells: &[CellView]) -> String {
        let run = cells.get(self.cell).map_or(0, |cell| cell.run);
        anchor(run, self.line)
    }

    /// How it ended, in a word.
    pub(crate) fn word(&self) -> &'static str {
        match self.end {
            End::Accepted => "accepted",
            End::Rejected => "rejected",
            End::Failed(class) => class.name(),
        }
    }
}

/// The anchor of the attempt in this line of this run's trials.
pub(super) fn anchor(run: usize, line: u64) -> String {
    format!("a{}-{line}", run + 1)
}

/// Attempts that failed alike.
#[derive(Debug)]
pub(crate) struct FailureMode {
    pub(crate) class: &'static str,
    pub(crate) phase: &'static str,
    /// Attempts in each cell.
    pub(crate) counts: Vec<u64>,
    /// Some different messages, with a link to the evidence of one attempt that has it.
    pub(crate) examples: Vec<(String, String)>,
}

impl FailureMode {
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// What is known of the end of an object, in words.
pub(crate) fn cleanup_word(state: CleanupState) -> &'static str {
    match state {
        CleanupState::Never => "never came to be",
        CleanupState::Confirmed => "confirmed gone",
        CleanupState::Retained => "kept for later runs",
        CleanupState::Unconfirmed => "not confirmed gone",
    }
}
