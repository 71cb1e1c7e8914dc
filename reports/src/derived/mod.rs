//! The files of a run directory that follow from its manifest and journal: `trials.jsonl`, `trials.parquet`,
//! `receipts.jsonl`, `cases.jsonl`, `cleanup.json`, `summary.json`.
//!
//! They can be deleted and rebuilt at any time; equal evidence and an equal rate card give equal bytes. Each is complete or not there. One
//! pass over the journal, in memory that does not grow with the attempts but for the hash of each sandbox that is gone: what is known
//! of them is on disk while the pass goes on, in files without names in the run directory (`crate::spill`). It grows with the
//! cells, the tasks, what was open at one time, and what is not confirmed gone.

mod columns;
mod parquet;
mod rows;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::Path;

use sandbox_bench_core::evidence::{Attempt, Event};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cleanup::{Ledger, write_entries};
use crate::cost::{Cost, RateCard, price};
use crate::evidence::{Entry, EvidenceError, Run};
use crate::files::{Replacement, replace_json};
use crate::records::{CASES, RECEIPTS, Records};
use crate::spill::Shelf;
use crate::summary::{Builds, Summary, SummaryBuilder};

use self::parquet::TrialsParquet;

pub use self::rows::{TableError, TrialRows, write_csv, write_parquet};

/// One [`TrialRow`] per line, in the order in which the attempts ended.
pub const TRIALS: &str = "trials.jsonl";
/// The same attempts as columns.
pub const TRIALS_PARQUET: &str = "trials.parquet";
/// Everything that the run created, and what is known of its end.
pub const CLEANUP: &str = "cleanup.json";
/// The run in figures.
pub const SUMMARY: &str = "summary.json";

/// One line of `trials.jsonl`: an attempt as the journal has it, and what follows from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialRow {
    /// The attempt.
    #[serde(flatten)]
    pub attempt: Attempt,
    /// What its sandbox cost; none if nothing was asked of the backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// Rebuilds all derived files of the run in `run_dir`, with costs estimated by `rates`; returns the summary.
///
/// # Errors
/// What is wrong with the evidence, and what writing fails with. The files then are as they were.
pub fn write_derived(run_dir: &Path, rates: &RateCard) -> Result<Summary, EvidenceError> {
    let run = Run::open(run_dir)?;
    let in_file = |name: &str| {
        let path = run_dir.join(name);
        move |error| EvidenceError::io(&path, error)
    };
    let mut ledger = Ledger::default();
    let mut summary = SummaryBuilder::new(run.manifest.clone(), rates.clone(), run_dir);
    let mut objects = Shelf::new(run_dir);
    let mut trials = Replacement::new(&run_dir.join(TRIALS)).map_err(in_file(TRIALS))?;
    let columns = Replacement::new(&run_dir.join(TRIALS_PARQUET)).and_then(TrialsParquet::new);
    let mut columns = columns.map_err(in_file(TRIALS_PARQUET))?;
    let mut builds = Builds::default();
    let mut receipts = Replacement::new(&run_dir.join(RECEIPTS)).map_err(in_file(RECEIPTS))?;
    let mut cases = Replacement::new(&run_dir.join(CASES)).map_err(in_file(CASES))?;
    let mut records = Records::new(run.manifest.clone());
    for entry in run.journal()? {
        let event = match entry? {
            Entry::Known(line) => {
                builds.record(&line);
                line.event
            }
            Entry::Unknown { event, .. } => {
                summary.unknown(&event);
                continue;
            }
        };
        ledger.record(&event);
        for (number, entry) in ledger.take_settled() {
            summary.object(&entry);
            objects.put(number, &entry).map_err(in_file(CLEANUP))?;
        }
        summary.record(&event);
        if let Some((case, commands)) = records.record(&event) {
            line(&mut cases, &case).map_err(in_file(CASES))?;
            for command in commands {
                line(&mut receipts, &command).map_err(in_file(RECEIPTS))?;
            }
        }
        if let Event::AttemptFinished { attempt } = event {
            let row = TrialRow { cost: price(&attempt, rates), attempt: *attempt };
            line(&mut trials, &row).map_err(in_file(TRIALS))?;
            columns.push(row).map_err(in_file(TRIALS_PARQUET))?;
        }
    }
    for command in records.rest() {
        line(&mut receipts, &command).map_err(in_file(RECEIPTS))?;
    }
    for (number, entry) in ledger.rest() {
        summary.object(&entry);
        objects.put(number, &entry).map_err(in_file(CLEANUP))?;
    }
    summary.artifacts(builds.finish());
    let summary = summary.finish().map_err(in_file(SUMMARY))?;
    let mut cleanup = Replacement::new(&run_dir.join(CLEANUP)).map_err(in_file(CLEANUP))?;
    let objects = objects.sorted().map_err(in_file(CLEANUP))?;
    write_entries(&mut cleanup, &run.manifest.run, objects.iter()).map_err(in_file(CLEANUP))?;
    trials.commit().map_err(in_file(TRIALS))?;
    columns.finish().and_then(Replacement::commit).map_err(in_file(TRIALS_PARQUET))?;
    receipts.commit().map_err(in_file(RECEIPTS))?;
    cases.commit().map_err(in_file(CASES))?;
    cleanup.commit().map_err(in_file(CLEANUP))?;
    replace_json(&run_dir.join(SUMMARY), &summary).map_err(in_file(SUMMARY))?;
    Ok(summary)
}

fn line(file: &mut Replacement, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *file, value)?;
    file.write_all(b"\n")
}
