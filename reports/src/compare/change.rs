//! How much one figure changed, and what may be said of it.

use sandbox_bench_core::Condition;
use sandbox_bench_core::evidence::Variant;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::side::{Side, TaskFacts, TaskKey, TrialFacts};
use super::{Metric, Span};
use crate::stats::proportion::difference;
use crate::stats::{
    Bootstrap, Interval, MIN_REPLICATES, RankTest, Sample, Time, Unit, Units, enough, mann_whitney, paired,
};

/// Level of all decisions: an interval covers 1 − this, a test is wrong with this probability.
pub const LEVEL: f64 = 0.05;

/// Name of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CellName {
    /// The run's id.
    pub run: String,
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
}

impl CellName {
    /// What cells are put in order by.
    pub(super) fn order(&self) -> (&str, Condition, Option<&str>, &Variant) {
        (&self.backend, self.condition, self.model.as_deref(), &self.variant)
    }
}

/// What may be said of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Verdict {
    /// B is better: the interval of the change lies on that side, and so does the test.
    #[serde(rename = "better")]
    Better,
    /// B is worse.
    #[serde(rename = "worse")]
    Worse,
    /// No change is shown. That is not to say that there is none.
    #[serde(rename = "same")]
    Same,
    /// There are too few values to say anything.
    #[serde(rename = "too few")]
    TooFew,
}

impl Verdict {
    /// The word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::TooFew => "too few",
        }
    }
}

/// One figure on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The metric, such as `p95(ready)`.
    pub metric: String,
    /// Unit of the figures: `us`, `share`, `usd`. A paired change has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The figure of A; none if there is none, or if it lies beyond everything that was observed.
    pub a: Option<f64>,
    /// The figure of B.
    pub b: Option<f64>,
    /// Number of values on each side: attempts of a time, trials of `passed` and `cost`.
    pub n: (u64, u64),
    /// How many of them are censored, and so say "at least this long".
    pub censored: (u64, u64),
    /// Number of tasks.
    pub tasks: u64,
    /// The change: relative to A (0.1 is 10 % more); of `passed` the difference of the shares.
    pub change: Option<f64>,
    /// Its interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// What was resampled for the interval; none if it is not a bootstrap's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resampled: Option<Unit>,
    /// p of the rank test within tasks, Holm-adjusted over all figures of the comparison that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// The least p, before adjustment, that so many values can give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_floor: Option<f64>,
    /// What may be said.
    pub verdict: Verdict,
    /// Why nothing may be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The tasks of a comparison, on both sides.
pub(super) struct Pairing<'a> {
    tasks: Vec<(&'a TaskFacts, &'a TaskFacts)>,
}

impl<'a> Pairing<'a> {
    pub(super) fn new(a: &'a Side, b: &'a Side, tasks: &[&TaskKey]) -> Self {
        let pair = |task: &&TaskKey| Some((a.tasks.get(*task)?, b.tasks.get(*task)?));
        Self { tasks: tasks.iter().filter_map(pair).collect() }
    }

    /// The change of a figure; `p` is not adjusted yet and the verdict not given. None if a side has nothing of it.
    pub(super) fn change(&self, metric: Metric) -> Option<Change> {
        match metric {
            Metric::Percentile(p, span) => self.percentile(metric, f64::from(p) / 100.0, span),
            Metric::Paired(span) => self.paired(metric, span),
            Metric::Passed => self.passed(metric),
            Metric::Cost => self.cost(metric),
        }
    }

    /// The times of a span, of the tasks that have some on both sides.
    fn times(&self, span: Span) -> Vec<(&'a [Time], &'a [Time])> {
        let times = self.tasks.iter().map(|(a, b)| (a.times(span), b.times(span)));
        times.filter(|(a, b)| !a.is_empty() && !b.is_empty()).collect()
    }

    fn percentile(&self, metric: Metric, p: f64, span: Span) -> Option<Change> {
        let times = self.times(span);
        let mut change = of_times(metric, &times)?;
        let units = Units::of(&sizes(&times));
        let number = |side, task, trial| units.as_ref().map_or(0, |units| units.number(side, task, trial));
        let sample = |side: usize| {
            let times = times.iter().map(|(a, b)| if side == 0 { *a } else { *b }).enumerate();
            Sample::new(times.flat_map(|(task, times)| {
                times.iter().enumerate().map(move |(trial, time)| (*time, number(side, task, trial)))
            }))
        };
        let (a, b) = (sample(0), sample(1));
        let censoring = a.has_censored() || b.has_censored();
        let both = |weights: &[u32]| (a.quantile(p, weights, censoring), b.quantile(p, weights, censoring));
        let count = units.as_ref().map_or(1, |units| units.strata.iter().sum());
        change.figures(both(&vec![1; count]));
        if let Some(units) = &units {
            change.bootstrap(units, |weights| relative(both(weights)));
        }
        // The rank test is about where the bulk lies; of the tails it says nothing.
        if (0.25..=0.75).contains(&p) {
            change.test(mann_whitney(&strata(&times)));
        }
        let needed = (1.0 / p.min(1.0 - p)).round() as u64;
        change.need_values(needed, &format!("p{:.0} needs {needed} values on each side", p * 100.0));
        Some(change)
    }

