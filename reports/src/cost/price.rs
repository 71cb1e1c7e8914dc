//! The price of one attempt's sandbox.

use std::collections::BTreeMap;

use sandbox_bench_core::evidence::{Attempt, Cleanup, EnvironmentWay};
use sandbox_bench_core::{Condition, Observation, Phase};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::facts;
use super::{Billed, Meter, RateCard, Rates, Seconds};

/// What a sandbox cost in one attempt, and how that is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "basis")]
pub enum Cost {
    /// The backend said it.
    Measured {
        /// US dollars.
        usd: f64,
    },
    /// From a rate card.
    Estimated {
        /// US dollars.
        usd: f64,
        /// … by what they are for: `cpu`, `memory`, `disk`, `creation`, `egress`, `snapshot`.
        parts: BTreeMap<String, f64>,
        /// Set if the true cost can only lie on one side.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bound: Option<Bound>,
        /// What was not known and how that was dealt with.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        why: Vec<String>,
    },
    /// There is no telling.
    Unknown {
        /// Why.
        why: String,
    },
}

/// On which side of an estimate the true cost lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// It cost at least this much.
    Lower,
    /// It cost at most this much.
    Upper,
}

impl Cost {
    /// The amount in US dollars, if there is one.
    #[must_use]
    pub fn usd(&self) -> Option<f64> {
        match self {
            Self::Measured { usd } | Self::Estimated { usd, .. } => Some(*usd),
            Self::Unknown { .. } => None,
        }
    }
}

/// What the attempt's sandbox cost; none if nothing was asked of the backend, so that nothing could cost.
#[must_use]
pub fn price(attempt: &Attempt, card: &RateCard) -> Option<Cost> {
    if attempt.sandbox.is_none() && attempt.phase_us(Phase::Create).is_none() {
        return None;
    }
    let unknown = |why: String| Some(Cost::Unknown { why });
    if let Some(usd) = fact(attempt, facts::COST_USD) {
        return Some(Cost::Measured { usd });
    }
    let backend = &attempt.trial.backend;
    let Some(rates) = card.backend.get(backend) else {
        return unknown(format!("the rate card has no prices of {backend}"));
    };
    if let Some(why) = &rates.unpriced {
        return unknown(why.clone());
    }
    // An imported run does not tell its sandbox, but that there was one.
    let created = attempt.sandbox.is_some() || attempt.phases.iter().any(|span| span.phase == Phase::Create && span.ok);
    if !created && rates.seconds == Seconds::Lifetime {
        return unknown("the sandbox did not come to be; whether the backend charges for that is not known".to_owned());
    }
    Some(Estimate { attempt, rates, seconds: seconds(attempt, rates), why: Vec::new(), bounds: Vec::new() }.cost())
}

/// A number that the adapter reported.
fn fact(attempt: &Attempt, name: &str) -> Option<f64> {
    let value: f64 = observation(attempt)?.cost_evidence.get(name)?.trim().parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value)
}

fn observation(attempt: &Attempt) -> Option<&Observation> {
    attempt.observation.as_ref()
}

/// The time that is billed, before rounding.
fn seconds(attempt: &Attempt, rates: &Rates) -> f64 {
    let us = match rates.seconds {
        Seconds::Elapsed => attempt.total_us,
        Seconds::Lifetime => {
            if let Some(told) = fact(attempt, facts::RUNNING_SECONDS) {
                return told;
            }
            // The attempt of a session that goes on has no create phase of its own: all its phases use the sandbox.
            let created = attempt.phases.iter().filter(|span| span.phase == Phase::Create).map(|span| span.start_us);
            let end = attempt.phases.iter().map(|span| span.start_us.saturating_add(span.duration_us)).max();
            end.unwrap_or(attempt.total_us).saturating_sub(created.min().unwrap_or(0))
        }
    };
    us as f64 / 1e6
}

/// An estimate in the making.
struct Estimate<'a> {
    attempt: &'a Attempt,
    rates: &'a Rates,
    seconds: f64,
    why: Vec<String>,
    bounds: Vec<Bound>,
}

