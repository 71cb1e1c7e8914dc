//! Ctrl-C and SIGTERM in the middle of a trial.

use std::time::Duration;

use rustix::process::Signal;
use sandbox_bench_core::FailureClass;
use sandbox_bench_core::evidence::Cleanup;
use sandbox_bench_e2e::command::until;
use sandbox_bench_e2e::processes::{Process, Sleeper, descendants};
use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{Running, World, assert_shown};

/// Bound of an interrupted run's end, for a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A run in whose second trial the solver does not end; returned when it is there, with all its processes.
fn in_the_middle(world: &World) -> (Running, Vec<Process>) {
    let sleeper = Sleeper::new();
    for name in ["one", "two", "three"] {
        let _ = world.task(name, WANTS_DONE);
    }
    let script = format!("if [ $BENCH_TASK_ID = two ]; then {}; fi\necho done >done\n", sleeper.command());
    world.write("solver.sh", script);
    let line =
        "run --backend local --dataset tasks --task one,two,three --order sequential --solver command-file:solver.sh";
    let running = world.bench(line).start();
    sleeper.await_start();
    let started = descendants(running.id());
    assert!(!started.is_empty());
    (running, started)
}

fn stops_cleanly(signal: Signal) {
    let world = World::new();
    let (running, started) = in_the_middle(&world);
    running.signal(signal);
    let outcome = running.wait_within(SOON).exits(130);
    let left: Vec<_> = started.into_iter().filter(Process::runs).collect();
    assert!(left.is_empty(), "still running: {left:?}");
    assert_shown!("interrupted", outcome.shown());

    let run = world.run();
    run.validate();
    let attempts = run.attempts();
    let finished: Vec<(&str, bool)> = attempts.iter().map(|a| (a.trial.task.as_str(), a.accepted())).collect();
    // Sequential order is the order of names.
    assert_eq!(finished, [("one", true), ("three", true), ("two", false)]);
    assert_eq!(attempts[2].failure.as_ref().unwrap().class, FailureClass::Interrupted);
    assert_eq!(attempts[2].cleanup, Cleanup::Confirmed);
    assert_eq!(world.bench("reap").run().exits(0).stdout, "nothing to clean up\n");
}

#[test]
fn sigint_ends_the_run_takes_everything_down_and_keeps_the_results() {
    stops_cleanly(Signal::INT);
}

#[test]
fn sigterm_does_the_same() {
    stops_cleanly(Signal::TERM);
}

#[test]
fn a_second_signal_ends_it_at_once_and_reap_cleans_up() {
    let world = World::new();
    let (running, started) = in_the_middle(&world);
    // Both are there before the first can be served: nothing has time to be taken down.
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    let _ = running.wait_within(SOON).exits(130);
    let reaped = world.bench("reap").run().exits(0);
    assert_shown!("interrupted-twice-reap", reaped.shown());
    until("the end of every process", || started.iter().all(|process| !process.runs()).then_some(()));
    assert_eq!(world.bench("reap").run().exits(0).stdout, "nothing to clean up\n");
}

#[test]
fn an_interrupted_prewarm_leaves_neither_sandbox_nor_half_an_artifact() {
    let world = World::new();
    let sleeper = Sleeper::new();
    let recipe = format!("FROM debian:bookworm-slim\nWORKDIR /workspace\nRUN {}\n", sleeper.command());
    let _task = world.task("one", WANTS_DONE).dockerfile(&recipe);
    let running = world.bench("prewarm --backend local --dataset tasks").start();
    sleeper.await_start();
    let started = descendants(running.id());
    running.signal(Signal::INT);
    let _ = running.wait_within(SOON).exits(130);
    assert!(!started.iter().any(Process::runs));
    assert_eq!(world.bench("artifacts list --backend local --format json").run().exits(0).stdout, "[]\n");
    assert_eq!(world.bench("reap").run().exits(0).stdout, "nothing to clean up\n");
}
