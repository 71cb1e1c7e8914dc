//! The verdict: what the verifier left, read side by side, and what of it decides.
//!
//! Reward file, exit code and parsed tests are all recorded. The reward decides where there is one; without one, the
//! exit code does; a terminal-bench 1 or SWE-smith task is decided by its tests. A run of zero tests is never a pass,
//! and facts that contradict the decision are listed, not averaged.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use sandbox_bench_core::evidence::Failure;
use sandbox_bench_core::{
    AgentEnd, Completion, Decision, FailureClass, Phase, Stage, StreamReport, TestCounts, Verdict,
};
use sandbox_bench_datasets::grading::{self, reward, swesmith, terminal_bench};
use sandbox_bench_datasets::task::{SweSmith, TestParser, Verifier};

use super::bench::Bench;
use super::context::TRANSFER_LIMIT;
use super::recorder::Ran;
use super::stop::Stop;
use super::verify::PRESEEDED;
use super::{ctrf, recorder};
use crate::outputs::{self, CapturedStream};

/// Most bytes of logs that are brought home.
const LOGS_LIMIT: u64 = 256 << 20;

/// Reads the verdict.
pub async fn grade(bench: &Bench<'_>, ran: &Ran) -> Result<Verdict, Stop> {
    match &bench.task.verifier {
        Verifier::Harbor { .. } => harbor(bench, ran).await,
        Verifier::TerminalBench1 { parser, .. } => Ok(parsed(*parser, &output(bench, ran)?, ran)),
        Verifier::SweSmith(instance) => Ok(resolved(instance, &output(bench, ran)?, ran)),
    }
}

/// The failure that a verdict means; none for acceptance.
#[must_use]
pub fn failure(verdict: &Verdict, solver: Option<&Completion>, agent: Option<AgentEnd>) -> Option<Failure> {
    let words = verdict.disagreements.join("; ");
    let failed = |class, message: String| {
        Some(Failure { class, phase: Phase::Verify, message, error_kind: None, retryable: false })
    };
    match verdict.decision {
        Decision::Accepted => None,
        Decision::Undecided => failed(FailureClass::Verifier, format!("the verifier gave no readable word: {words}")),
        Decision::Rejected => match solver {
            Some(Completion::DeadlineExceeded { .. }) => {
                failed(FailureClass::Timeout, format!("rejected after the solver ran out of time{}", tests(verdict)))
            }
            None if agent.is_some_and(|end| end != AgentEnd::Finished) => {
                let end = agent.map(AgentEnd::name).unwrap_or_default();
                failed(FailureClass::Solver, format!("rejected; the agent ended with {end}{}", tests(verdict)))
            }
            Some(completion) if !completion.success() => {
                failed(FailureClass::Solver, format!("rejected; the solver ended with {completion}{}", tests(verdict)))
            }
            _ => failed(FailureClass::Rejected, format!("rejected by {}{}", verdict.decided_by, tests(verdict))),
        },
    }
}

fn tests(verdict: &Verdict) -> String {
    let total = verdict.tests.as_ref().map_or(0, TestCounts::total);
    if verdict.decided_by == "tests" && total == 0 {
        return " (no tests ran)".into();
    }
    let Some(tests) = &verdict.tests else { return String::new() };
    if tests.total() == 0 {
        return " (no tests ran)".into();
    }
    let failing: Vec<&str> = tests.failing.iter().take(3).map(String::as_str).collect();
    let names = if failing.is_empty() { String::new() } else { format!(": {}", failing.join(", ")) };
    format!(" ({} of {total} tests failed{names})", tests.failed)
}

/// A verdict without facts.
fn verdict(decision: Decision, decided_by: &str, ran: &Ran) -> Verdict {
    Verdict {
        decision,
        decided_by: decided_by.into(),
        rewards: Default::default(),
        exit_code: ran.report.completion.exit_code(),
        tests: None,
        disagreements: Vec::new(),
        preseeded_reward: false,
    }
}

