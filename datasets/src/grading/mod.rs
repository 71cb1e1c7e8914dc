//! Reading a verifier's word: reward files, and the output of test runs.
//!
//! Pure functions over text and bytes. Each keeps the rules of the harness that the task was written for, except where
//! those accept a run that shows nothing: zero tests are never a pass, and a skipped test that was expected to pass is a
//! failure.

pub mod reward;
pub mod swesmith;
pub mod terminal_bench;

use std::collections::BTreeMap;

use sandbox_bench_core::TestCounts;

/// Most failing tests that are named in [`TestCounts::failing`].
const MAX_FAILING: usize = 50;

/// How one test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestStatus {
    /// It passed, or failed as expected.
    Passed,
    /// It failed, or could not run.
    Failed,
    /// It did not run.
    Skipped,
}

/// Counts what became of each test.
#[must_use]
pub fn counts(statuses: &BTreeMap<String, TestStatus>) -> TestCounts {
    let count = |wanted| statuses.values().filter(|&&status| status == wanted).count() as u64;
    TestCounts {
        passed: count(TestStatus::Passed),
        failed: count(TestStatus::Failed),
        skipped: count(TestStatus::Skipped),
        failing: statuses
            .iter()
            .filter(|(_, status)| **status == TestStatus::Failed)
            .map(|(name, _)| name.clone())
            .take(MAX_FAILING)
            .collect(),
    }
}
