//! What the evidence does not tell: a reader of the figures should know.

use std::collections::BTreeMap;

use sandbox_bench_core::evidence::Listing;

use crate::render::{objects, plain};
use crate::stats::MIN_REPLICATES;

use super::{CellView, Report, RunView};

/// Things that are left out of a run are named up to so many.
const LISTED: usize = 10;

/// Reads a fact of a run, in words.
type Fact = fn(&RunView) -> String;

impl Report {
    /// The gaps of all runs, in sentences.
    pub(crate) fn gaps(&self) -> Vec<String> {
        let mut gaps: Vec<String> = self.runs.iter().flat_map(of_run).collect();
        gaps.extend(self.cells.iter().flat_map(of_cell));
        gaps.extend(self.costs());
        gaps.extend(self.differences());
        if self.tasks.iter().any(|task| task.digest.is_some()) {
            gaps.push(
                "tasks of equal name but different content are kept apart, by the start of their digests".to_owned(),
            );
        }
        if self.unlisted > 0 {
            let attempts = objects(self.unlisted, "attempt");
            gaps.push(format!("{attempts} counted, but not listed here; trials.jsonl has all"));
        }
        gaps
    }

    /// Why costs are not known, or only from one side.
    fn costs(&self) -> Vec<String> {
        let mut reasons: BTreeMap<&str, (u64, Vec<&str>)> = BTreeMap::new();
        for cell in &self.cells {
            for (why, n) in &cell.figures.cost.why {
                let (attempts, cells) = reasons.entry(why).or_default();
                *attempts += n;
                cells.push(&cell.name);
            }
        }
        let told = |(why, (n, cells)): (&str, (u64, Vec<&str>))| {
            format!("cost of {}: {} ({})", objects(n, "attempt"), plain(why), cells.join(", "))
        };
        reasons.into_iter().map(told).collect()
    }

    /// In what runs differ that are shown together: that, and not the backend, may be behind a difference of figures.
    fn differences(&self) -> Vec<String> {
        // A run of prewarm has no figures.
        let runs = || self.runs.iter().filter(|run| run.manifest.plan.replicates > 0);
        let of = |what: &str, value: Fact| {
            let each: Vec<String> = runs().map(value).collect();
            let named = runs().zip(&each).map(|(run, value)| format!("{} {}", run.label, plain(value)));
            let differ = each.iter().any(|value| Some(value) != each.first());
            differ.then(|| format!("the runs differ in {what}: {}", named.collect::<Vec<_>>().join(", ")))
        };
        let facts: [(&str, Fact); 5] = [
            ("solver", |run| run.manifest.solver.clone()),
            ("version", |run| run.manifest.binary_version.clone()),
            ("concurrency", |run| run.manifest.plan.concurrency.to_string()),
            ("rate card", |run| format!("{} of {}", run.summary.rates.name, run.summary.rates.date)),
            ("host", |run| {
                let host = run.manifest.host.as_ref();
                let told = |h: &sandbox_bench_core::evidence::Host| {
                    format!("{} {}, {} CPUs, {} MiB", h.kernel, h.architecture, h.cpus, h.memory_mb)
                };
                host.map_or_else(|| "not known".to_owned(), told)
            }),
        ];
        facts.into_iter().filter_map(|(what, value)| of(what, value)).collect()
    }
}

fn of_run(run: &RunView) -> Vec<String> {
    let (summary, name) = (&run.summary, run.name());
    let mut gaps = Vec::new();
    if let Some(imported) = &run.manifest.imported {
        gaps.push(format!(
            "{name} was imported ({}): conditions are as declared, not proven; what became of the sandboxes, requests and \
             bytes, and the content of tasks, unless the files tell it, are not known",
            plain(&imported.from)
        ));
        if !imported.timed {
            gaps.push(format!("{name}: when its attempts began, and how many ran at a time, is not known"));
        }
    }
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
        gaps.push(match &run.manifest.imported {
            None => format!("{name}: {} invalid and left out", objects(summary.left_out.count, "task")),
            Some(_) => format!("{name}: {}", listed(&summary.left_out, "result", "left out")),
        });
    }
    if !summary.quarantined.is_empty() {
        gaps.push(format!("{name}: {}", listed(&summary.quarantined, "task", "in quarantine and left out")));
    }
    if !summary.disagreements.is_empty() {
        gaps.push(format!(
            "{name}: {} in doubt: facts speak against them",
            objects(summary.disagreements.count, "verdict")
        ));
    }
    let unknown: u64 = summary.unknown_events.values().sum();
    if unknown > 0 {
        gaps.push(format!("{name}: {} of a newer version not understood", objects(unknown, "journal line")));
    }
    let replicates = u64::from(run.manifest.plan.replicates);
    // A run of prewarm has no trials to repeat.
    if (1..MIN_REPLICATES).contains(&replicates) {
        gaps.push(format!(
            "{name} has {replicates} of the {MIN_REPLICATES} replicates that an order of the cells needs"
        ));
    }
    gaps
}

/// How many there are, and the first of them in words.
fn listed(all: &Listing, what: &str, state: &str) -> String {
    let told: Vec<String> = all.first.iter().take(LISTED).map(|words| plain(words)).collect();
    let more = all.count.saturating_sub(told.len() as u64);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{} {state}: {}{more}", objects(all.count, what), told.join("; "))
}

fn of_cell(cell: &CellView) -> Vec<String> {
    let (name, figures) = (&cell.name, &cell.figures);
    let (trials, proof) = (&figures.trials, &figures.proof);
    let mut gaps = Vec::new();
    if trials.attempted == 0 {
        gaps.push(format!("{name}: nothing was run"));
    }
    if trials.unavailable > 0 {
        gaps.push(format!("{name} cannot run {} of {} trials at all", trials.unavailable, trials.attempted));
    }
    if proof.unproven > 0 {
        gaps.push(format!("{name}: the condition is not proven in {}", objects(proof.unproven, "attempt")));
    }
    if proof.violated > 0 {
        gaps.push(format!("{name}: the condition did not hold in {}", objects(proof.violated, "attempt")));
    }
    gaps
}
