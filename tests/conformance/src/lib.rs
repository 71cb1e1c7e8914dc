//! The contract of [`sandbox_bench_core`] as executable behaviours.
//!
//! A behaviour is one promise of the contract, written as a function that uses a backend as the runner would and says
//! what a user would notice if the promise were broken. [`BEHAVIOURS`] lists them all, each with the capability that
//! selects it; [`run_adapter`] is the `main` of a test target that runs them against one [`Adapter`]. Whatever a
//! behaviour made must be gone afterwards, or it fails.
//!
//! An adapter is done when its target passes and every line that says `skipped` is a fact about its backend.

pub mod adapter;
pub mod behaviours;
pub mod check;
pub mod cli;
pub mod harness;
pub mod run;
pub mod table;
pub mod tree;

pub use adapter::{Adapter, Pace};
pub use check::{Check, Stop};
pub use cli::{Case, run_cases};
pub use harness::{Handle, Harness, Ran};
pub use run::{Outcome, run_adapter, run_behaviour};
pub use table::{BEHAVIOURS, Behaviour};
