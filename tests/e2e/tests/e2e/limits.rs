//! Solvers and verifiers that go beyond what they are given.

use std::fs;

use sandbox_bench_core::{Completion, Decision, FailureClass, TreeKill};
use sandbox_bench_e2e::processes::Sleeper;
use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{RunDir, World};

/// What a command of the only attempt wrote to an output of this name.
fn output(run: &RunDir, name: &str) -> String {
    let attempt = run.attempt("one");
    let output = attempt.outputs.iter().find(|output| output.name == name).expect("the output");
    String::from_utf8(run.output(output)).unwrap()
}

#[test]
fn a_verifier_without_end_is_a_timeout_and_no_rejection() {
    let world = World::new();
    let sleeper = Sleeper::new();
    let _task = world.task("one", sleeper.command()).toml("[verifier]\ntimeout_sec = 1");
    let _ = world.bench("run --backend local --dataset tasks").run().exits(3);
    let attempt = world.run().attempt("one");
    assert_eq!(attempt.failure.unwrap().class, FailureClass::Timeout);
    assert!(attempt.verdict.is_none());
    assert!(sleeper.running().is_empty());
}

#[test]
fn a_solver_without_end_is_stopped_with_all_its_children_and_keeps_what_it_wrote() {
    let world = World::new();
    let (child, sleeper) = (Sleeper::new(), Sleeper::new());
    let _task = world.task("one", WANTS_DONE);
    let script = format!("echo so far; setsid {} & {}", child.command(), sleeper.command());
    let line = format!("run --backend local --dataset tasks --solver 'command:{script}' --solver-timeout 2");
    let _ = world.bench(&line).run().exits(3);
    let attempt = world.run().attempt("one");
    assert_eq!(attempt.solver, Some(Completion::DeadlineExceeded { tree_killed: TreeKill::Yes }));
    assert_eq!(attempt.failure.unwrap().class, FailureClass::Timeout);
    assert_eq!(attempt.verdict.unwrap().decision, Decision::Rejected, "the verifier still has the word");
    assert_eq!(output(&world.run(), "solver.stdout"), "so far\n");
    assert!(sleeper.running().is_empty() && child.running().is_empty());
}

#[test]
fn work_done_before_the_time_was_up_counts() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let script = format!("echo done >done; {}", Sleeper::new().command());
    let line = format!("run --backend local --dataset tasks --solver 'command:{script}' --solver-timeout 2");
    let _ = world.bench(&line).run().exits(0);
    assert!(matches!(world.run().attempt("one").solver, Some(Completion::DeadlineExceeded { .. })));
}

#[test]
fn a_flood_of_output_is_cut_and_that_is_told() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let script = "head -c 50000000 /dev/zero | tr \"\\000\" x; echo done >done";
    let _ = world.bench(&format!("run --backend local --dataset tasks --solver 'command:{script}'")).run().exits(0);
    let run = world.run();
    let attempt = run.attempt("one");
    let kept = attempt.outputs.iter().find(|output| output.name == "solver.stdout").unwrap();
    assert!(kept.truncated && kept.size <= 16 << 20, "{kept:?}");
    let receipts = run.lines("journal.jsonl");
    let solver = receipts.iter().find(|line| line["receipt"]["label"] == "solver").unwrap();
    assert_eq!(solver["receipt"]["stdout"]["total_bytes"], 50_000_000, "{solver:#}");
    let size: u64 = run.files().iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(size < 20 << 20, "the run directory has {size} bytes");
}

#[test]
fn what_a_solver_leaves_running_holds_nothing_up_and_ends_with_the_sandbox() {
    let world = World::new();
    let sleeper = Sleeper::new();
    let lines = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f 2>/dev/null; echo; done";
    let test = format!("{lines} | grep -q '^{}' || exit 5\n{WANTS_DONE}", sleeper.command());
    let _task = world.task("one", &test).solution(&format!("{} &\necho done >done", sleeper.command()));
    let _ = world.bench("run --backend local --dataset tasks").run().exits(0);
    assert!(sleeper.running().is_empty());
}
