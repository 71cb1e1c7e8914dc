//! Common Test Report Format: the counts of a verifier's `ctrf.json`.

use sandbox_bench_core::TestCounts;
use serde::Deserialize;

#[derive(Deserialize)]
struct Report {
    results: Results,
}

#[derive(Deserialize)]
struct Results {
    summary: Summary,
    #[serde(default)]
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Summary {
    #[serde(default)]
    passed: u64,
    #[serde(default)]
    failed: u64,
    #[serde(default)]
    skipped: u64,
    #[serde(default)]
    pending: u64,
    #[serde(default)]
    other: u64,
}

#[derive(Deserialize)]
struct Test {
    name: String,
    status: String,
}

/// The counts of a report; none if the bytes are no report. A test without a clear end (`other`) counts as failed.
#[must_use]
pub fn counts(bytes: &[u8]) -> Option<TestCounts> {
    let Report { results } = serde_json::from_slice(bytes).ok()?;
    let Summary { passed, failed, skipped, pending, other } = results.summary;
    let failing = results.tests.into_iter().filter(|test| test.status == "failed").map(|test| test.name);
    Some(TestCounts {
        passed,
        failed: failed.saturating_add(other),
        skipped: skipped.saturating_add(pending),
        failing: failing.take(50).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    #[test]
    fn counts_and_names_are_read_and_anything_else_is_no_report() {
        let report = br#"{"results":{"tool":{"name":"pytest"},"summary":{"tests":3,"passed":1,"failed":1,"skipped":1},
            "tests":[{"name":"a","status":"passed"},{"name":"b","status":"failed"}]}}"#;
        let counts = super::counts(report).unwrap();
        assert_eq!((counts.passed, counts.failed, counts.skipped, counts.total()), (1, 1, 1, 3));
        assert_eq!(counts.failing, ["b"]);
        for bad in [&b""[..], b"[]", b"{}", b"\xff", br#"{"results":{"summary":{"passed":-1}}}"#] {
            assert!(super::counts(bad).is_none());
        }
    }
}
