//! Tracking: what a tracked run holds, publishing again, and trackers that fail. Over the emulated Polyaxon, whose official client
//! judges it in `tests/sdk`.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::Signal;
use sandbox_bench_e2e::command::until;
use sandbox_bench_e2e::evidence::assert_hidden;
use sandbox_bench_e2e::{Bench, Emulator, Outcome, RunDir, World};
use serde_json::{Value, json};

const TOKEN: &str = "t0p-s3cret-of-the-tracker";
const STREAMS: &str = "/streams/v1/**/artifact";

fn polyaxon(world: &World, faults: &str) -> Emulator {
    world.write("bench.toml", "[track.polyaxon]\nproject = 'default/bench'\n");
    world.write("faults.toml", faults);
    let faults = world.path().join("faults.toml");
    let options = ["--faults", faults.to_str().unwrap(), "--token", TOKEN];
    Emulator::start_with("polyaxon", "POLYAXON_EMULATOR_PROJECT", &options)
}

fn rule(method: &str, path: &str, (skip, times): (u32, u32), effect: &str) -> String {
    format!("[[rule]]\nmethod = '{method}'\npath = '{path}'\nskip = {skip}\ntimes = {times}\neffect = {{ {effect} }}\n")
}

/// The tracked runs, as the platform lists them.
fn tracked(emulator: &Emulator) -> Vec<Value> {
    emulator.get("/api/v1/default/bench/runs?query=tags:sandbox-bench")["results"].as_array().unwrap().clone()
}

/// Every file of the evidence is at the tracker as it is here.
fn assert_published(emulator: &Emulator, run: &RunDir, id: &str) {
    let mut published = 0;
    for file in run.files() {
        let path = file.strip_prefix(run.path()).unwrap().to_str().unwrap();
        if path == "tracking.jsonl" {
            continue;
        }
        let asked = format!("/streams/v1/polyaxon/default/bench/runs/{id}/artifact?path=outputs/{}/{path}", run.id());
        assert_eq!(emulator.bytes(&asked), fs::read(&file).unwrap(), "{path}");
        published += 1;
    }
    assert!(published > 8, "there is evidence to look at");
}

