//! Recordings: of any run, repeated on any backend, compared step by step.

use sandbox_bench_core::FailureClass;
use sandbox_bench_core::evidence::Attempt;
use sandbox_bench_e2e::docker::wanted;
use sandbox_bench_e2e::gateway::{Gateway, KEY, SOLVED, scripted};
use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{Emulator, World, assert_shown};
use serde_json::{Value, json};

/// Vendors that are played by an emulator, each with the last variable that its emulator says to set.
const VENDORS: [(&str, &str); 5] = [
    ("aws-microvm", "AWS_MICROVM_ARCH"),
    ("daytona", "DAYTONA_API_KEY"),
    ("modal", "MODAL_CONFIG_PATH"),
    ("polyaxon", "POLYAXON_EMULATOR_PROJECT"),
    ("vercel", "VERCEL_PROJECT_ID"),
];

/// Every attempt repeated all its steps, and none came out differently.
fn without_divergence(attempts: &[Attempt]) {
    assert!(!attempts.is_empty());
    for attempt in attempts {
        let replay = attempt.replay.as_ref().expect("a replay's record");
        assert_eq!(replay.divergences, [], "{}", attempt.trial.task);
        assert_eq!(replay.ran, replay.steps);
        assert!(replay.steps > 0 && attempt.accepted(), "{}", attempt.trial.task);
    }
}

#[test]
fn what_a_model_did_is_repeated_on_every_backend_without_a_difference() {
    let world = World::new();
    let gateway = Gateway::start(scripted);
    let tasks = format!("--dataset smoke --task {}", SOLVED.join(","));
    let line =
        format!("run --backend local {tasks} --solver agent --model scripted --model-base-url {}", gateway.url());
    let _ = world.bench(&format!("{line} --model-key-env E2E_KEY -j 2")).env("E2E_KEY", KEY).run().exits(0);
    let _ = world.bench(&format!("record {} '*' --output all.json", world.run().argument())).run().exits(0);

    let asked = gateway.asked().len();
    let _ = world.bench(&format!("run --backend local {tasks} --solver replay:all.json -j 2")).run().exits(0);
    without_divergence(&world.last_run().attempts());
    world.last_run().validate();
    if wanted() {
        let _ = world.bench(&format!("run --backend docker {tasks} --solver replay:all.json -j 2")).run().exits(0);
        without_divergence(&world.last_run().attempts());
    }
    world.write("bench.toml", "[backend.polyaxon]\nproject = 'default/bench'\n");
    for (vendor, last) in VENDORS {
        let emulator = Emulator::start(vendor, last);
        let line = format!("run --backend {vendor} {tasks} --solver replay:all.json -j 2");
        let _ = emulator.point(world.bench(&line)).run().exits(0);
        without_divergence(&world.last_run().attempts());
        assert_eq!(emulator.shows("violations"), json!([]), "{vendor}");
    }
    assert_eq!(gateway.asked().len(), asked, "a replay asks nobody");
}

#[test]
fn gold_and_command_runs_can_be_recorded_with_the_files_that_they_need() {
    let world = World::new();
    for solver in ["gold", "'command:cat \"$BENCH_TASK_FILE\" >/dev/null; ls -A; awk \"/^\\[/\" /app/relay.conf 2>&1'"]
    {
        let line = format!("run --backend local --dataset smoke --task relay-config,access-log --solver {solver}");
        let _ = world.bench(&line).run();
        let run = world.last_run();
        let accepted: Vec<bool> = run.attempts().iter().map(Attempt::accepted).collect();
        let _ = world.bench(&format!("record {} '*' --output r.json", run.argument())).run().exits(0);
        let line = "run --backend local --dataset smoke --task relay-config,access-log --solver replay:r.json";
        let _ = world.bench(line).run();
        let attempts = world.last_run().attempts();
        assert_eq!(attempts.iter().map(Attempt::accepted).collect::<Vec<_>>(), accepted);
        assert!(attempts.iter().all(|a| a.replay.as_ref().is_some_and(|r| r.diverged == 0 && r.steps == r.ran)));
    }
}