    fn paired(&self, metric: Metric, span: Span) -> Option<Change> {
        let times = self.times(span);
        let mut change = of_times(metric, &times)?;
        change.unit = None;
        let side = |second: bool| {
            let times = times.iter().map(|(a, b)| if second { b } else { a }).enumerate();
            times.map(|(task, times)| (task, times.to_vec())).collect()
        };
        let changes = paired(&side(false), &side(true)).into_iter().map(|pair| pair.change()).enumerate();
        let known: Vec<(Time, usize)> =
            changes.filter(|(_, change)| !change.is_nan()).map(|(task, change)| (Time::seen(change), task)).collect();
        // A task is one value here, whatever it has of trials.
        let units = Units::of(&[vec![1; times.len()]]);
        let sample = Sample::new(known);
        let median = |weights: &[u32]| sample.quantile(0.5, weights, false);
        change.change = finite(median(&vec![1; times.len()]));
        match units {
            Some(units) => change.bootstrap(&units, median),
            None => change.too_few(format!("paired changes need {MIN_REPLICATES} tasks")),
        }
        Some(change)
    }

    fn passed(&self, metric: Metric) -> Option<Change> {
        let trials = self.trials();
        let hits = |trials: &[&TrialFacts]| trials.iter().filter(|trial| trial.accepted).count() as u64;
        let mut change = of_trials(metric, "share", &trials)?;
        let hits = trials.iter().fold((0, 0), |sum, (a, b)| (sum.0 + hits(a), sum.1 + hits(b)));
        let (a, b) = (hits.0 as f64 / change.n.0 as f64, hits.1 as f64 / change.n.1 as f64);
        (change.a, change.b, change.change) = (Some(a), Some(b), Some(b - a));
        change.interval = difference(hits, change.n, 1.0 - LEVEL);
        let values = |trials: &[&TrialFacts]| trials.iter().map(|trial| f64::from(u8::from(trial.accepted))).collect();
        let strata: Vec<(Vec<f64>, Vec<f64>)> = trials.iter().map(|(a, b)| (values(a), values(b))).collect();
        change.test(mann_whitney(&strata));
        Some(change)
    }

    fn cost(&self, metric: Metric) -> Option<Change> {
        let trials = self.trials();
        let mut change = of_trials(metric, "usd", &trials)?;
        if let Some(why) = trials.iter().flat_map(|(a, b)| a.iter().chain(b)).find_map(|trial| trial.unpriced.as_ref())
        {
            change.too_few(format!("the cost is unknown: {why}"));
            return Some(change);
        }
        let sizes = [trials.iter().map(|(a, _)| a.len()).collect(), trials.iter().map(|(_, b)| b.len()).collect()];
        let units = Units::of(&sizes);
        let count = units.as_ref().map_or(1, |units| units.strata.iter().sum());
        let number = |side, task, trial| units.as_ref().map_or(0, |units| units.number(side, task, trial));
        let per_success = |side: usize, weights: &[u32]| {
            let (mut usd, mut accepted) = (0.0, 0.0);
            for (task, (a, b)) in trials.iter().enumerate() {
                for (index, trial) in (if side == 0 { a } else { b }).iter().enumerate() {
                    let weight = f64::from(weights.get(number(side, task, index)).copied().unwrap_or(0));
                    usd += weight * trial.usd;
                    accepted += weight * f64::from(u8::from(trial.accepted));
                }
            }
            // Money without any success: beyond every price.
            if accepted > 0.0 { usd / accepted } else { f64::INFINITY }
        };
        let both = |weights: &[u32]| (per_success(0, weights), per_success(1, weights));
        change.figures(both(&vec![1; count]));
        if let Some(units) = &units {
            change.bootstrap(units, |weights| relative(both(weights)));
        }
        Some(change)
    }

