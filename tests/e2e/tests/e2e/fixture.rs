//! The fixture: exact counters, the files it leaves, and what it does when answers are lost and sandboxes stay.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;
use sandbox_bench_e2e::command::until;
use sandbox_bench_e2e::docker::{containers, wanted};
use sandbox_bench_e2e::{Bench, Emulator, RunDir, World, assert_shown};
use serde_json::{Value, json};

const RUNS: &str = "/api/v1/default/bench/runs";

/// An emulated Polyaxon with these faults, on this port, and the world's configuration for it.
fn polyaxon(world: &World, port: &str, faults: &str) -> Emulator {
    world.write("bench.toml", "[backend.polyaxon]\nproject = 'default/bench'\n");
    world.write("faults.toml", faults);
    let faults = world.path().join("faults.toml");
    // One that is killed leaves its state behind: here it goes with the world.
    let state = world.path().join("emulator");
    let options = ["--port", port, "--faults", faults.to_str().unwrap(), "--state", state.to_str().unwrap()];
    Emulator::start_with("polyaxon", "POLYAXON_EMULATOR_PROJECT", &options)
}

/// A rule that lets `skip` creates pass and then has one meet `effect`.
fn on_create(skip: u32, effect: &str) -> String {
    format!("[[rule]]\nmethod = 'POST'\npath = '{RUNS}'\nskip = {skip}\ntimes = 1\neffect = {{ {effect} }}\n")
}

/// What the host counted in each trial, by backend and mode.
fn counts(run: &RunDir) -> BTreeMap<String, Vec<Value>> {
    let mut counts: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for trial in run.lines("trials.jsonl") {
        let cell = format!("{} {}", trial["backend"].as_str().unwrap(), trial["mode"].as_str().unwrap());
        counts.entry(cell).or_default().push(trial["counted"].clone());
    }
    counts
}

/// The figures of a cell.
fn cell(run: &RunDir, mode: &str) -> Value {
    let cells = run.json("summary.json")["cells"].clone();
    cells.as_array().unwrap().iter().find(|cell| cell["mode"] == mode).unwrap().clone()
}

fn figures(cell: &Value) -> [Value; 4] {
    ["attempted", "succeeded", "failed", "unattempted"].map(|name| cell[name].clone())
}

/// Everything is there, and fits together.
fn assert_complete(run: &RunDir) {
    let manifest = run.json("manifest.json");
    assert_eq!(manifest["kind"], "fixture");
    for file in manifest["files"].as_array().unwrap() {
        assert!(run.path().join(file["name"].as_str().unwrap()).is_file(), "{file}");
    }
    for trial in run.lines("trials.jsonl") {
        let id = trial["trial"].as_str().unwrap();
        let given = std::fs::read_to_string(run.path().join(format!("inputs/{id}.txt"))).unwrap();
        assert_eq!(given, format!("{id}\n2 3 5\n"));
        if trial.get("failure").is_none() {
            let report = run.json(&format!("reports/{id}.json"));
            assert_eq!((&report["trial"], &report["total"]), (&json!(id), &json!(10)));
            assert_eq!((&trial["expected"]["total"], &trial["report"]), (&json!(10), &report));
        }
        if let Some(sandbox) = trial.get("sandbox") {
            let cleanup = run.json(&format!("cleanup-{}.json", sandbox["id"].as_str().unwrap()));
            assert_eq!(cleanup["tag"], trial["tag"]);
        }
    }
}

