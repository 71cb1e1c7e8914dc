//! What two cells are compared by.

use std::fmt;
use std::str::FromStr;

use sandbox_bench_core::Phase;

/// A figure of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// A percentile (1 to 99) of a time over all trials: `p95(ready)`.
    Percentile(u8, Span),
    /// The median over the tasks of how much the task's own median changed: `paired(ready)`. A change and nothing else.
    Paired(Span),
    /// The share of trials that were accepted: `passed`.
    Passed,
    /// What an accepted trial cost, failed ones included: `cost`.
    Cost,
}

/// A time of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// A phase. Where it failed it never ends, where it was given up on it took at least so long.
    Phase(Phase),
    /// From submission to the verdict, likewise.
    Total,
}

impl Span {
    /// All of them, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        Phase::ALL.into_iter().map(Self::Phase).chain([Self::Total])
    }

    fn name(self) -> &'static str {
        match self {
            Self::Phase(phase) => phase.name(),
            Self::Total => "total",
        }
    }
}

impl Metric {
    /// True if less is better.
    #[must_use]
    pub fn less_is_better(self) -> bool {
        self != Self::Passed
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percentile(p, time) => write!(f, "p{p}({})", time.name()),
            Self::Paired(time) => write!(f, "paired({})", time.name()),
            Self::Passed => f.write_str("passed"),
            Self::Cost => f.write_str("cost"),
        }
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "passed" => return Ok(Self::Passed),
            "cost" => return Ok(Self::Cost),
            _ => {}
        }
        let known = "a metric is passed, cost, p1 to p99 of a time, or paired of a time, such as p95(ready)";
        let (what, time) = text
            .split_once('(')
            .and_then(|(what, rest)| Some((what.trim(), rest.strip_suffix(')')?.trim())))
            .ok_or_else(|| format!("{text:?}: {known}"))?;
        let time = Span::all().find(|known| known.name() == time).ok_or_else(|| {
            let names: Vec<&str> = Span::all().map(Span::name).collect();
            format!("{time:?} is no time: {}", names.join(", "))
        })?;
        if what == "paired" {
            return Ok(Self::Paired(time));
        }
        let digits = what.strip_prefix('p').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        match digits.and_then(|digits| digits.parse().ok()) {
            Some(p @ 1..=99) => Ok(Self::Percentile(p, time)),
            _ => Err(format!("{what:?}: {known}")),
        }
    }
}
