//! `summary.json`: a run in figures.
//!
//! How things are counted:
//!
//! * A **trial** counts once, by its last recorded attempt. Counts of trials are `attempted`, `accepted`, `rejected`,
//!   `failed`, `unavailable`. Infrastructure never counts as rejection, a rejection never as infrastructure.
//! * An **attempt** counts for itself in everything else: each used a sandbox, and the sandbox is the unit of analysis.
//! * Times of a phase are those of the attempts that completed it, whatever became of them later: a rejected solution
//!   does not make the start of its sandbox invalid. Attempts in which the phase ended in an error or at a time limit
//!   are kept apart as `failed`: their values are censored, they say "at least this long".
//! * Total times are kept apart by the end of the attempt: `accepted`, `rejected`, `failed`.
//! * Models: money and tokens are those of all attempts, also of those that came to nothing. pass@k counts trials that
//!   came to a verdict, whatever class their failure has.
//! * Costs are those of sandboxes, also of failed attempts. What a model costs that solves tasks is no part of them.
//! * Trials that only warm up (replicate 0) count for nothing but the cleanup.
//! * Nothing is trimmed, and every set of times states its n. What did not happen has no figure, rather than a zero.

mod agents;
mod builder;
mod builds;
mod kept;
mod times;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandbox_bench_core::evidence::{Listing, Variant};
use sandbox_bench_core::{Condition, Digest, Phase};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cost::{CellCost, RateCard};
use crate::percentile::Durations;
use crate::stats::{Bootstrap, Interval, Method, Resampled, Unit, quantile_at};

pub use agents::{AgentFigures, PassAt, ReplayFigures};
pub use builder::SummaryBuilder;
pub(crate) use builder::{End, hash};
pub use builds::{ArtifactBuild, Builds};
pub use times::Watched;
pub(crate) use times::unfinished;

/// A run in figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Version of the evidence schemas.
    pub schema_version: String,
    /// The run.
    pub run: String,
    /// When it was started.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// The solver.
    pub solver: String,
    /// The form of the files that it was imported from, if another program ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<String>,
    /// What the whole run came to.
    pub outcome: Outcome,
    /// True if the user ended it.
    pub interrupted: bool,
    /// True if the run came to its end, by itself or by the user. False: it was killed, or still runs.
    pub finished: bool,
    /// All trials of the run.
    pub totals: Trials,
    /// Everything that the run created, sandboxes and warm artifacts, also of unfinished attempts.
    pub cleanup: CleanupCounts,
    /// Tasks that are not valid and were left out of the plan.
    #[serde(default, skip_serializing_if = "Listing::is_empty")]
    pub left_out: Listing,
    /// Tasks in quarantine that were left out of the plan, with the reason.
    #[serde(default, skip_serializing_if = "Listing::is_empty")]
    pub quarantined: Listing,
    /// Attempts whose verdict has facts against it, with these facts.
    #[serde(default, skip_serializing_if = "Listing::is_empty")]
    pub disagreements: Listing,
    /// The rate card by which costs are estimated.
    pub rates: RatesUsed,
    /// Whether the cells can be put in order by their total times, and in which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranking: Option<Ranking>,
    /// Figures by backend, condition, model and variant, in the order of the manifest.
    pub cells: Vec<Cell>,
    /// The warm artifacts that the run made or found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactBuild>,
    /// Journal lines that this program did not understand, by event: they are of a newer minor schema version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_events: BTreeMap<String, u64>,
}

/// What a run came to. The first that holds, in this order: what leaks costs money, so it comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Something that the run created is not confirmed gone.
    Cleanup,
    /// The user ended the run, or it did not come to its end.
    Interrupted,
    /// A trial failed for another reason than the verifier's word, or no trial ran to a verdict.
    Infrastructure,
    /// The verifier rejected a trial.
    Rejected,
    /// Every trial that ran was accepted, and everything is gone.
    Accepted,
}

/// The figures of one backend under one condition, with one model where models do the tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The backend.
    pub backend: String,
    /// The declared condition.
    pub condition: Condition,
    /// The model, where models are a dimension of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its place in further dimensions of the plan.
    #[serde(default, skip_serializing_if = "Variant::is_plain")]
    pub variant: Variant,
    /// Its trials.
    pub trials: Trials,
    /// pass@k, where models are a dimension of the plan. A trial without a verdict counts for nothing here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_at: Vec<PassAt>,
    /// What the model did, where it was driven from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentFigures>,
    /// How replays went, where a recording was repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayFigures>,
    /// The share of runnable trials that were accepted: Wilson's interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_share: Option<Interval>,
    /// Where environments came from, as far as the backend tells.
    pub environment: CacheCounts,
    /// Times of the phases that occurred, in their order.
    pub phases: Vec<PhaseTimes>,
    /// Times from submission to the end of the last phase.
    pub total: TotalTimes,
    /// The median total time of accepted attempts with its interval; none if there are too few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_p50: Option<Median>,
    /// What its sandboxes cost.
    pub cost: CellCost,
    /// Length of the create phase in the attempt that was submitted first, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_create_us: Option<u64>,
    /// Whether the declared condition held, by attempt.
    pub proof: ProofCounts,
    /// The sandboxes of the recorded attempts.
    pub cleanup: CleanupCounts,
}

