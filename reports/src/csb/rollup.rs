//! The figures of that harness's report: all tasks count, failed ones included; the median of an even number is the mean
//! of the two in the middle; p95 is the nearest rank; phases are means over the tasks that reached them; costs are its own
//! formulas.

use std::collections::HashMap;

use sandbox_bench_core::Condition;
use sandbox_bench_core::evidence::{Attempt, Event};

use super::PHASES;
use crate::cost::{RateCard, RatesError, price};
use crate::evidence::{Entry, EvidenceError, Run};
use crate::markdown::{table, words};
use crate::stats::{Method, quantile};
use crate::summary::hash;

/// The figures of one cell. Times are seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The backend.
    pub backend: String,
    /// The condition.
    pub condition: Condition,
    /// `solve`, or `verifier` if nothing was solved.
    pub kind: &'static str,
    /// Accepted trials.
    pub passed: u64,
    /// Trials.
    pub tasks: u64,
    /// Sum of the trials' times.
    pub total: f64,
    /// Their mean.
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// Their 95th percentile, by nearest rank.
    pub p95: f64,
    /// US dollars; none if any is unknown.
    pub usd: Option<f64>,
    /// Mean of each phase that any trial reached, in the order of [`PHASES`].
    pub phases: Vec<(&'static str, f64)>,
}

/// The figures of a run, by cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Rollup(pub Vec<Figures>);

#[derive(Default)]
struct Draft {
    /// Microseconds and acceptance of each trial, by the hash of its key; attempts of a trial add up.
    trials: HashMap<u64, (u64, bool)>,
    solved: bool,
    usd: f64,
    unpriced: bool,
    /// Number and sum of microseconds of each of [`PHASES`].
    phases: [(u64, u64); PHASES.len()],
}

/// Why there is no rollup.
#[derive(Debug, thiserror::Error)]
pub enum RollupError {
    /// The run cannot be read.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// The formulas cannot be used.
    #[error(transparent)]
    Rates(#[from] RatesError),
}

/// The figures of a run by that harness's methods. One pass, with two numbers kept of each trial.
///
/// # Errors
/// The run cannot be read.
pub fn rollup(run: &Run) -> Result<Rollup, RollupError> {
    let rates = RateCard::named(Some("csb-compat"))?;
    let mut cells: Vec<((String, Condition), Draft)> = Vec::new();
    for entry in run.journal()? {
        let Entry::Known(line) = entry? else { continue };
        let Event::AttemptFinished { attempt } = line.event else { continue };
        let key = (attempt.trial.backend.clone(), attempt.trial.condition);
        let index = cells.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            cells.push((key, Draft::default()));
            cells.len() - 1
        });
        if let Some((_, draft)) = cells.get_mut(index) {
            draft.add(&attempt, &rates);
        }
    }
    Ok(Rollup(cells.into_iter().map(|((backend, condition), draft)| draft.finish(backend, condition)).collect()))
}

impl Draft {
    fn add(&mut self, attempt: &Attempt, rates: &RateCard) {
        if attempt.phases.is_empty() {
            return;
        }
        let (us, passed) = self.trials.entry(hash(&attempt.trial)).or_default();
        *us = us.saturating_add(attempt.total_us);
        *passed = attempt.accepted();
        for (name, us) in super::phases(attempt) {
            if let Some((n, sum)) = self.phases.iter_mut().zip(PHASES).find(|(_, p)| p.0 == name).map(|(sum, _)| sum) {
                (*n, *sum) = (*n + 1, sum.saturating_add(us));
            }
            self.solved |= name == "solve";
        }
        match price(attempt, rates).and_then(|cost| cost.usd()) {
            Some(usd) => self.usd += usd,
            None => self.unpriced = true,
        }
    }

    fn finish(self, backend: String, condition: Condition) -> Figures {
        let mut seconds: Vec<f64> = self.trials.values().map(|(us, _)| *us as f64 / 1e6).collect();
        seconds.sort_by(f64::total_cmp);
        let tasks = seconds.len();
        let total = self.trials.values().map(|(us, _)| *us).fold(0, u64::saturating_add) as f64 / 1e6;
        let at = |p, method| quantile(&seconds, p, method).unwrap_or(0.0);
        Figures {
            backend,
            condition,
            kind: if self.solved { "solve" } else { "verifier" },
            passed: self.trials.values().filter(|(_, passed)| *passed).count() as u64,
            tasks: tasks as u64,
            total,
            mean: if tasks == 0 { 0.0 } else { total / tasks as f64 },
            // The mean of the two in the middle is what R-7 gives at one half.
            median: at(0.5, Method::R7),
            p95: at(0.95, Method::NearestRank),
            usd: (!self.unpriced).then_some(self.usd),
            phases: PHASES
                .iter()
                .zip(self.phases)
                .filter(|(_, (n, _))| *n > 0)
                .map(|((name, _), (n, us))| (*name, us as f64 / 1e6 / n as f64))
                .collect(),
        }
    }
}

impl Rollup {
    /// As two tables in Markdown, with the digits that the harness's report prints.
    #[must_use]
    pub fn markdown(&self) -> String {
        let columns =
            ["provider", "mode", "kind", "passed", "total s", "mean s", "median s", "p95 s", "estimated cost"];
        let rows = self.0.iter().map(|f| {
            vec![
                words(&f.backend),
                f.condition.to_string(),
                f.kind.to_owned(),
                format!("{}/{}", f.passed, f.tasks),
                format!("{:.2}", f.total),
                format!("{:.2}", f.mean),
                format!("{:.2}", f.median),
                format!("{:.2}", f.p95),
                f.usd.map_or_else(|| "unknown".to_owned(), |usd| format!("${usd:.4}")),
            ]
        });
        let reached: Vec<&str> = PHASES
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| self.0.iter().any(|f| f.phases.iter().any(|(known, _)| known == name)))
            .collect();
        let header: Vec<&str> = ["provider", "mode"].into_iter().chain(reached.iter().copied()).collect();
        let means = self.0.iter().map(|f| {
            let mean = |name: &&str| f.phases.iter().find(|(known, _)| known == name).map(|(_, mean)| *mean);
            let shown = reached.iter().map(|name| mean(name).map_or_else(|| "-".to_owned(), |s| format!("{s:.2}")));
            [words(&f.backend), f.condition.to_string()].into_iter().chain(shown).collect()
        });
        format!(
            "## Solve Rollup\n\n{}\n## Mean Phase Seconds\n\n{}",
            table(&columns, 3, rows),
            table(&header, 2, means)
        )
    }
}