fn parsed(parser: TestParser, output: &str, ran: &Ran) -> Verdict {
    match terminal_bench::parse(parser, output) {
        Ok(statuses) => {
            let accepted = terminal_bench::accepts(&statuses);
            let mut verdict = verdict(decision(accepted), "tests", ran);
            if statuses.is_empty() {
                verdict.disagreements.push("the test run shows no tests".into());
            }
            verdict.tests = Some(grading::counts(&statuses));
            note_exit_code(&mut verdict);
            note_truncation(&mut verdict, &ran.report.stdout);
            verdict
        }
        Err(error) => {
            let mut verdict = verdict(Decision::Undecided, "tests", ran);
            verdict.disagreements.push(format!(
                "{error}; it ended with {}: {}",
                ran.report.completion,
                ran.last_words()
            ));
            verdict
        }
    }
}

fn resolved(instance: &SweSmith, output: &str, ran: &Ran) -> Verdict {
    let resolution = swesmith::resolve(instance, output);
    let expected = (instance.fail_to_pass.len() + instance.pass_to_pass.len()) as u64;
    let nothing_ran = resolution.missing == expected;
    let decided = if nothing_ran { Decision::Undecided } else { decision(resolution.resolved) };
    let mut verdict = verdict(decided, "tests", ran);
    if nothing_ran {
        let words = ran.last_words();
        verdict
            .disagreements
            .push(format!("none of the {expected} expected tests ran: {}: {words}", ran.report.completion));
    } else if resolution.official != resolution.resolved {
        verdict
            .disagreements
            .push(format!("the official rule, which leaves skipped tests out, says {}", resolution.official));
    }
    verdict.tests = Some(resolution.tests);
    note_truncation(&mut verdict, &ran.report.stdout);
    verdict
}

async fn harbor(bench: &Bench<'_>, ran: &Ran) -> Result<Verdict, Stop> {
    let logs = bench.context.packs.scratch(&format!("{}", uuid::Uuid::now_v7()));
    let result = collect(bench, &logs).await.map(|()| {
        let mut verdict = from_files(&logs.join("logs/verifier"), ran);
        for told in &mut verdict.disagreements {
            *told = bench.context.outputs.secrets().hidden(told);
        }
        verdict
    });
    let _ = fs::remove_dir_all(&logs);
    result
}

/// Brings `/logs` home, keeps it as an output, and unpacks it to `logs`.
async fn collect(bench: &Bench<'_>, logs: &Path) -> Result<(), Stop> {
    let tar = logs.with_extension("tar");
    let call = bench.calls.call(Stage::Verify, TRANSFER_LIMIT);
    let found = bench.rec.download(Phase::Collect, "logs", bench.sandbox(), &call, ("/logs", &tar, LOGS_LIMIT)).await?;
    if found.is_none() {
        return Ok(());
    }
    let keep = || -> std::io::Result<()> {
        let limits = outputs::Limits { bytes: LOGS_LIMIT, members: 100_000 };
        let unpacked = outputs::unpack_safely(&tar, logs, limits)?;
        for skipped in &unpacked.skipped {
            bench.rec.warn(format!("left out of the logs: {}: {}", skipped.name, skipped.why));
        }
        if unpacked.files > 0 {
            let store = &bench.context.outputs;
            store.secrets().overwrite_file(&tar)?;
            bench.rec.keep(store.file("logs", Some("/logs"), &tar, "application/x-tar")?);
        }
        Ok(())
    };
    let kept = keep();
    let _ = fs::remove_file(&tar);
    kept.map_err(Stop::evidence)
}

