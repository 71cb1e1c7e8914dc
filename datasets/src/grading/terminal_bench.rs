//! The test parsers of terminal-bench 1.
//!
//! Source: terminal-bench 0.2.18, parsers; verified by running them.

use std::collections::BTreeMap;

use super::TestStatus;
use crate::task::TestParser;

/// The output has no test results in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the output of the tests has no {missing}")]
pub struct ParseError {
    /// What was looked for.
    pub missing: &'static str,
}

/// The status of every test in the output.
///
/// # Errors
/// When the output does not have the parser's marks: then nothing is known, which is not a rejection.
pub fn parse(parser: TestParser, output: &str) -> Result<BTreeMap<String, TestStatus>, ParseError> {
    match parser {
        TestParser::Pytest => pytest(output),
        TestParser::Swebench => marked(output, "SWEBench results starts here", "SWEBench results ends here"),
        TestParser::Sweperf => marked(output, "SWE-Perf results starts here", "SWE-Perf results ends here"),
        TestParser::Mlebench => Ok(mlebench(output)),
        TestParser::Swelancer => Ok(swelancer(output)),
    }
}

/// True if the tests accept the task: at least one passed and none failed. (The original also accepts an empty list.)
#[must_use]
pub fn accepts(statuses: &BTreeMap<String, TestStatus>) -> bool {
    let has = |wanted| statuses.values().any(|&status| status == wanted);
    has(TestStatus::Passed) && !has(TestStatus::Failed)
}

fn pytest(output: &str) -> Result<BTreeMap<String, TestStatus>, ParseError> {
    let summary = summary(output).ok_or(ParseError { missing: "pytest summary (short test summary info)" })?;
    Ok(summary.lines().filter_map(summary_line).collect())
}

/// What follows the first `== short test summary info ==`, in any letter case.
fn summary(output: &str) -> Option<&str> {
    const TITLE: &str = "short test summary info";
    let lower = output.to_ascii_lowercase();
    lower.match_indices(TITLE).find_map(|(start, _)| {
        let before = lower.get(..start)?.trim_end();
        let after = lower.get(start + TITLE.len()..)?.trim_start();
        let rest = after.trim_start_matches('=');
        let titled = before.ends_with('=') && rest.len() < after.len();
        titled.then(|| output.get(output.len() - rest.len()..))?
    })
}

fn summary_line(line: &str) -> Option<(String, TestStatus)> {
    // Only the text after the last ` - ` is a description; names with ` - ` in them lose a part, as in the original.
    let line = if line.starts_with("FAILED") { line.rsplit_once(" - ").map_or(line, |(name, _)| name) } else { line };
    let (status, path) = line.trim_start().split_once(char::is_whitespace)?;
    let status = match status.trim_matches(':') {
        "PASSED" | "XFAIL" => TestStatus::Passed,
        "SKIPPED" => TestStatus::Skipped,
        "FAILED" | "XPASS" | "ERROR" => TestStatus::Failed,
        _ => return None,
    };
    let path = path.trim();
    let name = path.split_once("::").map_or(path, |(_, name)| name);
    (!name.is_empty()).then(|| (name.to_owned(), status))
}

/// One result between two marks: `PASSED`, or anything else.
fn marked(output: &str, start: &'static str, end: &'static str) -> Result<BTreeMap<String, TestStatus>, ParseError> {
    let (_, after) = output.split_once(start).ok_or(ParseError { missing: start })?;
    if !output.contains(end) {
        return Err(ParseError { missing: end });
    }
    let block = after.rsplit_once(end).map_or(after, |(block, _)| block);
    Ok(single("tests", block.trim() == "PASSED"))
}

fn mlebench(output: &str) -> BTreeMap<String, TestStatus> {
    let after = output.split_once("MLEBench results starts here").map_or(output, |(_, after)| after);
    let block = after.rsplit_once("MLEBench results ends here").map_or(after, |(block, _)| block);
    single("tests", block.trim() == "ALL TESTS PASSED")
}

fn swelancer(output: &str) -> BTreeMap<String, TestStatus> {
    let output = output.to_lowercase();
    let passed = output.contains("swe lancer success")
        || (!output.contains("swe lancer failure") && output.contains("user_tool") && output.contains("completed"));
    single("swelancer_task", passed)
}

