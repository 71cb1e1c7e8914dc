//! Gates: conditions under which a comparison fails, for CI.
//!
//! ```text
//! gate   = metric operator bound
//! metric = "p" 1…99 "(" time ")" | "paired(" time ")" | "passed" | "cost"
//! time   = "total" | "environment" | "create" | "ready" | … (the phases)
//! operator = ">" | ">=" | "<" | "<="
//! bound  = [ "+" | "-" ] number unit
//! unit   = "%" | "pp" | "us" | "ms" | "s" | "min" | "usd"
//! ```
//!
//! A bound with a sign is about the change from A to B: `p95(ready) > +10%`, `p50(total) > +200ms`, `passed < -5pp`
//! (percentage points), `cost > +20%`. A change that is not shown counts as none, so that noise trips no gate. A bound
//! without a sign is about B alone: `p95(ready) > 2s`, `passed < 95%`, `cost > 0.02usd`. Blanks do not matter.

use std::fmt;
use std::str::FromStr;

use super::Metric;

/// A condition under which a comparison fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gate {
    /// What is looked at.
    pub metric: Metric,
    /// How it is compared with the bound.
    pub operator: Operator,
    /// The bound.
    pub bound: Bound,
}

/// How a figure is compared with a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// Greater.
    Greater,
    /// Greater or equal.
    AtLeast,
    /// Less.
    Less,
    /// Less or equal.
    AtMost,
}

/// What a figure is compared with, in the metric's own unit: microseconds, shares of 1, US dollars.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// The figure of B.
    Value(f64),
    /// The difference between the figures of A and B.
    Difference(f64),
    /// The change relative to A: 0.1 is 10 % more.
    Relative(f64),
}

/// Why a text is no gate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// There is no operator.
    #[error("{0:?} has none of > >= < <=; a gate is like 'p95(ready) > +10%'")]
    Operator(String),
    /// What stands before the operator is no metric.
    #[error("{0}")]
    Metric(String),
    /// What stands behind it is no number with a unit.
    #[error("{0:?} is no bound: a number with % pp us ms s min or usd, and a sign if it is about a change")]
    Bound(String),
    /// The bound does not fit the metric.
    #[error("{metric} has no bound like {bound:?}: give {known}")]
    Mismatch {
        /// The metric.
        metric: String,
        /// The bound.
        bound: String,
        /// What it can be compared with.
        known: &'static str,
    },
}

impl Operator {
    const ALL: [(Self, &'static str); 4] =
        [(Self::AtLeast, ">="), (Self::AtMost, "<="), (Self::Greater, ">"), (Self::Less, "<")];

    /// Whether `value` stands in this relation to `bound`.
    #[must_use]
    pub fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Greater => value > bound,
            Self::AtLeast => value >= bound,
            Self::Less => value < bound,
            Self::AtMost => value <= bound,
        }
    }
}

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let at = text.find(['<', '>']).ok_or_else(|| GateError::Operator(text.to_owned()))?;
        let (metric, rest) = text.split_at(at);
        let (operator, bound) = Operator::ALL
            .into_iter()
            .find_map(|(operator, sign)| Some((operator, rest.strip_prefix(sign)?)))
            .ok_or_else(|| GateError::Operator(text.to_owned()))?;
        let metric: Metric = metric.trim().parse().map_err(GateError::Metric)?;
        Ok(Self { metric, operator, bound: parse_bound(metric, bound.trim())? })
    }
}

fn parse_bound(metric: Metric, text: &str) -> Result<Bound, GateError> {
    let wrong = || GateError::Bound(text.to_owned());
    let signed = text.starts_with(['+', '-']);
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic() || c == '%').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(unit_at);
    let plain = number.trim_start_matches(['+', '-']).trim();
    if plain.is_empty() || !plain.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(wrong());
    }
    let size: f64 = plain.parse().map_err(|_| wrong())?;
    let number = if number.starts_with('-') { -size } else { size };
    if number.abs() > 1e15 || text.starts_with("+-") || text.starts_with("-+") {
        return Err(wrong());
    }
    let time = |us: f64| if signed { Bound::Difference(number * us) } else { Bound::Value(number * us) };
    let bound = match (metric, unit.trim(), signed) {
        (Metric::Percentile(..), "us", _) => time(1.0),
        (Metric::Percentile(..), "ms", _) => time(1e3),
        (Metric::Percentile(..), "s", _) => time(1e6),
        (Metric::Percentile(..), "min", _) => time(6e7),
        (Metric::Percentile(..) | Metric::Paired(_) | Metric::Cost, "%", true) => Bound::Relative(number / 100.0),
        (Metric::Passed, "%", false) => Bound::Value(number / 100.0),
        (Metric::Passed, "pp", true) => Bound::Difference(number / 100.0),
        (Metric::Cost, "usd", true) => Bound::Difference(number),
        (Metric::Cost, "usd", false) => Bound::Value(number),
        (_, "us" | "ms" | "s" | "min" | "%" | "pp" | "usd", _) => {
            let known = match metric {
                Metric::Percentile(..) => "a change such as +10% or +50ms, or a time such as 2s",
                Metric::Paired(_) => "a change such as +10%",
                Metric::Passed => "a change such as -5pp, or a share such as 95%",
                Metric::Cost => "a change such as +10% or +0.01usd, or an amount such as 0.02usd",
            };
            return Err(GateError::Mismatch { metric: metric.to_string(), bound: text.to_owned(), known });
        }
        _ => return Err(wrong()),
    };
    Ok(bound)
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = Operator::ALL.iter().find(|(operator, _)| *operator == self.operator).map_or("", |(_, sign)| sign);
        write!(f, "{} {sign} ", self.metric)?;
        match (self.metric, self.bound) {
            (_, Bound::Relative(share)) => write!(f, "{:+}%", tidy(share * 100.0)),
            (Metric::Passed, Bound::Value(share)) => write!(f, "{}%", tidy(share * 100.0)),
            (Metric::Passed, Bound::Difference(share)) => write!(f, "{:+}pp", tidy(share * 100.0)),
            (Metric::Cost, Bound::Value(usd)) => write!(f, "{usd}usd"),
            (Metric::Cost, Bound::Difference(usd)) => write!(f, "{usd:+}usd"),
            (_, Bound::Value(us)) => write!(f, "{}ms", tidy(us / 1e3)),
            (_, Bound::Difference(us)) => write!(f, "{:+}ms", tidy(us / 1e3)),
        }
    }
}

/// Without what the change of units left behind: 7.000000000000001 is 7.
fn tidy(number: f64) -> f64 {
    (number * 1e9).round() / 1e9
}
