//! What a plan will take, told before it is run: from earlier runs of the same cells, and at most by the tasks' own limits.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use sandbox_bench_core::Condition;
use sandbox_bench_core::evidence::TrialKey;
use sandbox_bench_reports::cost::RateCard;
use sandbox_bench_reports::derived::SUMMARY;
use sandbox_bench_reports::summary::{Cell, Summary};
use serde::Serialize;

use crate::plan::TaskName;
use crate::run::{Plan, Request};
use crate::ways::Missing;

/// Most earlier runs that are looked at, the newest first.
const RUNS: usize = 50;

/// Time and cost of a plan.
#[derive(Debug, Serialize)]
pub struct Estimate {
    /// Trials that can be run.
    pub runnable: usize,
    /// Seconds from the first launch to the last end, by the medians of earlier runs; none if some cell has none.
    pub seconds: Option<f64>,
    /// Seconds if every solver and verifier took all of its time.
    pub at_most_seconds: f64,
    /// US dollars of the sandboxes, by earlier runs and the rate card; none if some cell has none.
    pub usd: Option<f64>,
    /// Cells of which no earlier run is there.
    pub without_earlier: Vec<String>,
}

/// A cell, as far as an earlier run can be taken for it.
type Place = (String, Condition, Option<String>);

/// Median total time of an accepted trial in seconds, and mean cost of a trial in US dollars.
#[derive(Clone, Copy)]
struct Known {
    seconds: f64,
    usd: Option<f64>,
}

impl Estimate {
    /// The estimate for `plan`. Earlier runs are those in the directory where the new one would go.
    pub fn of(plan: &Plan, request: &Request, rates: &RateCard) -> Self {
        let earlier = earlier(&request.results, rates);
        let nothing_missing = Missing::default();
        let mut estimate =
            Self { runnable: 0, seconds: Some(0.0), at_most_seconds: 0.0, usd: Some(0.0), without_earlier: Vec::new() };
        for key in &plan.trials {
            let name = TaskName { dataset: key.dataset.clone(), task: key.task.clone() };
            let Some(task) = plan.tasks.get(&name) else { continue };
            let unavailable = plan.condition_unavailable(key).is_some();
            if unavailable || task.setup(&key.backend, &nothing_missing).is_err() {
                continue;
            }
            estimate.runnable += 1;
            let places = f64::from(places(plan, request, key));
            let limit = task.load().map_or(Duration::ZERO, |task| {
                request.limits.solve_of(&task).saturating_add(request.limits.verify_of(&task))
            });
            estimate.at_most_seconds += limit.as_secs_f64() / places;
            let place = (key.backend.clone(), key.condition, key.model.clone());
            let known = earlier.get(&place);
            estimate.seconds = estimate.seconds.zip(known).map(|(sum, known)| sum + known.seconds / places);
            estimate.usd = estimate.usd.zip(known.and_then(|known| known.usd)).map(|(sum, usd)| sum + usd);
            if known.is_none() {
                let cell = format!("{} {}", key.backend, key.condition);
                if !estimate.without_earlier.contains(&cell) {
                    estimate.without_earlier.push(cell);
                }
            }
        }
        estimate
    }

    /// In words.
    pub fn words(&self) -> String {
        let seconds = |seconds: f64| {
            let whole = seconds.ceil() as u64;
            match (whole / 3600, whole / 60 % 60, whole % 60) {
                (0, 0, seconds) => format!("{seconds} s"),
                (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
                (hours, minutes, _) => format!("{hours} h {minutes} min"),
            }
        };
        let expected = match self.seconds {
            Some(expected) => format!("about {}, as in earlier runs", seconds(expected)),
            None => format!("time unknown (no earlier run of {})", self.without_earlier.join(", ")),
        };
        let cost = match self.usd {
            Some(usd) => format!("sandboxes about {}", sandbox_bench_reports::render::usd(usd)),
            None => "cost unknown".to_owned(),
        };
        format!("{expected}; at most {} by the tasks' limits; {cost}", seconds(self.at_most_seconds))
    }
}

/// Trials that run at the same time as this one, at most.
fn places(plan: &Plan, request: &Request, key: &TrialKey) -> u32 {
    let level = key.variant.concurrency.unwrap_or(request.concurrency);
    let own = request.backend_concurrency.get(&key.backend).filter(|_| plan.backends.len() == 1);
    own.map_or(level, |own| level.min(*own)).max(1)
}

/// What earlier runs tell of each cell; the newest run wins. What cannot be read is passed over: it only estimates.
fn earlier(results: &Path, rates: &RateCard) -> BTreeMap<Place, Known> {
    let mut known = BTreeMap::new();
    let Ok(entries) = fs::read_dir(results) else { return known };
    let mut runs: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    // Their names begin with the time.
    runs.sort();
    for run in runs.iter().rev().take(RUNS) {
        let Ok(text) = fs::read(run.join(SUMMARY)) else { continue };
        let Ok(summary) = serde_json::from_slice::<Summary>(&text) else { continue };
        let same_prices = summary.rates.digest == rates.digest;
        for cell in summary.cells {
            if let Some(one) = of_cell(&cell, same_prices) {
                known.entry((cell.backend, cell.condition, cell.model)).or_insert(one);
            }
        }
    }
    known
}

fn of_cell(cell: &Cell, same_prices: bool) -> Option<Known> {
    let seconds = cell.total.accepted?.p50_us as f64 / 1e6;
    let trials = cell.trials.runnable();
    let usd = cell.cost.known_usd.filter(|_| same_prices && trials > 0).map(|usd| usd / trials as f64);
    Some(Known { seconds, usd })
}
