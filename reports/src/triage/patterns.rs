//! Words that tell a cause, where nothing typed does. Earlier ones win: what kept the tests from running explains their
//! failure, and not the other way round.

use super::Cause;

/// A pattern: all of its words must be in one line.
pub(super) struct Pattern {
    pub(super) name: &'static str,
    pub(super) cause: Cause,
    /// Alternatives, each of words that must all be there.
    any: &'static [&'static [&'static str]],
}

const PATTERNS: [Pattern; 11] = [
    Pattern {
        name: "words: time limit",
        cause: Cause::Timeout,
        any: &[&["ommand timed out after"], &["imed out after", "seconds"], &["Timeout >"]],
    },
    Pattern {
        name: "words: stream or service lost",
        cause: Cause::Transport,
        any: &[
            &["stream ended early"],
            &["Stdio stream"],
            &["RST_STREAM"],
            &["StatusCode.UNAVAILABLE"],
            &["status code 410"],
            &["Deadline exceeded", "grpc"],
            &["socket hang up"],
        ],
    },
    Pattern {
        name: "words: patch",
        cause: Cause::Patch,
        any: &[
            &["patch does not apply"],
            &["nreversed", "patch detected"],
            &["Hunk #", "FAILED"],
            &["can't find file to patch"],
            &["saving rejects to file"],
            &["patch failed:"],
        ],
    },
    Pattern {
        name: "words: no space or memory",
        cause: Cause::Environment,
        any: &[&["No space left on device"], &["Errno 28"], &["Cannot allocate memory"], &["MemoryError"]],
    },
    Pattern {
        name: "words: package not to be had",
        cause: Cause::Environment,
        any: &[
            &["No matching distribution found"],
            &["Could not find a version that satisfies"],
            &["Unable to locate package"],
            &["Failed to fetch", "404"],
            &["bench-install-cmd-failed"],
        ],
    },
    Pattern {
        name: "words: no network",
        cause: Cause::Environment,
        any: &[
            &["Temporary failure in name resolution"],
            &["Could not resolve host"],
            &["Temporary failure resolving"],
            &["Network is unreachable"],
        ],
    },
    Pattern {
        name: "words: program missing",
        cause: Cause::Environment,
        any: &[
            &["command not found"],
            &[": not found", "sh: "],
            &["exec format error"],
            &["cannot open shared object file"],
            &["No module named"],
        ],
    },
    Pattern {
        name: "words: tests not collected",
        cause: Cause::Environment,
        any: &[&["ERROR collecting"], &["errors during collection"], &["error during collection"], &["ImportError"]],
    },
    Pattern {
        name: "words: killed",
        cause: Cause::Environment,
        any: &[&["Killed", "line "], &["Out of memory: Killed"]],
    },
    Pattern { name: "words: no tests", cause: Cause::Environment, any: &[&["no tests ran"], &["collected 0 items"]] },
    Pattern {
        name: "words: tests failed",
        cause: Cause::Rejected,
        any: &[
            &["FAILED ", "::"],
            &[" failed", " in ", "s"],
            &["test result: FAILED"],
            &["--- FAIL:"],
            &["Tests:", "failed"],
        ],
    },
];

/// The first pattern of the table that the line matches, with its place.
pub(super) fn matching(line: &str) -> Option<(usize, &'static Pattern)> {
    let fits = |pattern: &&Pattern| pattern.any.iter().any(|words| words.iter().all(|word| line.contains(word)));
    PATTERNS.iter().enumerate().find(|(_, pattern)| fits(pattern))
}