fn from_files(directory: &Path, ran: &Ran) -> Verdict {
    let read = |name: &str| read_bounded(&directory.join(name));
    let (json, text) = (read("reward.json"), read("reward.txt"));
    let mut verdict = match reward::read(json.as_deref(), text.as_deref()) {
        Ok(reward) => {
            let mut verdict = verdict(reward::decide(&reward.rewards), "reward", ran);
            if verdict.decision == Decision::Undecided {
                let keys: Vec<&str> = reward.rewards.keys().map(String::as_str).collect();
                verdict.disagreements.push(format!("the rewards {} disagree with each other", keys.join(", ")));
            }
            verdict.rewards = reward.rewards;
            verdict.disagreements.extend(reward.disagreement);
            verdict
        }
        Err(reward::RewardError::Missing) => by_exit_code(ran),
        Err(error) => {
            let mut verdict = verdict(Decision::Undecided, "reward", ran);
            verdict.disagreements.push(error.to_string());
            verdict
        }
    };
    verdict.preseeded_reward = directory.join(PRESEEDED).exists();
    if verdict.preseeded_reward {
        verdict.disagreements.push("a reward was there before the verifier ran; it was removed".into());
    }
    verdict.tests = read("ctrf.json").and_then(|bytes| ctrf::counts(&bytes));
    let no_tests = match &verdict.tests {
        Some(tests) => tests.total() == 0,
        None => shows_no_tests(&ran.stdout.tail),
    };
    if verdict.decision == Decision::Accepted && no_tests {
        verdict.decision = Decision::Rejected;
        verdict.decided_by = "tests".into();
        verdict.disagreements.push("the verifier ran no tests, which is not a pass".into());
    }
    if verdict.decided_by == "reward" {
        note_exit_code(&mut verdict);
        note_tests(&mut verdict);
    }
    verdict
}

/// Without a reward file the exit code decides, unless it says that the verifier itself could not run.
fn by_exit_code(ran: &Ran) -> Verdict {
    let completion = &ran.report.completion;
    let mut verdict = match completion {
        Completion::Exited { code: 126 | 127 } => verdict(Decision::Undecided, "exit_code", ran),
        Completion::Exited { code } => verdict(decision(*code == 0), "exit_code", ran),
        _ => verdict(Decision::Undecided, "exit_code", ran),
    };
    let words = if verdict.decision == Decision::Undecided { format!(": {}", ran.last_words()) } else { String::new() };
    verdict.disagreements.push(format!("the verifier wrote no reward file; it ended with {completion}{words}"));
    verdict
}

fn decision(accepted: bool) -> Decision {
    if accepted { Decision::Accepted } else { Decision::Rejected }
}

/// An acceptance in spite of an error is doubtful. A rejection with exit code 0 is not: a script that wrote its word into
/// the reward file has done its work.
fn note_exit_code(verdict: &mut Verdict) {
    match verdict.exit_code {
        Some(code) if code != 0 && verdict.decision == Decision::Accepted => {
            verdict.disagreements.push(format!("the verifier's exit code is {code}"));
        }
        _ => {}
    }
}

fn note_tests(verdict: &mut Verdict) {
    if let Some(tests) = &verdict.tests
        && (tests.failed == 0) != (verdict.decision == Decision::Accepted)
        && verdict.decision != Decision::Undecided
    {
        verdict.disagreements.push(match tests.total() {
            0 => "no tests ran".into(),
            total => format!("{} of {total} tests failed", tests.failed),
        });
    }
}

fn note_truncation(verdict: &mut Verdict, stream: &StreamReport) {
    if stream.truncated() {
        verdict
            .disagreements
            .push("a part of the verifier's output is missing; tests named there are not counted".into());
    }
}

/// pytest's words for a run without tests.
fn shows_no_tests(output: &str) -> bool {
    output.lines().rev().take(20).any(|line| line.contains("no tests ran") || line.starts_with("collected 0 items"))
}