impl Estimate<'_> {
    fn cost(mut self) -> Cost {
        let mut parts = BTreeMap::new();
        if let Err(why) = self.meters(&mut parts) {
            return Cost::Unknown { why };
        }
        let rates = self.rates;
        let fresh = !matches!(self.attempt.environment.as_ref().map(|e| e.way), Some(EnvironmentWay::Reuse));
        if rates.creation > 0.0 && fresh {
            parts.insert("creation".to_owned(), rates.creation);
        }
        if rates.egress_gb > 0.0
            && let Some(bytes) = self.or_lower(facts::EGRESS_BYTES, "bytes that left the sandbox are not known")
        {
            parts.insert("egress".to_owned(), bytes / 1e9 * rates.egress_gb);
        }
        if rates.snapshot_gb > 0.0
            && fresh
            && let Some(bytes) = self.or_lower(facts::SNAPSHOT_BYTES, "the size of the snapshot is not known")
        {
            parts.insert("snapshot".to_owned(), bytes / 1e9 * rates.snapshot_gb);
        }
        if self.attempt.trial.condition == Condition::Resumed {
            if rates.snapshot_gb > 0.0 {
                self.lower("memory that was written when it was suspended and read when it was resumed is not counted");
            }
            if rates.seconds == Seconds::Lifetime && fact(self.attempt, facts::RUNNING_SECONDS).is_none() {
                self.lower("time before the resumption is not counted");
            }
        }
        if rates.seconds == Seconds::Lifetime {
            match &self.attempt.cleanup {
                Cleanup::Unconfirmed { .. } => self.lower("the sandbox is not confirmed gone"),
                Cleanup::Kept => self.lower("time between the trials of a session is not counted"),
                Cleanup::Nothing | Cleanup::Confirmed if self.attempt.trial.condition == Condition::Reuse => {
                    self.lower("time between the trials of a session is not counted");
                }
                Cleanup::Nothing | Cleanup::Confirmed => {}
            }
        }
        // Too much in one place and too little in another: the sum is on no side.
        let bound = self.bounds.first().copied().filter(|first| self.bounds.iter().all(|bound| bound == first));
        Cost::Estimated { usd: parts.values().sum(), parts, bound, why: self.why }
    }

    fn meters(&mut self, parts: &mut BTreeMap<String, f64>) -> Result<(), String> {
        let (vcpus, gib) = self.amounts();
        let rates = self.rates;
        if let Some(meter) = &rates.cpu {
            let used = fact(self.attempt, facts::BILLED_VCPU_SECONDS);
            let seen = observation(self.attempt).and_then(|o| o.cpu_us).map(|us| us as f64 / 1e6);
            let amount = vcpus.ok_or("the number of vCPUs is not known")?;
            parts.insert("cpu".to_owned(), self.meter("CPU", meter, amount, used, seen));
        }
        if let Some(meter) = &rates.memory {
            let used = fact(self.attempt, facts::BILLED_GIB_SECONDS);
            let amount = gib.ok_or("the size of the memory is not known")?;
            parts.insert("memory".to_owned(), self.meter("memory", meter, amount, used, None));
        }
        if let Some(meter) = &rates.disk {
            let known = self.resource(|resources| resources.disk_mb.map(gib_of)).or(meter.default);
            let amount = known.ok_or("the size of the disk is not known")?;
            parts.insert("disk".to_owned(), self.meter("disk", meter, amount, None, None));
        }
        Ok(())
    }

    /// vCPUs and GiB of memory: as one follows from the other, else as granted, as asked for, as the card has it.
    fn amounts(&self) -> (Option<f64>, Option<f64>) {
        let default = |meter: &Option<Meter>| meter.as_ref().and_then(|meter| meter.default);
        let vcpus = self.resource(|resources| resources.cpus).or(default(&self.rates.cpu));
        let gib = self.resource(|resources| resources.memory_mb.map(gib_of)).or(default(&self.rates.memory));
        let per_gib = self.rates.cpu.as_ref().and_then(|meter| meter.per_gib).zip(gib).map(|(per, gib)| per * gib);
        let per_vcpu = self.rates.memory.as_ref().and_then(|meter| meter.per_vcpu).zip(vcpus).map(|(per, n)| per * n);
        (per_gib.or(vcpus), per_vcpu.or(gib))
    }

    fn resource<T>(&self, get: impl Fn(&sandbox_bench_core::Resources) -> Option<T>) -> Option<T> {
        observation(self.attempt).and_then(|o| get(&o.granted)).or_else(|| get(&self.attempt.requested))
    }

    /// The price of one resource: `billed` is its use as the backend bills it, `seen` as the sandbox was seen to use it.
    fn meter(&mut self, name: &str, meter: &Meter, amount: f64, billed: Option<f64>, seen: Option<f64>) -> f64 {
        let mut seconds = self.seconds.max(meter.minimum_s);
        if meter.round_s > 0.0 {
            seconds = (seconds / meter.round_s).ceil() * meter.round_s;
        }
        let reserved = (amount - meter.free).max(0.0) * seconds;
        let amount = match (meter.billed, billed) {
            (Billed::Reserved, _) => reserved,
            (_, Some(billed)) => billed,
            (Billed::Used, None) => seen.unwrap_or_else(|| {
                self.why.push(format!("use of {name} is not known: all of it is taken for all of the time"));
                self.bounds.push(Bound::Upper);
                reserved
            }),
            (Billed::Greater, None) => {
                self.lower(&format!("use of {name} beyond what was reserved is not known"));
                reserved.max(seen.unwrap_or(0.0))
            }
        };
        amount / meter.per.amount() * meter.usd
    }

    fn or_lower(&mut self, name: &str, why: &str) -> Option<f64> {
        let known = fact(self.attempt, name);
        if known.is_none() {
            self.lower(why);
        }
        known
    }

    fn lower(&mut self, why: &str) {
        self.why.push(why.to_owned());
        self.bounds.push(Bound::Lower);
    }
}

fn gib_of(mib: u64) -> f64 {
    mib as f64 / 1024.0
}
