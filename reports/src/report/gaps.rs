//! What the evidence does not tell: a reader of the figures should know.

use super::Report;
use crate::stats::MIN_REPLICATES;
use crate::summary::RatesUsed;

impl Report {
    /// The gaps of all runs, in sentences.
    pub(crate) fn gaps(&self) -> Vec<String> {
        let mut gaps: Vec<String> = self.runs.iter().flat_map(|run| self.of_run(run)).collect();
        gaps.extend(self.cells.iter().flat_map(of_cell));
        gaps.extend(self.rates().into_iter().filter(|_| self.runs.len() > 1));
        if self.runs.len() > 1 && self.tasks.iter().any(|task| task.digest.is_some()) {
            gaps.push(
                "tasks of equal name but different content are kept apart, with the first digits of their digests"
                    .to_owned(),
            );
        }
        if self.unlisted > 0 {
            gaps.push(format!("{} attempts are counted, but not listed here; trials.jsonl has them", self.unlisted));
        }
        gaps
    }

    fn of_run(&self, run: &super::RunView) -> Vec<String> {
        let summary = &run.summary;
        let name = if run.label.is_empty() { "the run".to_owned() } else { run.label.clone() };
        let mut gaps = Vec::new();
        if !summary.finished {
            gaps.push(format!("{name} did not finish: it was killed, or is still running"));
        } else if summary.interrupted {
            gaps.push(format!("{name} was interrupted"));
        }
        let planned = summary.totals.planned.unwrap_or(0);
        let missing = planned.saturating_sub(summary.totals.attempted);
        if missing > 0 {
            gaps.push(format!("{name}: {missing} of {planned} planned trials were not run"));
        }
        if !summary.left_out.is_empty() {
            gaps.push(format!("{name}: {} tasks are invalid and were left out", summary.left_out.count));
        }
        if !summary.disagreements.is_empty() {
            gaps.push(format!("{name}: {} verdicts have facts against them", summary.disagreements.count));
        }
        let unknown: u64 = summary.unknown_events.values().sum();
        if unknown > 0 {
            gaps.push(format!("{name}: {unknown} journal lines of a newer version were not understood"));
        }
        if u64::from(run.manifest.plan.replicates) < MIN_REPLICATES {
            let replicates = run.manifest.plan.replicates;
            gaps.push(format!(
                "{name} has {replicates} of the {MIN_REPLICATES} replicates that an order of the cells needs"
            ));
        }
        gaps
    }

    /// Runs must have been priced alike, or their costs do not compare.
    fn rates(&self) -> Option<String> {
        let used: Vec<&RatesUsed> = self.runs.iter().map(|run| &run.summary.rates).collect();
        let first = used.first()?;
        used.iter().any(|rates| rates != first).then(|| "the runs were priced by different rate cards".to_owned())
    }
}

fn of_cell(cell: &super::CellView) -> Vec<String> {
    let (name, figures) = (&cell.name, &cell.figures);
    let trials = &figures.trials;
    let mut gaps = Vec::new();
    if trials.attempted == 0 {
        gaps.push(format!("{name}: nothing was run"));
    }
    if trials.unavailable > 0 {
        gaps.push(format!("{name} cannot run {} of {} trials at all", trials.unavailable, trials.attempted));
    }
    if figures.proof.unproven > 0 {
        gaps.push(format!("{name}: the condition is not proven in {} attempts", figures.proof.unproven));
    }
    if figures.proof.violated > 0 {
        gaps.push(format!("{name}: the condition did not hold in {} attempts", figures.proof.violated));
    }
    gaps.extend(
        figures.cost.why.iter().map(|(why, n)| format!("{name}: cost of {n} attempts: {}", crate::render::plain(why))),
    );
    gaps
}
