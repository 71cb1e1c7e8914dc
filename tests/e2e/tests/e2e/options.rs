//! Options of `run` that change how much is run, how often, and what is shown.

use rustix::process::Signal;
use sandbox_bench_core::FailureClass;
use sandbox_bench_e2e::command::until;
use sandbox_bench_e2e::processes::{Sleeper, descendants};
use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{World, assert_shown, recount};
use serde_json::Value;

fn world(tasks: &[&str]) -> World {
    let world = World::new();
    for name in tasks {
        let _ = world.task(name, WANTS_DONE);
    }
    world
}

#[test]
fn enough_passes_stop_the_run() {
    let world = world(&["one", "two", "three", "four"]);
    let line = "run --backend local --dataset tasks --stop-after-passes 2";
    assert_shown!("stop-after-passes", world.bench(line).run().exits(0).shown());
    assert_eq!(world.run().attempts().len(), 2);
}

#[test]
fn quiet_shows_no_progress_but_failures() {
    let world = world(&["one"]);
    let outcome = world.bench("run --backend local --dataset tasks --quiet").run().exits(0);
    assert_eq!(outcome.stderr, "");
    let outcome = world.bench("run --backend local --dataset tasks --quiet --solver none").run().exits(1);
    assert_eq!(outcome.stderr, "[1/1] local cold one: rejected: rejected by reward\n");
}

#[test]
fn json_is_the_summary_and_nothing_else() {
    let world = world(&["one"]);
    let outcome = world.bench("run --backend local --dataset tasks --format json").run().exits(0);
    let printed: Value = serde_json::from_str(&outcome.stdout).expect("one JSON document");
    assert_eq!(printed, world.run().json("summary.json"));
}

/// Spans of the attempts on the clock, in microseconds.
fn spans(world: &World) -> Vec<(i64, i64)> {
    let spans = world.last_run().attempts().into_iter().map(|attempt| {
        let start = attempt.started_at.as_microsecond();
        (start, start + i64::try_from(attempt.total_us).unwrap())
    });
    spans.collect()
}

#[test]
fn trials_run_side_by_side_only_if_asked_to() {
    let world = world(&["one", "two"]);
    let line = "run --backend local --dataset tasks --solver 'command:sleep 1; echo done >done'";
    for (options, side_by_side) in [("", false), ("-j 2", true), ("-j 2 --backend-concurrency local=1", false)] {
        let _ = world.bench(&format!("{line} {options}")).run().exits(0);
        let [a, b] = spans(&world)[..] else { panic!("two attempts") };
        assert_eq!(a.0 < b.1 && b.0 < a.1, side_by_side, "{options}: {a:?} {b:?}");
    }
}

#[test]
fn a_lost_sandbox_costs_an_attempt_which_is_kept_and_the_trial_is_repeated() {
    let world = world(&["one"]);
    let sleeper = Sleeper::new();
    let script = format!("{} & wait; echo done >done", sleeper.command());
    let running = world.bench(&format!("run --backend local --dataset tasks --solver 'command:{script}'")).start();
    sleeper.await_start();
    let first = sleeper.running();
    for process in descendants(running.id()) {
        process.signal(Signal::KILL);
    }
    let second = until("the second attempt", || sleeper.running().into_iter().find(|process| !first.contains(process)));
    // Its wait is over, its work goes on.
    second.signal(Signal::KILL);
    let _ = running.wait().exits(0);

    let attempts = world.run().attempts();
    let [lost, accepted] = &attempts[..] else { panic!("two attempts") };
    assert_eq!(lost.failure.as_ref().unwrap().class, FailureClass::Transport);
    assert_eq!((lost.attempt, lost.last, accepted.attempt, accepted.last), (1, false, 2, true));
    assert!(accepted.accepted());
    world.run().validate();
    recount::check(&world.run());
}

#[test]
fn with_one_attempt_a_lost_sandbox_is_a_failure_of_the_infrastructure() {
    let world = world(&["one"]);
    let sleeper = Sleeper::new();
    let line = format!("run --backend local --dataset tasks --attempts 1 --solver 'command:{}'", sleeper.command());
    let running = world.bench(&line).start();
    sleeper.await_start();
    for process in descendants(running.id()) {
        process.signal(Signal::KILL);
    }
    assert_shown!("lost-sandbox", running.wait().exits(3).shown());
}
