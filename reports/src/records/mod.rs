//! Evidence that can be read on its own: a receipt for each command ([`CommandReceipt`], `receipts.jsonl`) and a report for each case
//! ([`CaseReport`], `cases.jsonl`).
//!
//! A case is one attempt at one trial. Its report says what was expected, what was observed, who compared the two and what
//! was decided; its receipts say what was run in which sandbox and how that ended. The two are different facts: an exit code
//! of 0 is no acceptance. Neither holds any output of a command.
//!
//! Both follow from the journal and can be rebuilt from it at any time.

mod assemble;
mod case;
mod receipt;

#[cfg(test)]
mod tests;

pub use assemble::Records;
pub use case::{CaseFailure, CaseReport, Evaluator};
pub use receipt::CommandReceipt;

/// One [`CommandReceipt`] per line.
pub const RECEIPTS: &str = "receipts.jsonl";
/// One [`CaseReport`] per line.
pub const CASES: &str = "cases.jsonl";
