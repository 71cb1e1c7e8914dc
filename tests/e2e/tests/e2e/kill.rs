//! `kill -9` in the middle of a run: no finished trial is lost, and everything left is found and removed.

use std::fs;

use rustix::process::Signal;
use sandbox_bench_e2e::command::until;
use sandbox_bench_e2e::processes::{Process, Sleeper, descendants};
use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{World, assert_shown};

#[test]
fn reap_finds_and_removes_what_is_left_and_finished_trials_stay() {
    let world = World::new();
    let sleeper = Sleeper::new();
    for name in ["one", "two"] {
        let _ = world.task(name, WANTS_DONE);
    }
    let script = format!("if [ $BENCH_TASK_ID = two ]; then {}; fi\necho done >done\n", sleeper.command());
    world.write("solver.sh", script);
    let line = "run --backend local --dataset tasks --order sequential --solver command-file:solver.sh";
    let running = world.bench(line).start();
    sleeper.await_start();
    let started = descendants(running.id());

    // While it lives, it is left alone.
    let run = world.run();
    let refused = world.bench(&format!("reap {}", run.argument())).run().exits(2);
    assert_shown!("reap-refused", refused.shown());
    assert!(world.bench("reap").run().exits(0).stderr.contains("still going on"));
    assert!(!sleeper.running().is_empty());

    running.signal(Signal::KILL);
    assert_eq!(running.wait().signal, Some(9));
    assert_shown!("killed-report", world.bench(&format!("report {}", run.argument())).run().exits(4).shown());
    run.validate();

    assert_shown!("killed-reap", world.bench("reap").run().exits(0).shown());
    until("the end of every process", || started.iter().all(|process| !process.runs()).then_some(()));
    assert!(sandboxes(&world).is_empty(), "{:?}", sandboxes(&world));
    assert_eq!(world.bench("reap").run().exits(0).stdout, "nothing to clean up\n");

    run.validate();
    assert!(run.attempt("one").accepted());
    assert_shown!(
        "killed-report-after-reap",
        world.bench(&format!("report {}", run.argument())).run().exits(130).shown()
    );
    assert!(!started.iter().any(Process::runs));
}

#[test]
fn reap_of_a_dead_run_spares_a_living_one_of_the_same_place() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let start = |sleeper: &Sleeper| {
        let line = format!("run --backend local --dataset tasks --solver 'command:{}'", sleeper.command());
        let running = world.bench(&line).start();
        sleeper.await_start();
        running
    };
    let (dead, living) = (Sleeper::new(), Sleeper::new());
    let killed = start(&dead);
    killed.signal(Signal::KILL);
    let _ = killed.wait();
    let running = start(&living);
    let outcome = world.bench("reap").run().exits(0);
    assert_eq!(outcome.stdout.matches("gone").count(), 1, "{}", outcome.stdout);
    assert!(outcome.stderr.contains("left alone"), "{}", outcome.stderr);
    assert!(dead.running().is_empty() && !living.running().is_empty());
    running.signal(Signal::INT);
    let _ = running.wait().exits(130);
}

/// What the `local` backend still keeps of sandboxes.
fn sandboxes(world: &World) -> Vec<String> {
    ["sandboxes", "layers"]
        .iter()
        .filter_map(|kind| fs::read_dir(world.path().join("state/sandbox-bench/local").join(kind)).ok())
        .flatten()
        .map(|entry| entry.unwrap().path().display().to_string())
        .collect()
}
