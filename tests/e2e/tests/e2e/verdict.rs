//! The verifier's word on real runs: what decides, what contradicts, and what is no word at all.

use sandbox_bench_core::evidence::Attempt;
use sandbox_bench_core::{Decision, FailureClass, Verdict};
use sandbox_bench_e2e::World;

const ACCEPT: &str = "echo 1 >/logs/verifier/reward.txt";

/// Runs one task with the verifier `test`, solved by `solver`; the exit code must be `code`.
fn run(test: &str, solver: &str, code: i32) -> Attempt {
    let world = World::new();
    let _task = world.task("one", test);
    let line = format!("run --backend local --dataset tasks --solver '{solver}'");
    let _ = world.bench(&line).run().exits(code);
    world.run().attempt("one")
}

fn verdict(attempt: &Attempt) -> &Verdict {
    attempt.verdict.as_ref().unwrap()
}

fn class(attempt: &Attempt) -> FailureClass {
    attempt.failure.as_ref().unwrap().class
}

fn says(attempt: &Attempt, what: &str) -> bool {
    verdict(attempt).disagreements.iter().any(|said| said.contains(what))
}

#[test]
fn a_reward_written_by_the_solver_is_removed_and_reported_and_does_not_count() {
    let solver =
        "command:mkdir -p /logs/verifier; echo 1 >/logs/verifier/reward.txt; echo 1 >/logs/verifier/reward.json";
    let attempt = run("[ ! -e /logs/verifier/reward.txt ] && [ ! -e /logs/verifier/reward.json ] && exit 3", solver, 1);
    assert_eq!((verdict(&attempt).decision, verdict(&attempt).exit_code), (Decision::Rejected, Some(3)));
    assert!(verdict(&attempt).preseeded_reward);
    assert!(says(&attempt, "was there before the verifier ran"));
    assert_eq!(class(&attempt), FailureClass::Rejected);
}

#[test]
fn a_link_in_place_of_the_reward_does_not_lead_the_verifier_astray() {
    let solver = "command:mkdir -p /logs/verifier; echo 0 >/trap; ln -s /trap /logs/verifier/reward.txt";
    let attempt = run("echo 1 >/logs/verifier/reward.txt; [ \"$(cat /trap)\" = 0 ]", solver, 0);
    assert!(verdict(&attempt).preseeded_reward);
}

#[test]
fn the_reward_decides_and_a_contradicting_exit_code_is_flagged() {
    let accepted = run("echo '{\"reward\": 1}' >/logs/verifier/reward.json; exit 1", "none", 0);
    assert_eq!((verdict(&accepted).decision, verdict(&accepted).exit_code), (Decision::Accepted, Some(1)));
    assert!(says(&accepted, "exit code is 1"));
    let rejected = run("echo '{\"reward\": 0.5}' >/logs/verifier/reward.json", "none", 1);
    assert_eq!((verdict(&rejected).decision, verdict(&rejected).exit_code), (Decision::Rejected, Some(0)));
    assert!(verdict(&rejected).disagreements.is_empty(), "a script that wrote its word has done its work");
}

#[test]
fn doubtful_verdicts_and_tasks_left_out_are_told_with_the_result() {
    let world = World::new();
    let _ = world.task("doubtful", "echo 1 >/logs/verifier/reward.txt; exit 4");
    let _ = world.task("plain", "echo 0 >/logs/verifier/reward.txt");
    let _ = world.task("broken", "exit 0").without("instruction.md");
    let outcome = world.bench("run --backend local --dataset tasks --solver none --order sequential").run().exits(1);
    let doubts: Vec<&str> = outcome.stdout.lines().filter(|line| line.starts_with("verdict in doubt")).collect();
    assert_eq!(doubts, ["verdict in doubt: local cold doubtful: the verifier's exit code is 4"]);
    assert!(outcome.stdout.contains("\n1 task is invalid and left out; `sandbox-bench dataset validate` tells why\n"));
    let (manifest, summary) = (world.run().json("manifest.json"), world.run().json("summary.json"));
    assert_eq!(manifest["left_out"], summary["left_out"]);
    assert_eq!(summary["left_out"]["count"], 1);
    assert!(manifest["left_out"]["first"][0].as_str().unwrap().contains("there is no instruction.md"));
    world.run().validate();
}

#[test]
fn without_a_reward_the_exit_code_decides() {
    let accepted = run("exit 0", "none", 0);
    assert_eq!(verdict(&accepted).decided_by, "exit_code");
    assert!(says(&accepted, "no reward file"));
    assert_eq!(class(&run("exit 1", "none", 1)), FailureClass::Rejected);
}

#[test]
fn no_tests_are_no_pass() {
    let report =
        "echo '{\"results\": {\"summary\": {\"tests\": 0, \"passed\": 0, \"failed\": 0}}}' >/logs/verifier/ctrf.json";
    for test in [format!("{ACCEPT}; {report}"), format!("{ACCEPT}; echo '==== no tests ran in 0.01s ===='")] {
        let attempt = run(&test, "none", 1);
        assert_eq!(
            (verdict(&attempt).decision, class(&attempt)),
            (Decision::Rejected, FailureClass::Rejected),
            "{test}"
        );
        assert!(attempt.failure.unwrap().message.contains("no tests"), "{test}");
    }
}

#[test]
fn failed_tests_beside_an_accepting_reward_are_flagged() {
    let report =
        "echo '{\"results\": {\"summary\": {\"tests\": 2, \"passed\": 1, \"failed\": 1}}}' >/logs/verifier/ctrf.json";
    let attempt = run(&format!("{ACCEPT}; {report}"), "none", 0);
    assert_eq!(verdict(&attempt).tests.as_ref().unwrap().failed, 1);
    assert!(says(&attempt, "1 of 2 tests failed"));
}

#[test]
fn an_unreadable_reward_is_the_verifiers_failure_and_no_rejection() {
    for reward in ["", "nan", "inf", "one", " "] {
        let attempt = run(&format!("printf %s \"{reward}\" >/logs/verifier/reward.txt"), "none", 3);
        assert_eq!(
            (verdict(&attempt).decision, class(&attempt)),
            (Decision::Undecided, FailureClass::Verifier),
            "{reward:?}"
        );
    }
}

#[test]
fn a_verifier_that_cannot_run_is_no_rejection() {
    let attempt = run("exec no-such-test-runner", "none", 3);
    assert_eq!((verdict(&attempt).exit_code, class(&attempt)), (Some(127), FailureClass::Verifier));
    assert!(attempt.failure.unwrap().message.contains("no-such-test-runner"));
}

#[test]
fn a_solver_that_fails_is_judged_by_its_work() {
    let accepted = run(sandbox_bench_e2e::task::WANTS_DONE, "command:echo done >done; exit 9", 0);
    assert_eq!(accepted.solver.unwrap().exit_code(), Some(9));
    let rejected = run(sandbox_bench_e2e::task::WANTS_DONE, "command:exit 9", 3);
    assert_eq!(class(&rejected), FailureClass::Solver);
}
