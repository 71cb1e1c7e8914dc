//! What sandboxes cost, and how that is known.
//!
//! A cost is **measured** only if the backend itself said what it charges. From a dated [`RateCard`] it is **estimated**,
//! and says if it is an upper or lower bound and why. Otherwise it is **unknown**, with the reason; missing is never
//! zero. What a model costs that solves the task is no part of it.
//!
//! An adapter says what bears on cost in [`Observation::cost_evidence`](sandbox_bench_core::Observation), under the
//! names of [`facts`].

mod card;
pub mod facts;
mod price;
mod tally;

#[cfg(test)]
mod tests;

pub use card::{Billed, Meter, RateCard, Rates, RatesError, Seconds, Unit};
pub use price::{Bound, Cost, price};
pub use tally::{CellCost, CostTally};