#[test]
fn fresh_sandboxes_count_one_and_a_reused_one_counts_on() {
    let world = World::new();
    let line = "fixture --backend local --mode fresh,reuse --repetitions 3 --batches 2 --alternate --profile small";
    assert_shown!("fixture", world.bench(line).run().exits(0).shown());
    let run = world.run();
    assert_complete(&run);
    assert_eq!(counts(&run)["local fresh"], [1, 1, 1, 1, 1, 1]);
    assert_eq!(counts(&run)["local reuse"], [1, 2, 3, 1, 2, 3]);
    let trials = run.lines("trials.jsonl");
    let order: Vec<&str> = trials.iter().step_by(3).map(|trial| trial["mode"].as_str().unwrap()).collect();
    assert_eq!(order, ["fresh", "reuse", "reuse", "fresh"]);
    let ids: BTreeSet<&str> = trials.iter().map(|trial| trial["trial"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 12, "every trial has an id of its own");
    let sandboxes = run.files().iter().filter(|file| file.to_string_lossy().contains("/cleanup-")).count();
    assert_eq!(sandboxes, 6 + 2);

    // The figures are those of the lines.
    let fresh = cell(&run, "fresh");
    assert_eq!(figures(&fresh), [6, 6, 0, 0].map(Value::from));
    let own = |name: &str| -> Vec<u64> {
        let own = trials.iter().filter(|trial| trial["mode"] == "fresh");
        own.map(|trial| trial["times"][name].as_u64().unwrap()).collect()
    };
    assert_eq!(fresh["command"]["method"], "nearest-rank");
    assert_eq!(fresh["command"]["n"], 6);
    assert_eq!(fresh["command"]["p95_us"].as_u64(), own("command_us").into_iter().max());
    let wall = own("total_us").iter().sum::<u64>() as f64 / 1e6;
    assert_eq!(fresh["wall_seconds"].as_f64(), Some(wall));
    assert_eq!(fresh["wall_seconds_per_success"].as_f64(), Some(wall / 6.0));

    // It can be told again, and there is nothing to reap.
    let before = run.json("summary.json");
    std::fs::remove_file(run.path().join("summary.json")).unwrap();
    let _ = world.bench(&format!("report {}", run.argument())).run().exits(0);
    assert_eq!(run.json("summary.json"), before);
    assert_eq!(world.bench("reap").run().exits(0).stdout, "nothing to clean up\n");
    let compared = world.bench(&format!("compare {0} {0}", run.argument())).run().exits(2);
    assert!(compared.stderr.contains("fixture run"), "{}", compared.stderr);
}

#[test]
fn docker_gives_the_same_counts_and_keeps_no_container() {
    if !wanted() {
        return;
    }
    let world = World::new();
    let line = "fixture --backend docker,local --mode fresh,reuse --repetitions 5 --image debian:bookworm-slim";
    let refused = world.bench(line).run().exits(2);
    assert!(refused.stderr.contains("backend local"), "{}", refused.stderr);
    assert!(world.runs().is_empty(), "something was run");
    let line = "fixture --backend docker --mode fresh,reuse --repetitions 5 --image debian:bookworm-slim";
    let _ = world.bench(line).run().exits(0);
    let run = world.run();
    assert_complete(&run);
    assert_eq!(counts(&run)["docker fresh"], [1, 1, 1, 1, 1]);
    assert_eq!(counts(&run)["docker reuse"], [1, 2, 3, 4, 5]);
    assert_eq!(run.json("launch-docker.json")["source"]["image"], "debian:bookworm-slim");
    assert_eq!(containers(&run.id()), Vec::<String>::new());
}

#[test]
fn polyaxon_gives_the_same_counts_and_its_operation_is_kept() {
    let world = World::new();
    let emulator = polyaxon(&world, "0", "");
    let line = "fixture --backend polyaxon --mode fresh,reuse --repetitions 5";
    let _ = emulator.point(world.bench(line)).run().exits(0);
    let run = world.run();
    assert_complete(&run);
    assert_eq!(counts(&run)["polyaxon fresh"], [1, 1, 1, 1, 1]);
    assert_eq!(counts(&run)["polyaxon reuse"], [1, 2, 3, 4, 5]);
    let operation = run.json("component-polyaxon.json");
    assert_eq!(operation["component"]["plugins"]["sandbox"], true);
    assert_eq!(emulator.shows("state")["machines"], json!([]));
    assert_eq!(emulator.shows("violations"), json!([]));
}

#[test]
fn several_backends_in_one_run_give_the_same_counts_and_exactly_these_files() {
    let world = World::new();
    let emulator = polyaxon(&world, "0", "");
    let backends: &[&str] = if wanted() { &["local", "docker", "polyaxon"] } else { &["local", "polyaxon"] };
    for (mode, expected, sandboxes) in [("fresh", [1, 1, 1, 1, 1], 5), ("reuse", [1, 2, 3, 4, 5], 1)] {
        let line = format!("fixture --backend {} --mode {mode} --repetitions 5", backends.join(","));
        let _ = emulator.point(world.bench(&line)).run().exits(0);
        let run = world.last_run();
        assert_complete(&run);
        run.validate_fixture();
        for backend in backends {
            assert_eq!(counts(&run)[&format!("{backend} {mode}")], expected);
        }
        let trials = run.lines("trials.jsonl");
        let mut files: BTreeSet<String> = BTreeSet::new();
        for trial in &trials {
            let (id, sandbox) = (trial["trial"].as_str().unwrap(), trial["sandbox"]["id"].as_str().unwrap());
            files.extend([format!("inputs/{id}.txt"), format!("reports/{id}.json"), format!("cleanup-{sandbox}.json")]);
        }
        assert_eq!(files.len(), backends.len() * (5 + 5 + sandboxes));
        files.extend(backends.iter().map(|backend| format!("launch-{backend}.json")));
        let fixed = ["manifest.json", "task.sh", "component-polyaxon.json", "journal.jsonl", "trials.jsonl"];
        let derived = ["receipts.jsonl", "cases.jsonl", "summary.json"];
        files.extend(fixed.iter().chain(&derived).map(|name| (*name).to_owned()));
        let there: BTreeSet<String> = run
            .files()
            .iter()
            .map(|file| file.strip_prefix(run.path()).unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(there, files);
        for sandbox in there.iter().filter(|file| file.starts_with("cleanup-")) {
            assert_eq!(run.json(sandbox)["confirmed"], true);
        }
    }
    assert_eq!(emulator.shows("state")["machines"], json!([]));
    assert_eq!(emulator.shows("violations"), json!([]));
}

#[test]
fn a_lost_answer_stops_the_batch_and_nothing_is_launched_before_reap_has_resolved_it() {
    let world = World::new();
    let emulator = polyaxon(&world, "0", &on_create(2, "kind = 'lose-response'"));
    let bench = |line: &str| emulator.point(world.bench(line));
    let line = "fixture --backend polyaxon --repetitions 5 --batches 2";
    let lost = bench(line).run().exits(4);
    assert_shown!("fixture-uncertain", lost.shown());
    let run = world.run();
    assert_complete(&run);
    let fresh = cell(&run, "fresh");
    assert_eq!(figures(&fresh), [3, 2, 1, 7].map(Value::from));
    assert_eq!(fresh["failures"], json!({ "submission": 1 }));
    let tag = run.lines("trials.jsonl")[2]["tag"].clone();
    assert_eq!(run.json("summary.json")["uncertain"], json!([{ "backend": "polyaxon", "tag": tag }]));
    assert_eq!(run.json(&format!("cleanup-{}.json", tag.as_str().unwrap()))["confirmed"], false);
    assert_eq!(emulator.shows("state")["machines"].as_array().unwrap().len(), 1, "it does exist");

    let refused = bench(line).run().exits(4);
    assert!(refused.stderr.contains(tag.as_str().unwrap()), "{}", refused.stderr);
    assert_eq!(world.runs().len(), 1, "something was launched");

    let reaped = bench(&format!("reap {}", run.argument())).run().exits(0);
    assert!(reaped.stdout.contains("gone"), "{}", reaped.stdout);
    assert_eq!(emulator.shows("state")["machines"], json!([]));
    let summary = run.json("summary.json");
    assert_eq!((&summary["uncertain"], &summary["cleanup_unconfirmed"]), (&json!([]), &json!(0)));
    // What became of the trial does not change by that.
    assert_eq!(figures(&cell(&run, "fresh")), [3, 2, 1, 7].map(Value::from));
    let _ = bench(line).run().exits(0);
}

#[test]
fn a_gateway_that_dies_over_a_create_leaves_an_uncertain_submission_that_reap_resolves() {
    let world = World::new();
    let emulator = polyaxon(&world, "0", &on_create(2, "kind = 'delay', ms = 600000"));
    let running = emulator.point(world.bench("fixture --backend polyaxon --repetitions 5")).start();
    let created = || emulator.shows("faults").as_array().and_then(|matched| matched[0].as_u64()) >= Some(3);
    until("the third create", || created().then_some(()));
    let port = emulator.port().to_owned();
    emulator.kill();
    let _ = running.wait().exits(4);
    let run = world.run();
    assert_eq!(figures(&cell(&run, "fresh")), [3, 2, 1, 2].map(Value::from));
    let uncertain = run.json("summary.json")["uncertain"].clone();
    assert_eq!(uncertain.as_array().unwrap().len(), 1);

    let emulator = polyaxon(&world, &port, "");
    let _ = emulator.point(world.bench("reap")).run().exits(0);
    let summary = run.json("summary.json");
    assert_eq!((&summary["uncertain"], &summary["cleanup_unconfirmed"]), (&json!([]), &json!(0)));
    assert_eq!(run.json(&format!("cleanup-{}.json", uncertain[0]["tag"].as_str().unwrap()))["state"], "never");
}

#[test]
fn a_sandbox_that_does_not_go_stays_visible_though_the_calculation_was_right() {
    let world = World::new();
    let emulator = polyaxon(&world, "0", &on_create(1, "kind = 'flag', name = 'never-stops'"));
    let line = "fixture --backend polyaxon --repetitions 3 --cleanup-timeout 3";
    let shown = emulator.point(world.bench(line)).run().exits(4);
    assert!(shown.stdout.contains("1 unconfirmed"), "{}", shown.stdout);
    let run = world.run();
    let fresh = cell(&run, "fresh");
    assert_eq!(figures(&fresh), [3, 3, 0, 0].map(Value::from));
    assert_eq!(fresh["cleanup_unconfirmed"], 1);
    let trial = &run.lines("trials.jsonl")[1];
    assert_eq!(trial["cleanup"]["state"], "unconfirmed");
    assert_eq!(run.json(&format!("cleanup-{}.json", trial["sandbox"]["id"].as_str().unwrap()))["confirmed"], false);
    // It is known, and so no reason to launch nothing more.
    let _ = emulator.point(world.bench("fixture --backend polyaxon --repetitions 1")).run().exits(0);
}

#[test]
fn a_reused_sandbox_is_replaced_after_an_error() {
    let world = World::new();
    let refuse = "[[rule]]\nmethod = 'POST'\npath = '/sandbox/v1/**/fs/write'\nskip = SKIP\ntimes = 1\n\
                  effect = { kind = 'answer', status = 403, body = '{\"error\":{\"code\":\"forbidden\",\"message\":\"no\"}}' }\n";
    let emulator = polyaxon(&world, "0", &refuse.replace("SKIP", "2"));
    let line = "fixture --backend polyaxon --mode reuse --repetitions 5";
    let _ = emulator.point(world.bench(line)).run().exits(3);
    let run = world.run();
    assert_complete(&run);
    assert_eq!(counts(&run)["polyaxon reuse"], [json!(1), json!(2), Value::Null, json!(1), json!(2)]);
    let reuse = cell(&run, "reuse");
    assert_eq!((figures(&reuse), &reuse["failures"]), ([5, 4, 1, 0].map(Value::from), &json!({ "inputs": 1 })));
    let trials = run.lines("trials.jsonl");
    assert_eq!(trials[0]["sandbox"], trials[2]["sandbox"]);
    assert_ne!(trials[2]["sandbox"], trials[3]["sandbox"]);
    assert_eq!(emulator.shows("state")["machines"], json!([]));
}

#[test]
fn an_interruption_ends_the_sandbox_and_counts_what_was_not_begun() {
    let world = World::new();
    let bench: Bench = world.bench("fixture --backend local --mode reuse --repetitions 100000");
    let running = bench.start();
    until("two trials", || running.stderr().contains("count 2").then_some(()));
    running.signal(Signal::INT);
    let _ = running.wait().exits(130);
    let run = world.run();
    let reuse = cell(&run, "reuse");
    let count = |name: &str| reuse[name].as_u64().unwrap();
    assert!(count("succeeded") >= 2 && count("attempted") + count("unattempted") == 100_000, "{reuse}");
    let summary = run.json("summary.json");
    assert_eq!((&summary["interrupted"], &summary["cleanup_confirmed"]), (&json!(true), &json!(1)));
    assert_eq!(world.bench("reap").run().exits(0).stdout, "nothing to clean up\n");
}

#[test]
fn a_killed_run_is_told_as_far_as_it_came_and_reaped() {
    let world = World::new();
    let running = world.bench("fixture --backend local --mode reuse --repetitions 100000").start();
    until("two trials", || running.stderr().contains("count 2").then_some(()));
    running.signal(Signal::KILL);
    assert_eq!(running.wait().signal, Some(9));
    let run = world.run();
    let told = world.bench(&format!("report {}", run.argument())).run().exits(4);
    assert!(
        told.stdout.contains("1 unconfirmed") && told.stdout.contains("next:     sandbox-bench reap"),
        "{}",
        told.stdout
    );
    assert!(cell(&run, "reuse")["succeeded"].as_u64() >= Some(2));
    assert!(world.bench("reap").run().exits(0).stdout.contains("gone"));
    let summary = run.json("summary.json");
    assert_eq!((&summary["interrupted"], &summary["cleanup_confirmed"]), (&json!(true), &json!(1)));
}
