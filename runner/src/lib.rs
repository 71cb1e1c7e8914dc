//! The runner's library half: what the binary `sandbox-bench` is made of.

pub mod journal;
pub mod outputs;