    fn trials(&self) -> Vec<(Vec<&'a TrialFacts>, Vec<&'a TrialFacts>)> {
        self.tasks.iter().map(|(a, b)| (a.trials().collect(), b.trials().collect())).collect()
    }
}

impl Change {
    /// Gives the verdict, once `p` is adjusted.
    pub(super) fn judge(&mut self, metric: Metric) {
        if self.why.is_some() {
            return;
        }
        if self.p_floor.is_some_and(|floor| floor > LEVEL) && self.p.is_some_and(|p| p < 1.0) {
            self.too_few("no test of so few values could show anything".to_owned());
            return;
        }
        let Some(interval) = self.interval else {
            self.too_few("there is no figure to compare".to_owned());
            return;
        };
        let shown = !interval.contains(0.0) && self.p.is_none_or(|p| p <= LEVEL);
        let more = interval.low.is_none_or(|low| low > 0.0);
        self.verdict = match (shown, more == metric.less_is_better()) {
            (false, _) => Verdict::Same,
            (true, true) => Verdict::Worse,
            (true, false) => Verdict::Better,
        };
    }

    fn too_few(&mut self, why: String) {
        if self.why.is_none() {
            (self.verdict, self.why) = (Verdict::TooFew, Some(why));
        }
    }

    fn need_values(&mut self, needed: u64, why: &str) {
        if self.n.0.min(self.n.1) < needed {
            self.too_few(why.to_owned());
        }
    }

    fn figures(&mut self, (a, b): (f64, f64)) {
        (self.a, self.b, self.change) = (finite(a), finite(b), finite(relative((a, b))));
    }

    fn bootstrap(&mut self, units: &Units, figure: impl FnMut(&[u32]) -> f64) {
        let values = usize::try_from(self.n.0.saturating_add(self.n.1)).unwrap_or(usize::MAX);
        let interval = Bootstrap::of(values).interval(&units.strata, figure);
        (self.interval, self.resampled) = (interval.map(|(_, interval)| interval), Some(units.unit));
    }

    fn test(&mut self, test: Option<RankTest>) {
        (self.p, self.p_floor) = (test.map(|test| test.p), test.map(|test| test.floor));
    }
}

/// A change without figures yet, with the least number of values of a task checked.
fn empty(metric: Metric, unit: &str, sizes: &[(usize, usize)]) -> Option<Change> {
    let least = sizes.iter().map(|(a, b)| *a.min(b)).min()?;
    let n = sizes.iter().fold((0, 0), |sum, size| (sum.0 + size.0 as u64, sum.1 + size.1 as u64));
    let mut change = Change {
        metric: metric.to_string(),
        unit: Some(unit.to_owned()),
        a: None,
        b: None,
        n,
        censored: (0, 0),
        tasks: sizes.len() as u64,
        change: None,
        interval: None,
        resampled: None,
        p: None,
        p_floor: None,
        verdict: Verdict::Same,
        why: None,
    };
    if let Err(few) = enough(least as u64) {
        change.too_few(few.to_string());
    }
    Some(change)
}

fn of_times(metric: Metric, times: &[(&[Time], &[Time])]) -> Option<Change> {
    let sizes: Vec<(usize, usize)> = times.iter().map(|(a, b)| (a.len(), b.len())).collect();
    let mut change = empty(metric, "us", &sizes)?;
    let censored = |times: &[Time]| times.iter().filter(|time| time.censored).count() as u64;
    for (a, b) in times {
        change.censored = (change.censored.0 + censored(a), change.censored.1 + censored(b));
    }
    Some(change)
}

fn of_trials(metric: Metric, unit: &str, trials: &[(Vec<&TrialFacts>, Vec<&TrialFacts>)]) -> Option<Change> {
    let sizes: Vec<(usize, usize)> = trials.iter().map(|(a, b)| (a.len(), b.len())).collect();
    empty(metric, unit, &sizes)
}

fn sizes(times: &[(&[Time], &[Time])]) -> [Vec<usize>; 2] {
    [times.iter().map(|(a, _)| a.len()).collect(), times.iter().map(|(_, b)| b.len()).collect()]
}

fn strata(times: &[(&[Time], &[Time])]) -> Vec<(Vec<f64>, Vec<f64>)> {
    let values = |times: &[Time]| times.iter().map(|time| time.rank_value()).collect();
    times.iter().map(|(a, b)| (values(a), values(b))).collect()
}

/// The change from A to B relative to A. NaN if there is no telling.
fn relative((a, b): (f64, f64)) -> f64 {
    if a > 0.0 { b / a - 1.0 } else { f64::NAN }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
