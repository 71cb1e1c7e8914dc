//! The essentials again on a real Docker engine, which is asked directly what is left.

use std::fs;

use rustix::process::Signal;
use sandbox_bench_core::{Condition, ConditionProof, FailureClass};
use sandbox_bench_e2e::docker::{containers, docker, wanted};
use sandbox_bench_e2e::processes::Sleeper;
use sandbox_bench_e2e::task::{IMAGE, WANTS_DONE};
use sandbox_bench_e2e::{World, assert_shown};

/// A task whose environment no other test has: its warm artifact is this test's own.
fn world() -> World {
    let world = World::new();
    let _ = world
        .task("one", WANTS_DONE)
        .toml(&format!("workdir = '/work'\nenv = {{ E2E = '{}' }}", world.path().display()));
    world
}

#[test]
fn gold_is_accepted_cold_and_warm_and_nothing_is_left() {
    if !wanted() {
        return;
    }
    let world = world();
    let line = "run --backend docker --dataset tasks --condition cold,warm,reuse";
    assert_shown!("docker-gold", world.bench(line).run().exits(0).shown());
    let run = world.run();
    run.validate();
    assert!(run.attempts().iter().all(|a| matches!(a.proof, Some(ConditionProof::Proven { .. }))));
    assert_eq!(containers(&run.id()), Vec::<String>::new());
    let warm = run.attempts().into_iter().find(|attempt| attempt.trial.condition == Condition::Warm).unwrap();
    let artifact = warm.environment.unwrap().resolved;
    let _ = world.bench(&format!("artifacts delete --backend docker {artifact}")).run().exits(0);
    let _ = world.bench(&format!("artifacts delete --backend docker {artifact}")).run().exits(2);
}

#[test]
fn a_build_that_fails_is_told_with_its_command_and_its_output() {
    if !wanted() {
        return;
    }
    let world = World::new();
    let dockerfile = format!("FROM {IMAGE}\nRUN true\nRUN echo no such package >&2; exit 3\n");
    let _task = world.task("one", WANTS_DONE).dockerfile(&dockerfile);
    let _ = world.bench("run --backend docker --dataset tasks").run().exits(3);
    let run = world.run();
    let failure = run.attempt("one").failure.unwrap();
    assert_eq!(failure.class, FailureClass::Environment);
    assert!(failure.message.contains("exit 3"), "{}", failure.message);
    let log = run.attempt("one").outputs.into_iter().find(|output| output.name.starts_with("environment")).unwrap();
    assert!(String::from_utf8_lossy(&run.output(&log)).contains("no such package"));
}

#[test]
fn an_image_that_cannot_be_had_gives_way_to_the_dockerfile_and_the_progress_says_so() {
    if !wanted() {
        return;
    }
    let world = World::new();
    let _task = world
        .task("one", WANTS_DONE)
        .file("task.toml", "[environment]\ndocker_image = 'localhost:1/no/such:1'\n")
        .file("environment/Dockerfile", format!("FROM {IMAGE}\nWORKDIR /work\n"));
    let outcome = world.bench("run --backend docker --dataset tasks --attempts 1").run().exits(0);
    assert!(outcome.stderr.contains("(goes on with another way to the environment)"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("will be repeated"), "{}", outcome.stderr);
    assert_eq!(world.run().attempts().len(), 2);
}

#[test]
fn reap_finds_containers_of_a_killed_run_by_their_label() {
    if !wanted() {
        return;
    }
    let world = world();
    let sleeper = Sleeper::new();
    let line = format!("run --backend docker --dataset tasks --solver 'command:{}'", sleeper.command());
    let running = world.bench(&line).start();
    sleeper.await_start();
    running.signal(Signal::KILL);
    assert_eq!(running.wait().signal, Some(9));
    let run = world.run();
    assert_eq!(containers(&run.id()).len(), 1);
    assert_shown!("docker-reap", world.bench("reap").run().exits(0).shown());
    assert_eq!(containers(&run.id()), Vec::<String>::new());
    assert!(sleeper.running().is_empty());
    assert_eq!(world.bench("reap").run().exits(0).stdout, "nothing to clean up\n");
}

#[test]
fn a_forwarded_secret_is_no_part_of_the_container() {
    if !wanted() {
        return;
    }
    let world = world();
    let secret = format!("canary-{}-value", std::process::id());
    let sleeper = Sleeper::new();
    world.write("solver.sh", format!("[ -n \"$E2E_SECRET\" ] && echo done >done; {} & wait\n", sleeper.command()));
    let line = "run -vv --backend docker --dataset tasks --solver command-file:solver.sh --forward-env E2E_SECRET";
    let running = world.bench(line).env("E2E_SECRET", &secret).start();
    sleeper.await_start();
    let container = containers(&world.run().id()).remove(0);
    let inspected = docker(&["inspect", &container]);
    sleeper.running().iter().for_each(|process| process.signal(Signal::KILL));
    let outcome = running.wait().exits(0);
    assert!(!inspected.contains(&secret), "the secret is part of the container");
    assert!(!outcome.stderr.contains(&secret), "the secret was printed");
    for file in world.run().files() {
        assert!(!String::from_utf8_lossy(&fs::read(&file).unwrap()).contains(&secret), "it is in {}", file.display());
    }
}