#[test]
fn a_recording_by_hand_is_run_and_its_divergences_are_told_step_by_step() {
    let world = World::new();
    for name in ["one", "two"] {
        let _ = world.task(name, WANTS_DONE);
    }
    let recording = "\
tasks:
- task: one
  steps:
  - put: { path: /opt/word, text: done }
  - run: { script: 'cat /opt/word >done; echo >>done', exit_code: 0 }
  - run: { argv: [sh, -c, 'echo other; exit 3'], exit_code: 4, stdout: 'sha256:0000000000000000000000000000000000000000000000000000000000000000' }
  - run: { script: cat, stdin: \"text\\n\", stdout: 'sha256:b9e68e1bea3e5b19ca6b2f98b73a54b73daafaa250484902e09982e07a12e733' }
";
    world.write("by-hand.yaml", recording);
    let outcome = world.bench("run --backend local --dataset tasks --solver replay:by-hand.yaml").run().exits(0);
    assert_shown!("replay-by-hand", outcome.shown());
    let run = world.run();
    run.validate();
    let replay = run.attempt("one").replay.unwrap();
    let told: Vec<(u32, &str)> = replay.divergences.iter().map(|d| (d.step, d.of.as_str())).collect();
    assert_eq!(told, [(3, "exit_code"), (3, "stdout")]);
    assert_eq!((replay.steps, replay.ran, replay.diverged), (4, 4, 1));
    // No steps for it: it cannot be run, which is no failure.
    assert_eq!(run.attempt("two").failure.unwrap().class, FailureClass::Unavailable);
}

#[test]
fn a_wrong_recording_is_refused_with_the_place_of_the_fault() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let mut shown = String::new();
    for wrong in [
        "",
        "{",
        "tasks: []",
        "tasks: [{ task: one, steps: [{ run: {} }] }]",
        "tasks: [{ task: one, steps: [{ run: { script: a, argv: [b] } }] }]",
        "tasks: [{ task: one, steps: [{ run: { script: a, exitcode: 1 } }] }]",
        "tasks: [{ task: one, steps: [{ put: { path: ../x, text: a } }] }]",
        "tasks: [{ task: one, steps: [{ put: { path: /x, base64: '%' } }] }]",
        "tasks: [{ task: one, steps: [] }, { task: one, steps: [] }]",
    ] {
        world.write("wrong", wrong);
        shown += &world.bench("run --backend local --dataset tasks --solver replay:wrong").run().exits(2).stderr;
    }
    assert_shown!("replay-wrong", shown);
    assert!(world.runs().is_empty());
}

#[test]
fn what_cannot_be_recorded_is_said() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let _ = world.bench("run --backend local --dataset tasks --solver none").run().exits(1);
    let run = world.run().argument();
    let mut shown = String::new();
    for line in [format!("record {run} one"), format!("record {run} other"), "record nowhere one".into()] {
        shown += &world.bench(&line).run().exits(2).shown();
    }
    assert_shown!("record-nothing", shown);
}

#[test]
fn a_recording_of_one_task_goes_to_stdout_and_says_where_it_is_from() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let _ = world.bench("run --backend local --dataset tasks --solver 'command:echo done >done'").run().exits(0);
    let run = world.run();
    let printed = world.bench(&format!("record {} one", run.argument())).run().exits(0).stdout;
    let recording: Value = serde_json::from_str(&printed).unwrap();
    let task = &recording["tasks"][0];
    assert_eq!(task["from"], format!("run {}, local cold, solver command", run.id()));
    assert_eq!(task["steps"][0]["put"]["text"], "echo done >done\n");
    assert_eq!(task["steps"][1]["run"]["exit_code"], 0);
}
