//! Command solvers: what they are told, what they are given, and what they must not see.

use std::fs;
use std::process;

use rustix::process::Signal;
use sandbox_bench_e2e::evidence::files;
use sandbox_bench_e2e::processes::{self, Sleeper};
use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{World, assert_shown};

/// What the solver of the attempt `number` wrote.
fn said(world: &World, number: usize) -> String {
    let run = world.run();
    let attempt = &run.attempts()[number];
    let output = attempt.outputs.iter().find(|output| output.name == "solver.stdout").expect("its output");
    String::from_utf8(run.output(output)).unwrap()
}

#[test]
fn a_command_is_told_about_its_task() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let script = "env | grep ^BENCH_TASK_ | sort; pwd; cat \"$BENCH_TASK_FILE\"; echo done >done";
    let _ = world.bench(&format!("run --backend local --dataset tasks --solver 'command:{script}'")).run().exits(0);
    assert_shown!("solver-variables", said(&world, 0));
}

#[test]
fn a_script_file_runs_by_its_own_interpreter_and_gives_the_solver_its_name() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    world.write("my-solver", "#!/usr/bin/awk -f\nBEGIN { print \"done\" >\"done\" }\n");
    let _ = world.bench("run --backend local --dataset tasks --solver command-file:my-solver").run().exits(0);
    assert_eq!(world.run().json("manifest.json")["solver"], "my-solver");
}

#[test]
fn a_solver_sees_neither_tests_nor_solution_also_not_those_of_the_trial_before() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let script = "for d in /tests /solution /oracle; do [ -e $d ] && echo sees $d; done; echo looked; echo done >done";
    let line = "run --backend local --dataset tasks --condition cold,warm,reuse --replicates 2 --order sequential";
    let _ = world.bench(&format!("{line} --solver 'command:{script}'")).run().exits(0);
    for number in 0..6 {
        assert_eq!(said(&world, number), "looked\n");
    }
}

#[test]
fn a_forwarded_secret_reaches_the_solver_and_nothing_else() {
    let world = World::new();
    // The verifier knows the secret backwards, so that the task does not hold it.
    let secret = format!("canary-{}-value", process::id());
    let backwards: String = secret.chars().rev().collect();
    let _task = world.task("one", &format!("[ \"$(cat proof)\" = {backwards} ] && [ -z \"$E2E_SECRET\" ]"));
    let sleeper = Sleeper::new();
    // A careless solver shows it everywhere.
    let show = "echo $E2E_SECRET; echo $E2E_SECRET >&2; mkdir -p /logs/agent; env >/logs/agent/trace";
    let solver = format!("{show}; printf %s \"$E2E_SECRET\" | rev >proof\n{} & wait\n", sleeper.command());
    world.write("solver.sh", solver);
    let line = "run -vv --backend local --dataset tasks --solver command-file:solver.sh --forward-env E2E_SECRET";
    let running = world.bench(line).env("E2E_SECRET", &secret).start();
    sleeper.await_start();
    let shown: Vec<String> = processes::all().iter().map(|process| process.command_line()).collect();
    sleeper.running().iter().for_each(|process| process.signal(Signal::KILL));
    let outcome = running.wait().exits(0);

    assert!(shown.iter().any(|line| line.trim_end() == sleeper.command()));
    assert!(!shown.iter().any(|line| line.contains(&secret)), "the secret is in a command line");
    assert!(!outcome.stdout.contains(&secret) && !outcome.stderr.contains(&secret), "the secret was printed");
    assert!(outcome.stderr.contains("exec"), "-vv tells nothing of what happens: {}", outcome.stderr);
    for file in files(world.path()) {
        let content = fs::read(&file).unwrap();
        let found = content.windows(secret.len()).any(|bytes| bytes == secret.as_bytes());
        assert!(!found, "the secret is in {}", file.display());
    }
    assert_eq!(world.run().json("manifest.json")["forwarded_env"], serde_json::json!(["E2E_SECRET"]));
}

#[test]
fn tools_of_the_solver_are_installed_once_for_all_warm_trials() {
    let world = World::new();
    for name in ["one", "two"] {
        let _ = world.task(name, WANTS_DONE);
    }
    let setup = "#!/bin/sh\nset -e\nmkdir -p /opt/agent\nprintf '#!/bin/sh\\necho done >done\\n' >/opt/agent/run\n\
                 chmod +x /opt/agent/run\necho installed\n";
    world.write("setup.sh", setup);
    let run = "--backend local --dataset tasks --solver-setup setup.sh";
    let _ = world.bench(&format!("prewarm {run}")).run().exits(0);
    let solve = "--solver command:/opt/agent/run --condition cold,warm";
    let _ = world.bench(&format!("run {run} {solve}")).run().exits(0);
    let run = world.last_run();
    let installed = |condition: &str| {
        let attempts = run.attempts();
        let of = attempts.iter().filter(|attempt| attempt.trial.condition.to_string() == condition);
        of.filter(|attempt| attempt.outputs.iter().any(|output| output.name == "solver set-up.stdout")).count()
    };
    assert_eq!((installed("cold"), installed("warm")), (2, 0));
    assert!(run.json("manifest.json")["plan"]["solver_setup"].is_string());
    // Another script is another environment.
    world.write("setup.sh", "#!/bin/sh\nexit 7\n");
    let outcome = world.bench("run --backend local --dataset tasks --solver-setup setup.sh --task one").run().exits(3);
    assert!(outcome.stderr.contains("solver set-up: exit code 7"), "{}", outcome.stderr);
}
