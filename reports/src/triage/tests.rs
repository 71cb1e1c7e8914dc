#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use sandbox_bench_core::evidence::{Attempt, Event};
use sandbox_bench_core::{Completion, Condition, Digest, FailureClass};

use super::{Baseline, BaselineError, Cause, Triage, learn, text, triage};
use crate::cost::RateCard;
use crate::derived::write_derived;
use crate::samples::{self, attempt, events, failed, finished, manifest, started};

/// A run with this solver, whose outputs say `words`.
fn run(directory: &Path, name: &str, solver: &str, words: &str, attempts: Vec<Attempt>) -> PathBuf {
    let directory = directory.join(name);
    let journal: Vec<Event> =
        [started()].into_iter().chain(attempts.into_iter().flat_map(events)).chain([finished()]).collect();
    fs::create_dir_all(directory.join("outputs/ab")).unwrap();
    fs::write(directory.join("outputs/ab/cd"), words).unwrap();
    let mut manifest = manifest(&[Condition::Cold], 3);
    (manifest.solver, manifest.run) = (solver.into(), name.into());
    samples::write_run(&directory, &manifest, &journal);
    write_derived(&directory, &RateCard::named(None).unwrap()).unwrap();
    directory
}

fn trial(backend: &str, number: u64) -> Attempt {
    let mut attempt = attempt(backend, Condition::Cold, number);
    attempt.task_digest = Digest::of(attempt.trial.task.as_bytes());
    attempt
}

/// A rejection of which nothing is known but the verifier's word.
fn rejected(backend: &str, number: u64) -> Attempt {
    let mut attempt = failed(trial(backend, number), FailureClass::Rejected);
    attempt.verdict.as_mut().unwrap().tests = None;
    attempt
}

fn of(solver: &str, words: &str, attempts: Vec<Attempt>) -> Triage {
    let place = tempfile::tempdir().unwrap();
    let run = run(place.path(), "r1", solver, words, attempts);
    triage(&[run], &Baseline::default()).unwrap()
}

/// The only cause, what decided it, and the line.
fn only(triage: &Triage) -> (Cause, &str, &str, u64) {
    assert_eq!(triage.causes.len(), 1, "{:?}", triage.causes);
    let decided = &triage.causes[0].examples[0].decided;
    (decided.cause, decided.by, &decided.evidence.file, decided.evidence.line)
}

const MISSING: &str = "collected 3 items\nsh: 1: pytest: not found\n5 failed in 0.3s\n";

#[test]
fn what_is_typed_decides_before_any_words() {
    let with = |class| of("command", MISSING, vec![failed(trial("local", 1), class)]);
    for (class, cause) in [
        (FailureClass::Transport, Cause::Transport),
        (FailureClass::Patch, Cause::Patch),
        (FailureClass::Timeout, Cause::Timeout),
        (FailureClass::Environment, Cause::Environment),
    ] {
        assert_eq!(only(&with(class)), (cause, "class", "trials.jsonl", 1));
    }
    let mut tests = rejected("local", 1);
    tests.verdict.as_mut().unwrap().tests =
        Some(sandbox_bench_core::TestCounts { passed: 3, failed: 1, skipped: 0, failing: vec!["t::one".into()] });
    assert_eq!(only(&of("command", MISSING, vec![tests])), (Cause::Rejected, "tests", "trials.jsonl", 1));
    let mut memory = rejected("local", 1);
    memory.verifier = Some(Completion::OutOfMemory);
    assert_eq!(only(&of("command", "", vec![memory])), (Cause::Environment, "completion", "trials.jsonl", 1));
}

#[test]
fn words_decide_what_nothing_typed_does_and_what_kept_tests_from_running_comes_first() {
    for (words, cause, line) in [
        (MISSING, Cause::Environment, 2),
        ("x\n1 out of 2 hunks FAILED\nHunk #1 FAILED at 3.\n", Cause::Patch, 3),
        ("FAILED tests/a.py::b - ImportError: x\nError: stream ended early\n", Cause::Transport, 2),
        ("FAILED tests/a.py::b - assert 1 == 2\n", Cause::Rejected, 1),
    ] {
        let found = of("command", words, vec![rejected("local", 1)]);
        let (decided, by, file, at) = only(&found);
        assert_eq!((decided, file, at), (cause, "outputs/ab/cd", line), "{words}");
        assert!(by.starts_with("words: "), "{by}");
    }
    let plain = of("command", "all is well\n", vec![rejected("local", 1)]);
    assert_eq!(only(&plain), (Cause::Rejected, "verdict", "trials.jsonl", 1));
}

#[test]
fn a_rejected_reference_solution_is_judged_by_what_it_came_to_elsewhere() {
    let attempts = vec![
        trial("local", 1),
        rejected("docker", 1),
        trial("local", 2),
        rejected("local", 2),
        rejected("local", 3),
        rejected("docker", 3),
    ];
    let found = of("gold", "", attempts.clone());
    let of_task = |task: &str| {
        let mut causes = found.causes.iter().flat_map(|group| &group.examples);
        causes.find(|example| example.task == task).unwrap().decided.clone()
    };
    assert_eq!(of_task("task-1").cause, Cause::Environment);
    assert!(of_task("task-1").evidence.text.contains("local/cold"), "{:?}", of_task("task-1"));
    assert_eq!(of_task("task-2").cause, Cause::Flaky);
    assert_eq!(of_task("task-3").cause, Cause::Task);
    let names = |found: &[super::TaskFinding]| found.iter().map(|f| f.task.task.clone()).collect::<Vec<_>>();
    assert_eq!(names(&found.flaky), ["task-2"]);
    assert_eq!(names(&found.never_passing), ["task-3"]);
    let why: Vec<(&str, bool)> =
        found.quarantine.iter().map(|q| (q.task.task.as_str(), q.why.starts_with("flaky"))).collect();
    assert_eq!(why, [("task-2", true), ("task-3", false)]);

    let solved = of("command", "", attempts);
    assert!(solved.causes.iter().all(|group| group.cause == Cause::Rejected), "a solver may simply be wrong");
    assert!(solved.quarantine.is_empty(), "what a solver does says nothing about the task");
}