/// Which rate card was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RatesUsed {
    /// Its name.
    pub name: String,
    /// Date of its newest figure.
    pub date: String,
    /// Digest of its text.
    pub digest: Digest,
}

impl RatesUsed {
    /// This one.
    #[must_use]
    pub fn of(card: &RateCard) -> Self {
        Self { name: card.name.clone(), date: card.date.clone(), digest: card.digest.clone() }
    }
}

/// A median in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Median {
    /// The median.
    pub p50_us: f64,
    /// Its interval, by the bootstrap.
    pub interval: Interval,
    /// What was resampled.
    pub resampled: Unit,
    /// How it was resampled.
    pub bootstrap: Bootstrap,
}

impl Median {
    pub(crate) fn of(found: Resampled) -> Self {
        let Resampled { median, interval, unit, bootstrap } = found;
        Self { p50_us: median, interval, resampled: unit, bootstrap }
    }
}

/// The cells by their median time to a verdict, on the tasks that all of them tried. Attempts without a verdict
/// outlast those with one; a timeout counts as "at least this long" (Kaplan-Meier).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Ranking {
    /// There are too few trials to claim an order.
    Refused {
        /// Why.
        why: String,
    },
    /// From the least median to the greatest.
    Ranked {
        /// The cells.
        places: Vec<RankedCell>,
    },
}

/// A cell's place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankedCell {
    /// The backend.
    pub backend: String,
    /// The condition.
    pub condition: Condition,
    /// The model, where models are a dimension of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its place in further dimensions of the plan.
    #[serde(default, skip_serializing_if = "Variant::is_plain")]
    pub variant: Variant,
    /// Median time to a verdict in microseconds; none if most attempts came to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// Holm-adjusted p of the rank test, within tasks, against the place before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
}

/// Counts of trials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trials {
    /// Trials of the plan, if known.
    pub planned: Option<u64>,
    /// Trials of which at least one attempt is recorded, the unavailable ones included.
    pub attempted: u64,
    /// Trials that the verifier accepted.
    pub accepted: u64,
    /// Trials that the verifier rejected.
    pub rejected: u64,
    /// Trials that came to no verdict.
    pub failed: u64,
    /// … by failure class.
    pub failures: BTreeMap<String, u64>,
    /// Trials that the backend cannot run at all. They are not failed.
    pub unavailable: u64,
    /// Attempts beyond the first of each trial.
    pub retries: u64,
}

/// Where environments came from, by attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheCounts {
    /// It was there already.
    pub hits: u64,
    /// It had to be pulled, built or unpacked.
    pub misses: u64,
}

/// Times of one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseTimes {
    /// The phase.
    pub phase: Phase,
    /// Of the attempts that completed it.
    pub completed: Option<Durations>,
    /// Of the attempts in which it ended in an error or at a time limit: censored values.
    pub failed: Option<Durations>,
}

/// Times of whole attempts, by their end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TotalTimes {
    /// Of accepted attempts.
    pub accepted: Option<Durations>,
    /// Of rejected attempts.
    pub rejected: Option<Durations>,
    /// Of attempts that came to no verdict: censored values.
    pub failed: Option<Durations>,
    /// Of all attempts that ran, whatever became of them: what was waited for, and no measure of speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<AllTimes>,
}

/// What is told of the times of all attempts together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AllTimes {
    /// Number of attempts.
    pub n: u64,
    /// Their sum in microseconds.
    pub sum_us: u64,
    /// Their mean in microseconds.
    pub mean_us: f64,
    /// Their median in microseconds.
    pub p50_us: f64,
    /// Their 95th percentile by nearest rank, in microseconds: a value that occurred.
    pub p95_nearest_us: u64,
}

impl AllTimes {
    /// The figures of `n` values in microseconds in ascending order, with their sum, of which `at` gives the one at an index,
    /// from 0; none of no values.
    pub fn of_sorted(n: usize, sum_us: u64, at: impl Fn(usize) -> Option<u64>) -> Option<Self> {
        let at = |p, method| quantile_at(n, p, method, |index| at(index).map(|us| us as f64));
        Some(Self {
            n: n as u64,
            sum_us,
            mean_us: sum_us as f64 / n as f64,
            p50_us: at(0.5, Method::R7)?,
            p95_nearest_us: at(0.95, Method::NearestRank)? as u64,
        })
    }
}

/// Whether the declared condition held, by attempt that has a proof.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProofCounts {
    /// The facts agree with the declaration.
    pub proven: u64,
    /// The backend gives no way to tell.
    pub unproven: u64,
    /// The facts contradict the declaration.
    pub violated: u64,
}

/// What is known of the end of what was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CleanupCounts {
    /// Confirmed gone.
    pub confirmed: u64,
    /// It may still exist.
    pub unconfirmed: u64,
    /// Warm artifacts that are meant to stay.
    pub retained: u64,
}

impl Trials {
    /// Trials that were attempted and could run.
    #[must_use]
    pub fn runnable(&self) -> u64 {
        self.attempted.saturating_sub(self.unavailable)
    }
}

impl Cell {
    /// The times of a phase in the attempts that completed it.
    #[must_use]
    pub fn completed(&self, phase: Phase) -> Option<Durations> {
        self.phases.iter().find(|times| times.phase == phase).and_then(|times| times.completed)
    }
}