/// Requests that were sent to the tracker since the emulator was started, by method.
fn requests(emulator: &Emulator) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in emulator.shows("requests").as_array().unwrap() {
        let path = request["path"].as_str().unwrap();
        if path.starts_with("/api/v1/default/") || path.starts_with("/streams/") {
            *counts.entry(request["method"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    counts
}

fn status_of(emulator: &Emulator, id: &str) -> Vec<String> {
    let statuses = emulator.get(&format!("/api/v1/default/bench/runs/{id}/statuses"));
    let conditions = statuses["status_conditions"].as_array().unwrap().iter();
    conditions.map(|condition| condition["type"].as_str().unwrap().to_owned()).collect()
}

fn ok(emulator: &Emulator, bench: Bench) -> Outcome {
    emulator.point(bench).run().exits(0)
}

#[test]
fn a_fixture_is_published_with_inputs_series_lineage_and_every_file() {
    let world = World::new();
    let emulator = polyaxon(&world, "");
    let line = "fixture --backend local --mode fresh,reuse --repetitions 3 --profile small --track polyaxon";
    let shown = ok(&emulator, world.bench(line));
    assert!(shown.stderr.contains("tracked:  polyaxon http://"), "{}", shown.stderr);
    let run = world.run();
    let runs = tracked(&emulator);
    let [one] = runs.as_slice() else { panic!("{runs:#?}") };
    let id = one["uuid"].as_str().unwrap();
    assert_eq!(one["tags"], json!(["sandbox-bench", "fixture", run.id(), "local"]));
    assert_eq!(status_of(&emulator, id), ["created", "running", "succeeded"]);
    assert_eq!(one["meta_info"]["evaluation"], format!("sbx-{}", run.id()));

    let manifest = run.json("manifest.json");
    let inputs = &one["inputs"];
    assert_eq!((&inputs["profile"], &inputs["modes"]), (&json!("small"), &json!(["fresh", "reuse"])));
    assert_eq!((&inputs["binary_version"], &inputs["repetitions"]), (&manifest["binary_version"], &json!(3)));
    assert_eq!(inputs["case_set"]["task.sh"], manifest["files"][0]["digest"]);
    let outputs = &one["outputs"];
    assert_eq!((&outputs["trials_succeeded"], &outputs["cleanup_unconfirmed"]), (&json!(6), &json!(0)));

    // Each kind of time is a series of its own, and has the values of the trials.
    let name = "local_reuse_command_seconds";
    let events =
        emulator.get(&format!("/streams/v1/polyaxon/default/bench/runs/{id}/events/metric?names={name}&orient=dict"));
    let of_trials = run.lines("trials.jsonl").into_iter().filter(|trial| trial["mode"] == "reuse");
    let seconds: Vec<f64> = of_trials.map(|trial| trial["times"]["command_us"].as_f64().unwrap() / 1e6).collect();
    assert_eq!(events["data"][0]["data"]["metric"], json!(seconds));
    assert_eq!(events["data"][0]["data"]["step"], json!([1, 2, 3]));
    let lineage = emulator.get(&format!("/api/v1/default/bench/runs/{id}/lineage/artifacts?limit=500"));
    let entry = |name: &str| lineage["results"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
    assert_eq!(
        (&entry(name)["kind"], &entry(name)["summary"]["metric"]["last"]),
        (&json!("metric"), &json!(seconds[2]))
    );
    assert_eq!(entry("manifest-json")["is_input"], true);
    assert_eq!(entry("cases-jsonl")["path"], format!("outputs/{}/cases.jsonl", run.id()));
    assert_eq!(entry("reports")["kind"], "dir");
    assert_published(&emulator, &run, id);

    // Each case names its sandbox, and its receipt the case.
    let (cases, receipts) = (run.lines("cases.jsonl"), run.lines("receipts.jsonl"));
    for (case, receipt) in cases.iter().zip(&receipts) {
        assert_eq!(
            (&case["decision"], &case["expected"], &receipt["matches"]),
            (&json!("accepted"), &case["observed"], &json!(true))
        );
        assert_eq!((&case["case"], &case["sandbox"]["id"]), (&receipt["case"], &receipt["sandbox"]));
    }
    assert_eq!((cases.len(), receipts.len()), (6, 6));
    run.validate_fixture();

    // Publishing again sends nothing but a look at the run.
    let before = requests(&emulator);
    let again = ok(&emulator, world.bench(&format!("track {}", run.argument())));
    assert!(again.stdout.contains("(0 files sent, "), "{}", again.stdout);
    let mut after = requests(&emulator);
    *after.get_mut("GET").unwrap() -= 1;
    assert_eq!(after, before);
    assert_eq!(tracked(&emulator).len(), 1);
    assert_eq!(emulator.shows("violations"), json!([]));
    assert_hidden(TOKEN, world.path().join("results").as_path(), &[&shown.stdout, &shown.stderr, &again.stdout]);
}

#[test]
fn a_run_of_tasks_is_published_with_its_report_and_a_changed_file_alone_is_sent_again() {
    let world = World::new();
    let emulator = polyaxon(&world, "");
    let _task = world.task("one", "#!/bin/sh\ntest \"$(cat done)\" = done && echo 1 >/logs/verifier/reward.txt\n");
    let line = "run --backend local --dataset tasks --solver gold --track polyaxon --format json";
    let shown = ok(&emulator, world.bench(line));
    let _: Value = serde_json::from_str(&shown.stdout).expect("nothing but the result on stdout");
    let run = world.run();
    run.validate();
    let one = tracked(&emulator).remove(0);
    let id = one["uuid"].as_str().unwrap();
    assert_eq!((&one["status"], &one["outputs"]["outcome"]), (&json!("succeeded"), &json!("accepted")));
    assert_eq!(one["inputs"]["case_set"], run.json("manifest.json")["datasets"]);
    assert!(one["outputs"]["local_cold_ready_seconds"].as_f64() > Some(0.0), "{one:#}");
    assert_published(&emulator, &run, id);
    let tree =
        emulator.get(&format!("/streams/v1/polyaxon/default/bench/runs/{id}/artifacts/tree?path=outputs/{}", run.id()));
    assert!(tree["files"]["receipts.jsonl"].is_u64() && tree["dirs"].to_string().contains("report"), "{tree}");

    fs::write(run.path().join("notes.txt"), "seen").unwrap();
    let again = ok(&emulator, world.bench(&format!("report {} --track polyaxon", run.argument())));
    assert!(again.stderr.contains("(1 files sent, "), "{}", again.stderr);
    assert_published(&emulator, &run, id);
}

#[test]
fn a_tracker_that_fails_changes_no_result_and_what_is_missing_is_sent_later() {
    let world = World::new();
    let refuse = "kind = 'answer', status = 400, body = 'Invalid path'";
    let emulator = polyaxon(&world, &rule("POST", STREAMS, (2, 1), refuse));
    let shown = ok(&emulator, world.bench("fixture --backend local --repetitions 2 --track polyaxon"));
    let run = world.run();
    let next = format!("sandbox-bench track {} --tracker polyaxon", run.argument());
    assert!(shown.stderr.contains("1 missing") && shown.stderr.contains(&next), "{}", shown.stderr);
    let id = tracked(&emulator)[0]["uuid"].as_str().unwrap().to_owned();
    assert_eq!(status_of(&emulator, &id), ["created", "running"], "not everything is there");
    let resumed = ok(&emulator, world.bench(&format!("track {}", run.argument())));
    assert!(resumed.stdout.contains("(1 files sent, "), "{}", resumed.stdout);
    assert_eq!(status_of(&emulator, &id), ["created", "running", "succeeded"]);
    assert_published(&emulator, &run, &id);
    assert_eq!(tracked(&emulator).len(), 1);
}

#[test]
fn an_upload_that_is_killed_goes_on_where_it_was() {
    let world = World::new();
    let emulator = polyaxon(&world, &rule("POST", STREAMS, (0, 1000), "kind = 'delay', ms = 300"));
    let _ = world.bench("fixture --backend local --repetitions 4").run().exits(0);
    let run = world.run();
    let total = run.files().len();
    let line = format!("track {}", run.argument());
    let uploaded = || {
        let log = fs::read_to_string(run.path().join("tracking.jsonl")).unwrap_or_default();
        log.matches(r#""step":"uploaded""#).count()
    };
    let running = emulator.point(world.bench(&line)).start();
    until("two files", || (uploaded() >= 2).then_some(()));
    running.signal(Signal::KILL);
    assert_eq!(running.wait().signal, Some(9));
    let there = uploaded();
    assert!(there < total, "it was killed too late");
    let id = tracked(&emulator)[0]["uuid"].as_str().unwrap().to_owned();
    assert_eq!(status_of(&emulator, &id), ["created", "running"]);

    let resumed = ok(&emulator, world.bench(&line));
    let expected = format!("({} files sent, {there} were there already)", total - there);
    assert!(resumed.stdout.contains(&expected), "{expected}: {}", resumed.stdout);
    assert_published(&emulator, &run, &id);
    assert_eq!(status_of(&emulator, &id), ["created", "running", "succeeded"]);
    assert_eq!(tracked(&emulator).len(), 1);
}

#[test]
fn a_tracker_that_is_not_there_changes_no_result() {
    let world = World::new();
    world.write("bench.toml", "[track.polyaxon]\nproject = 'p'\nhost = 'http://127.0.0.1:9'\n");
    let line = "fixture --backend local --repetitions 1 --track polyaxon";
    let shown = world.bench(line).env("POLYAXON_AUTH_TOKEN", TOKEN).run().exits(0);
    assert!(
        shown.stderr.contains("not tracked: ") && shown.stderr.contains("next:     sandbox-bench track"),
        "{}",
        shown.stderr
    );
    let again = world.bench(&format!("track {}", world.run().argument())).run().exits(3);
    assert!(again.stderr.contains("127.0.0.1") || again.stderr.contains("connection"), "{}", again.stderr);

    let unknown = world.bench("fixture --backend local --track nowhere").run().exits(2);
    assert!(unknown.stderr.contains("known trackers: polyaxon"), "{}", unknown.stderr);
    assert_eq!(world.runs().len(), 1, "something was run");
}

#[test]
fn a_lost_answer_to_the_creation_of_the_tracked_run_makes_no_second_one() {
    let world = World::new();
    let emulator = polyaxon(&world, &rule("POST", "/api/v1/default/bench/runs", (0, 1), "kind = 'lose-response'"));
    let _ = ok(&emulator, world.bench("fixture --backend local --repetitions 1 --track polyaxon"));
    let runs = tracked(&emulator);
    assert_eq!((runs.len(), &runs[0]["status"]), (1, &json!("succeeded")));

    // Without its log, the tracked run is found again by the evaluation.
    let run = world.run();
    fs::remove_file(run.path().join("tracking.jsonl")).unwrap();
    let _ = ok(&emulator, world.bench(&format!("track {}", run.argument())));
    assert_eq!(tracked(&emulator).len(), 1);
    assert_eq!(emulator.shows("violations"), json!([]));
}

#[test]
fn inside_a_run_of_the_platform_evidence_goes_to_that_run_whose_status_is_left_alone() {
    let world = World::new();
    let emulator = polyaxon(&world, "");
    let made = emulator.post(
        "/api/v1/default/bench/runs",
        &json!({ "name": "controller", "content": r#"{"kind":"component","run":{"kind":"job","container":{"image":"i"}}}"# }),
    );
    let id = made["uuid"].as_str().unwrap();
    world.write("bench.toml", "");
    let settings = format!("backend.polyaxon.host = '{}'", emulator.url());
    let line = "fixture --backend local --repetitions 1 --track polyaxon";
    let bench = emulator.point(world.bench(line)).env("SANDBOX_BENCH_SETTINGS", settings);
    let _ = bench.env("POLYAXON_RUN_INSTANCE", format!("default.bench.runs.{id}")).run().exits(0);
    let run = world.run();
    assert_published(&emulator, &run, id);
    let one = emulator.get(&format!("/api/v1/default/bench/runs/{id}"));
    assert_eq!((&one["inputs"]["kind"], &one["meta_info"]["evaluation_kind"]), (&json!("fixture"), &json!("fixture")));
    assert_eq!(one["status"], "queued");
}