#[test]
fn a_baseline_remembers_each_run_once_and_judges_later_ones() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("baseline.json");
    let good = run(place.path(), "good", "gold", "", vec![trial("local", 1), trial("local", 2)]);
    let other = run(place.path(), "other", "command", "", vec![rejected("local", 1)]);
    let mut baseline = Baseline::read(&file).unwrap();
    assert_eq!(learn(&[good.clone(), other], &mut baseline).unwrap(), 1, "only reference solutions teach");
    assert_eq!(learn(&[good], &mut baseline).unwrap(), 0);
    baseline.write(&file).unwrap();
    let baseline = Baseline::read(&file).unwrap();
    assert_eq!((baseline.runs.len(), baseline.tasks.len()), (1, 2));

    let later = run(place.path(), "later", "gold", "", vec![rejected("docker", 1), rejected("local", 2)]);
    let found = triage(&[later], &baseline).unwrap();
    let causes: Vec<Cause> = found.causes.iter().map(|group| group.cause).collect();
    assert!(causes.contains(&Cause::Environment) && causes.contains(&Cause::Flaky), "{causes:?}");
    assert_eq!(found.quarantine.len(), 1);

    fs::write(&file, "{}").unwrap();
    assert!(matches!(Baseline::read(&file).unwrap_err(), BaselineError::Form { .. }));
    fs::write(&file, "{\"schema_version\":\"9.0\",\"runs\":[],\"tasks\":[]}").unwrap();
    assert!(matches!(Baseline::read(&file).unwrap_err(), BaselineError::TooNew { .. }));
}

#[test]
fn a_run_that_the_baseline_holds_is_not_counted_again() {
    let place = tempfile::tempdir().unwrap();
    let once = run(place.path(), "once", "gold", "", vec![rejected("local", 1)]);
    let mut baseline = Baseline::default();
    learn(std::slice::from_ref(&once), &mut baseline).unwrap();
    let found = triage(&[once.clone(), once], &baseline).unwrap();
    assert_eq!((found.quarantine, found.changed), (Vec::new(), Vec::new()), "one rejection may be an accident");
}

#[test]
fn what_came_out_otherwise_than_before_is_told_with_both_counts() {
    let place = tempfile::tempdir().unwrap();
    let before =
        vec![trial("local", 1), trial("local", 2), rejected("local", 3), rejected("docker", 4), trial("docker", 4)];
    let before = run(place.path(), "before", "gold", "", before);
    let mut baseline = Baseline::default();
    learn(&[before], &mut baseline).unwrap();
    let later = vec![
        rejected("local", 1),
        // Infrastructure says nothing, another backend is another matter, and what was flaky stays so.
        failed(trial("local", 2), FailureClass::Transport),
        rejected("docker", 2),
        rejected("docker", 4),
        trial("local", 3),
    ];
    let later = run(place.path(), "later", "gold", "", later);
    let found = triage(&[later], &baseline).unwrap();
    let changed: Vec<(&str, &str, u64, u64)> = found
        .changed
        .iter()
        .map(|c| (c.task.task.as_str(), c.backend.as_str(), c.before.accepted, c.now.accepted))
        .collect();
    assert_eq!(changed, [("task-1", "local", 1, 0), ("task-3", "local", 0, 1)]);
    let told = text(&found);
    assert!(told.contains("2 reference solutions otherwise than in the baseline\n"), "{told}");
    assert!(told.contains("  local task-1: accepted 1 of 1 before, 0 of 1 now\n"), "{told}");
}

#[test]
fn what_a_solver_came_to_is_no_word_about_the_reference_solution() {
    let place = tempfile::tempdir().unwrap();
    let gold = run(place.path(), "gold", "gold", "", vec![rejected("docker", 1), rejected("docker", 1)]);
    let solved = run(place.path(), "solved", "command", "", vec![trial("local", 1), trial("docker", 1)]);
    let found = triage(&[gold, solved], &Baseline::default()).unwrap();
    let cause = &found.causes[0].examples[0].decided;
    assert_eq!((cause.cause, cause.by), (Cause::Task, "gold, nowhere"));
    let quarantined: Vec<&str> = found.quarantine.iter().map(|one| one.task.task.as_str()).collect();
    assert_eq!(quarantined, ["task-1"], "runs of other solvers beside it hide nothing");
}

#[test]
fn what_a_person_reads() {
    let attempts = vec![
        trial("local", 1),
        rejected("docker", 1),
        failed(trial("local", 2), FailureClass::Transport),
        failed(trial("docker", 2), FailureClass::Transport),
    ];
    insta::assert_snapshot!(text(&of("gold", "", attempts)));
}
