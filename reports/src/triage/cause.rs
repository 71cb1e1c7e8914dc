//! The cause of one failed attempt.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Component, Path};

use sandbox_bench_core::evidence::{Attempt, Failure};
use sandbox_bench_core::{Completion, FailureClass, OutputRef};
use schemars::JsonSchema;
use serde::Serialize;

use super::TYPED;
use super::patterns::matching;
use crate::render::one_line;

/// Why an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The environment is not what the task describes, or lacks what it needs.
    Environment,
    /// The sandbox did not start.
    Startup,
    /// The connection to the backend or the sandbox failed.
    Transport,
    /// A patch did not apply.
    Patch,
    /// A time limit passed.
    Timeout,
    /// The solver could not be run, or broke.
    Solver,
    /// The verifier's word cannot be read, and nothing says why.
    Verifier,
    /// Accepted and rejected alike, with the same solution.
    Flaky,
    /// The reference solution passes nowhere.
    Task,
    /// The verifier ran as it should, and said no.
    Rejected,
    /// The backend cannot run the task at all.
    Unavailable,
    /// The user ended the run.
    Interrupted,
}

impl Cause {
    /// Its name, as in the evidence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Startup => "startup",
            Self::Transport => "transport",
            Self::Patch => "patch",
            Self::Timeout => "timeout",
            Self::Solver => "solver",
            Self::Verifier => "verifier",
            Self::Flaky => "flaky",
            Self::Task => "task",
            Self::Rejected => "rejected",
            Self::Unavailable => "unavailable",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A cause and what decided it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Decided {
    /// The cause.
    pub cause: Cause,
    /// What decided: `class`, `completion`, `tests`, `verdict`, what the reference solution did, or a pattern's name.
    pub by: &'static str,
    /// The line that it is read from.
    pub evidence: Evidence,
}

/// A line of the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Evidence {
    /// The file, relative to the run directory.
    pub file: String,
    /// The line's number, from 1.
    pub line: u64,
    /// What it says, at most 160 characters.
    pub text: String,
}

/// Characters of a line that are shown.
const SHOWN: usize = 160;
/// Bytes of an output that are looked at.
const LOOKED_AT: u64 = 4 << 20;
/// Bytes of one of its lines.
const LINE: u64 = 16 << 10;

/// The cause of a failed attempt, in line `line` of the trials of the run in `directory`.
pub(super) fn decide(directory: &Path, line: u64, attempt: &Attempt) -> Decided {
    let typed = |cause, by, text: String| Decided {
        cause,
        by,
        evidence: Evidence { file: TYPED.to_owned(), line, text: shorten(&text) },
    };
    let message = |failure: Option<&Failure>| failure.map(|failure| failure.message.clone()).unwrap_or_default();
    let failure = attempt.failure.as_ref();
    let class = failure.map_or(FailureClass::Verifier, |failure| failure.class);
    let of_class = match class {
        FailureClass::Startup => Some(Cause::Startup),
        FailureClass::Transport => Some(Cause::Transport),
        FailureClass::Environment => Some(Cause::Environment),
        FailureClass::Solver => Some(Cause::Solver),
        FailureClass::Patch => Some(Cause::Patch),
        FailureClass::Timeout => Some(Cause::Timeout),
        FailureClass::Unavailable => Some(Cause::Unavailable),
        FailureClass::Interrupted => Some(Cause::Interrupted),
        // A sandbox that may live on changes nothing about the verdict, and a verdict may have many causes.
        FailureClass::Rejected | FailureClass::Verifier | FailureClass::Cleanup => None,
    };
    if let Some(cause) = of_class {
        return typed(cause, "class", format!("{class} in {}: {}", phase(failure), message(failure)));
    }
    match &attempt.verifier {
        Some(Completion::DeadlineExceeded { .. }) => {
            return typed(Cause::Timeout, "completion", "the verifier ran out of time".to_owned());
        }
        Some(Completion::OutOfMemory) => {
            return typed(Cause::Environment, "completion", "the verifier ran out of memory".to_owned());
        }
        _ => {}
    }
    let tests = attempt.verdict.as_ref().and_then(|verdict| verdict.tests.as_ref());
    if let Some(tests) = tests.filter(|tests| tests.failed > 0 && tests.passed > 0) {
        let first = tests.failing.first().map(|name| format!(", first {name}")).unwrap_or_default();
        return typed(
            Cause::Rejected,
            "tests",
            format!("{} tests failed, {} passed{first}", tests.failed, tests.passed),
        );
    }
    // The verifier's words first, then the solver's.
    let order = |name: &str| {
        ["verifier.stderr", "last.stderr", "verifier.", "last.", "solver."]
            .iter()
            .position(|start| name.starts_with(start))
    };
    let mut outputs: Vec<&OutputRef> = attempt.outputs.iter().filter(|output| order(&output.name).is_some()).collect();
    outputs.sort_by_key(|output| order(&output.name));
    if let Some(decided) = words(directory, &outputs) {
        return decided;
    }
    match class {
        FailureClass::Rejected => typed(Cause::Rejected, "verdict", message(failure)),
        _ => typed(Cause::Verifier, "class", message(failure)),
    }
}

fn phase(failure: Option<&Failure>) -> &'static str {
    failure.map_or("no phase", |failure| failure.phase.name())
}

/// The cause that words in the outputs tell: of all patterns that match somewhere, the first one of the table.
fn words(directory: &Path, outputs: &[&OutputRef]) -> Option<Decided> {
    let mut best: Option<(usize, Decided)> = None;
    for output in outputs {
        let plain = Path::new(&output.stored).components().all(|part| matches!(part, Component::Normal(_)));
        let Some(file) = plain.then(|| File::open(directory.join(&output.stored)).ok()).flatten() else { continue };
        let mut reader = BufReader::new(file.take(LOOKED_AT));
        let mut bytes = Vec::new();
        for number in 1.. {
            bytes.clear();
            match reader.by_ref().take(LINE).read_until(b'\n', &mut bytes) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&bytes);
            let Some((rank, pattern)) = matching(&text) else { continue };
            if best.as_ref().is_none_or(|(known, _)| rank < *known) {
                let evidence = Evidence { file: output.stored.clone(), line: number, text: shorten(&text) };
                best = Some((rank, Decided { cause: pattern.cause, by: pattern.name, evidence }));
            }
        }
    }
    best.map(|(_, decided)| decided)
}

fn shorten(text: &str) -> String {
    one_line(text).trim().chars().take(SHOWN).collect()
}
