//! SWE-smith: the parser of Python test runs, and the rule by which a task is resolved.
//!
//! Sources: swesmith 0.0.9, Python profile, verified by running it; swebench 4.0.3, resolution.

use std::collections::BTreeMap;

use sandbox_bench_core::TestCounts;

use super::MAX_FAILING;
use crate::task::SweSmith;

/// The status at the end of a test's line, as pytest prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// `PASSED`
    Passed,
    /// `XFAIL`: it failed as expected.
    ExpectedFailure,
    /// `FAILED`
    Failed,
    /// `ERROR`
    Error,
    /// `SKIPPED`
    Skipped,
}

/// The status of every test in the output of `pytest --verbose`: lines that begin with an id, blanks and a status, of
/// which anything may follow. A later line of the same test replaces an earlier one. Ids with blanks are never found.
#[must_use]
pub fn parse(output: &str) -> BTreeMap<String, Status> {
    output.split('\n').filter_map(line).collect()
}

fn line(line: &str) -> Option<(String, Status)> {
    let (id, rest) = line.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let statuses = [
        ("FAILED", Status::Failed),
        ("PASSED", Status::Passed),
        ("SKIPPED", Status::Skipped),
        ("ERROR", Status::Error),
        ("XFAIL", Status::ExpectedFailure),
    ];
    let (_, status) = statuses.into_iter().find(|(word, _)| rest.starts_with(word))?;
    (!id.is_empty()).then(|| (id.to_owned(), status))
}

/// How the expected tests of a task went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// True if every expected test passed. This decides.
    pub resolved: bool,
    /// What the official rule says, which leaves skipped tests out of the count and takes empty lists as passed. It
    /// differs from `resolved` only for such runs.
    pub official: bool,
    /// The expected tests counted; missing ones are failures.
    pub tests: TestCounts,
    /// Expected tests that do not appear in the output at all.
    pub missing: u64,
}

/// Compares a test run with what the task expects.
#[must_use]
pub fn resolve(task: &SweSmith, output: &str) -> Resolution {
    let statuses = parse(output);
    let mut tests = TestCounts::default();
    let mut missing = 0;
    for test in task.fail_to_pass.iter().chain(&task.pass_to_pass) {
        let counter = match statuses.get(test) {
            Some(Status::Passed | Status::ExpectedFailure) => &mut tests.passed,
            Some(Status::Skipped) => &mut tests.skipped,
            Some(Status::Failed | Status::Error) => &mut tests.failed,
            None => {
                missing += 1;
                &mut tests.failed
            }
        };
        *counter += 1;
        let passed = matches!(statuses.get(test), Some(Status::Passed | Status::ExpectedFailure));
        if !passed && tests.failing.len() < MAX_FAILING {
            tests.failing.push(test.clone());
        }
    }
    let resolved = tests.failed == 0 && tests.skipped == 0 && !task.fail_to_pass.is_empty();
    Resolution { resolved, official: tests.failed == 0, tests, missing }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn task(fail_to_pass: &[&str], pass_to_pass: &[&str]) -> SweSmith {
        let list = |tests: &[&str]| tests.iter().map(|&test| test.to_owned()).collect();
        SweSmith {
            bug_patch: String::new(),
            fail_to_pass: list(fail_to_pass),
            pass_to_pass: list(pass_to_pass),
            test_command: String::new(),
        }
    }

    #[test]
    fn lines_of_pytest() {
        let one = |text: &str| parse(text).into_iter().next();
        let found = |status| Some(("t.py::a".to_owned(), status));
        assert_eq!(one("t.py::a PASSED                 [ 50%]"), found(Status::Passed));
        assert_eq!(one("t.py::a  FAILED"), found(Status::Failed));
        assert_eq!(one("t.py::a XFAIL (why)"), found(Status::ExpectedFailure));
        assert_eq!(one("t.py::a SKIPPED (why)"), found(Status::Skipped));
        assert_eq!(one("t.py::a ERROR"), found(Status::Error));
        assert_eq!(one("t.py::a PASSEDxyz"), found(Status::Passed), "the status is a prefix");
        for nothing in
            ["t.py::a XPASS", "t.py::a RERUN", "t.py::a[x y] PASSED", "ERROR t.py::a", " t.py::a PASSED", "PASSED", ""]
        {
            assert_eq!(one(nothing), None, "{nothing:?}");
        }
        assert_eq!(
            one("\u{1b}[32mt.py::a PASSED").unwrap().0,
            "\u{1b}[32mt.py::a",
            "colour codes are part of the name"
        );
        assert_eq!(one("t.py::a PASSED\nt.py::a FAILED"), found(Status::Failed), "the later line counts");
    }

    #[test]
    fn every_expected_test_must_pass() {
        let task = task(&["a::f"], &["a::p"]);
        let resolved = |output: &str| resolve(&task, output).resolved;
        assert!(resolved("a::f PASSED\na::p XFAIL\na::other FAILED"));
        assert!(!resolved("a::f PASSED\na::p FAILED"));
        assert!(!resolved("a::f PASSED\na::p ERROR"));
        let missing = resolve(&task, "a::f PASSED");
        assert_eq!((missing.resolved, missing.missing, missing.tests.failed), (false, 1, 1));
        assert_eq!(missing.tests.failing, ["a::p"]);
        assert!(!resolve(&task, "").resolved);
    }

    #[test]
    fn a_skipped_expected_test_is_a_failure_and_differs_from_the_official_rule() {
        let result = resolve(&task(&["a::f"], &[]), "a::f SKIPPED (no reason)");
        assert_eq!((result.resolved, result.official), (false, true));
        assert_eq!(result.tests.skipped, 1);
    }

    #[test]
    fn empty_lists_resolve_nothing() {
        let result = resolve(&task(&[], &[]), "");
        assert_eq!((result.resolved, result.official), (false, true));
    }
}