fn single(name: &str, passed: bool) -> BTreeMap<String, TestStatus> {
    BTreeMap::from([(name.to_owned(), if passed { TestStatus::Passed } else { TestStatus::Failed })])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn statuses(summary: &str) -> Vec<(String, TestStatus)> {
        parse(TestParser::Pytest, &format!("...\n==== short test summary info ====\n{summary}"))
            .unwrap()
            .into_iter()
            .collect()
    }

    fn one(line: &str) -> Option<(String, TestStatus)> {
        statuses(line).pop()
    }

    #[test]
    fn pytest_lines() {
        let named = |name: &str, status| Some((name.to_owned(), status));
        assert_eq!(one("PASSED tests/test_a.py::test_x"), named("test_x", TestStatus::Passed));
        assert_eq!(one("FAILED t.py::test_x - assert 1 == 2"), named("test_x", TestStatus::Failed));
        assert_eq!(one("ERROR: t.py::test_x"), named("test_x", TestStatus::Failed));
        assert_eq!(one("ERROR t.py"), named("t.py", TestStatus::Failed));
        assert_eq!(one("XPASS t.py::C::test_x"), named("C::test_x", TestStatus::Failed));
        assert_eq!(one("XFAIL t.py::test_x"), named("test_x", TestStatus::Passed));
        assert_eq!(one("SKIPPED [1] t.py:3: why"), named("[1] t.py:3: why", TestStatus::Skipped));
        for nothing in ["", "PASSED", "passed t.py::x", "PASSEDx t.py::x", "1 passed in 0.1s", "PASSED t.py::"] {
            assert_eq!(one(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn only_one_description_is_cut_off() {
        assert_eq!(one("FAILED t.py::test_x[a - b] - boom").unwrap().0, "test_x[a - b]");
        assert_eq!(one("FAILED t.py::test_x[a - b]").unwrap().0, "test_x[a");
        assert_eq!(one("PASSED t.py::test_x[a - b]").unwrap().0, "test_x[a - b]");
    }

    #[test]
    fn the_last_line_of_a_name_counts() {
        assert_eq!(statuses("FAILED a.py::test_x\nPASSED b.py::test_x\n"), [("test_x".to_owned(), TestStatus::Passed)]);
    }

    #[test]
    fn the_summary_is_found_in_any_case_and_only_with_its_bars() {
        assert!(parse(TestParser::Pytest, "=\tShort Test SUMMARY info =\nPASSED a::b").is_ok());
        for none in ["", "short test summary info", "== short test summary info", "short test summary info =="] {
            assert!(parse(TestParser::Pytest, none).is_err(), "{none:?}");
        }
    }

    #[test]
    fn zero_tests_are_no_pass() {
        let empty = parse(TestParser::Pytest, "== short test summary info ==\n").unwrap();
        assert!(empty.is_empty() && !accepts(&empty));
        assert!(!accepts(&statuses("SKIPPED a::b").into_iter().collect()));
        assert!(accepts(&statuses("PASSED a::b\nSKIPPED a::c").into_iter().collect()));
        assert!(!accepts(&statuses("PASSED a::b\nFAILED a::c").into_iter().collect()));
    }

    #[test]
    fn marks() {
        let passes = |parser, output: &str| parse(parser, output).map(|statuses| accepts(&statuses));
        let swebench = |text: &str| format!("x\nSWEBench results starts here\n{text}\nSWEBench results ends here\ny");
        assert_eq!(passes(TestParser::Swebench, &swebench(" PASSED ")), Ok(true));
        assert_eq!(passes(TestParser::Swebench, &swebench("FAILED")), Ok(false));
        assert!(passes(TestParser::Swebench, "PASSED").is_err());
        assert!(passes(TestParser::Swebench, "SWEBench results starts here PASSED").is_err());
        assert_eq!(
            passes(TestParser::Sweperf, "SWE-Perf results starts herePASSEDSWE-Perf results ends here"),
            Ok(true)
        );
        assert!(passes(TestParser::Sweperf, &swebench("PASSED")).is_err());
        let mlebench = "MLEBench results starts here\nALL TESTS PASSED\nMLEBench results ends here";
        assert_eq!(passes(TestParser::Mlebench, mlebench), Ok(true));
        assert_eq!(passes(TestParser::Mlebench, "no marks"), Ok(false));
        assert_eq!(passes(TestParser::Swelancer, "… SWE Lancer SUCCESS; swe lancer failure"), Ok(true));
        assert_eq!(passes(TestParser::Swelancer, "swe lancer failure; user_tool completed"), Ok(false));
        assert_eq!(passes(TestParser::Swelancer, "User_Tool has Completed"), Ok(true));
        assert_eq!(passes(TestParser::Swelancer, ""), Ok(false));
    }
}