/// A file of the verifier, one byte more than the largest that is accepted at most.
fn read_bounded(path: &Path) -> Option<Vec<u8>> {
    if !fs::symlink_metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(reward::MAX_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The whole kept standard output.
fn output(bench: &Bench<'_>, ran: &Ran) -> Result<String, Stop> {
    let CapturedStream { output: Some(output), .. } = &ran.stdout else { return Ok(String::new()) };
    let path = bench.context.directory.join(&output.stored);
    let bytes = File::open(path)
        .and_then(|file| {
            let mut bytes = Vec::new();
            file.take(recorder::OUTPUT_LIMIT).read_to_end(&mut bytes).map(|_| bytes)
        })
        .map_err(Stop::evidence)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sandbox_bench_core::ExecReport;

    fn ran(code: i32, stdout: &str) -> Ran {
        let stream = |tail: &str| CapturedStream { output: None, tail: tail.into() };
        Ran {
            step: 1,
            report: ExecReport::bare(Completion::Exited { code }),
            stdout: stream(stdout),
            stderr: stream(""),
        }
    }

    fn judged(files: &[(&str, &str)], code: i32, stdout: &str) -> Verdict {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(dir.path().join(name), content).unwrap();
        }
        from_files(dir.path(), &ran(code, stdout))
    }

    #[test]
    fn the_reward_decides_and_a_contradicting_exit_code_is_told() {
        let accepted = judged(&[("reward.txt", "1\n")], 1, "");
        assert_eq!((accepted.decision, accepted.decided_by.as_str()), (Decision::Accepted, "reward"));
        assert_eq!(accepted.disagreements, ["the verifier's exit code is 1"]);
        let rejected = judged(&[("reward.json", "{\"reward\": 0.5}")], 0, "");
        assert_eq!((rejected.decision, rejected.disagreements), (Decision::Rejected, Vec::new()));
    }

    #[test]
    fn without_a_reward_the_exit_code_decides_unless_the_verifier_could_not_run() {
        assert_eq!(judged(&[], 0, "").decision, Decision::Accepted);
        assert_eq!(judged(&[], 3, "").decision, Decision::Rejected);
        assert_eq!(judged(&[], 127, "").decision, Decision::Undecided);
        assert_eq!(failure(&judged(&[], 127, ""), None, None).unwrap().class, FailureClass::Verifier);
    }

    #[test]
    fn an_unreadable_reward_is_not_a_rejection() {
        for bad in ["", " \n", "nan", "1_0"] {
            assert_eq!(judged(&[("reward.txt", bad)], 0, "").decision, Decision::Undecided, "{bad:?}");
        }
    }

    #[test]
    fn zero_tests_are_not_a_pass() {
        let ctrf = r#"{"results":{"summary":{"tests":0,"passed":0,"failed":0}}}"#;
        for (files, stdout) in [
            (vec![("reward.txt", "1"), ("ctrf.json", ctrf)], ""),
            (vec![("reward.txt", "1")], "= no tests ran in 0.01s ="),
        ] {
            let verdict = judged(&files, 0, stdout);
            assert_eq!((verdict.decision, verdict.decided_by.as_str()), (Decision::Rejected, "tests"));
        }
    }

    #[test]
    fn a_rejection_after_tests_that_could_not_be_loaded_says_so() {
        let ctrf = r#"{"results":{"summary":{"tests":0,"passed":0,"failed":0}}}"#;
        let verdict = judged(&[("reward.txt", "0"), ("ctrf.json", ctrf)], 1, "collected 0 items / 1 error");
        assert_eq!((verdict.decision, verdict.decided_by.as_str()), (Decision::Rejected, "reward"));
        assert_eq!(verdict.disagreements, ["no tests ran"]);
        assert_eq!(failure(&verdict, None, None).unwrap().message, "rejected by reward (no tests ran)");
    }

    #[test]
    fn a_preseeded_reward_is_reported() {
        assert!(judged(&[(PRESEEDED, ""), ("reward.txt", "0")], 1, "").preseeded_reward);
    }

    #[test]
    fn a_solver_that_ran_out_of_time_makes_the_rejection_a_timeout() {
        let rejected = judged(&[("reward.txt", "0")], 1, "");
        let late = Completion::DeadlineExceeded { tree_killed: sandbox_bench_core::TreeKill::Yes };
        assert_eq!(failure(&rejected, Some(&late), None).unwrap().class, FailureClass::Timeout);
        assert_eq!(
            failure(&rejected, Some(&Completion::Exited { code: 2 }), None).unwrap().class,
            FailureClass::Solver
        );
        assert_eq!(failure(&rejected, None, None).unwrap().class, FailureClass::Rejected);
        let of_agent = |end| failure(&rejected, None, Some(end)).unwrap().class;
        assert_eq!(of_agent(AgentEnd::Finished), FailureClass::Rejected);
        assert_eq!(of_agent(AgentEnd::TurnLimit), FailureClass::Solver);
    }
}
