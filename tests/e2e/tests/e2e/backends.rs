//! `backends` and `doctor`: what a backend can do, and whether it can be used from here.

use std::fs;

use sandbox_bench_e2e::{Emulator, World, assert_shown, docker};
use serde_json::Value;

/// Times, machine facts and the state directory differ from machine to machine.
fn steady(text: &str) -> String {
    let mut steady = String::new();
    for line in text.lines() {
        let line = match line.split_whitespace().next() {
            Some("configuration") if line.contains("embedded") => "configuration  ok  embedded, Linux [release]",
            Some("credentials") if line.contains("uid") => "credentials  ok  uid [uid]",
            Some("reachability") if line.contains(" ms") => "reachability  ok  one small request took [time]",
            Some("quota") if line.contains("state directory") => "quota  [ok or warning]  [state]",
            Some("sandbox") if line.contains("ready after") => "sandbox  ok  made in [time], ready after [time]",
            _ => line,
        };
        steady += line;
        steady.push('\n');
    }
    steady
}

#[test]
fn the_doctor_finds_local_in_good_health_and_leaves_nothing() {
    let world = World::new();
    let outcome = world.bench("doctor --backend local").run().exits(0);
    assert_shown!("doctor-local", steady(&outcome.shown()));
    let left = fs::read_dir(world.path().join("state/sandbox-bench/local/sandboxes")).unwrap().count();
    assert_eq!(left, 0, "its sandbox is still there");
    let told = world.bench("doctor --backend local --format json").run().exits(0).stdout;
    let told: Vec<Value> = serde_json::from_str(&told).unwrap();
    let states = |name: &str| told[0]["checks"].as_array().unwrap().iter().find(|c| c["name"] == name).unwrap().clone();
    assert_eq!((&states("sandbox")["state"], &states("cleanup")["state"]), (&"ok".into(), &"ok".into()));
}

/// The hard cases of a diagnosis, by name, with how they came out.
fn hard(told: &str) -> Vec<(String, String)> {
    let told: Vec<Value> = serde_json::from_str(told).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    told[0]["hard"].as_array().unwrap().iter().map(|case| (text(&case["name"]), text(&case["state"]))).collect()
}

#[test]
fn local_stands_all_hard_cases() {
    let world = World::new();
    let outcome = world.bench("doctor --backend local --hard").run().exits(0);
    assert_shown!("doctor-hard", steady(&outcome.shown()));
    let left = fs::read_dir(world.path().join("state/sandbox-bench/local/sandboxes")).unwrap().count();
    assert_eq!(left, 0, "a sandbox is still there");
}

#[test]
fn docker_stands_all_hard_cases() {
    if !docker::wanted() {
        return;
    }
    let told = World::new().bench("doctor --backend docker --hard --format json").run().exits(0).stdout;
    assert!(hard(&told).len() == 8 && hard(&told).iter().all(|(_, state)| state == "ok"), "{told}");
}

/// `vendor`, as its emulator plays it, stands all hard cases and is left with nothing.
fn emulated(vendor: &str, last: &str) {
    let (world, emulator) = (World::new(), Emulator::start(vendor, last));
    world.write("bench.toml", "[backend.polyaxon]\nproject = 'default/bench'\n");
    let bench = world.bench(&format!("doctor --backend {vendor} --hard --format json"));
    let told = emulator.point(bench).run().exits(0).stdout;
    assert!(hard(&told).len() == 8 && hard(&told).iter().all(|(_, state)| state == "ok"), "{told}");
    assert_eq!(emulator.shows("state")["machines"], serde_json::json!([]));
}

#[test]
fn aws_microvm_stands_all_hard_cases() {
    emulated("aws-microvm", "AWS_MICROVM_ARCH");
}

#[test]
fn polyaxon_stands_all_hard_cases() {
    emulated("polyaxon", "POLYAXON_EMULATOR_PROJECT");
}

#[test]
fn daytona_stands_all_hard_cases() {
    emulated("daytona", "DAYTONA_API_KEY");
}

#[test]
fn modal_stands_all_hard_cases() {
    emulated("modal", "MODAL_CONFIG_PATH");
}

#[test]
fn vercel_stands_all_hard_cases() {
    emulated("vercel", "VERCEL_PROJECT_ID");
}

#[test]
fn a_hard_case_that_fails_is_named_and_the_others_are_tried() {
    let world = World::new();
    world.write("bench.toml", "[backend.polyaxon]\nproject = 'default/bench'\n");
    // The doctor's own command passes; that of the first case does not.
    let faults = "[[rule]]\nmethod = 'POST'\npath = '/sandbox/v1/**/exec/stream'\nskip = 1\ntimes = 1\n\
                  effect = { kind = 'answer', status = 403, body = '{\"error\":{\"code\":\"forbidden\",\"message\":\"no\"}}' }\n";
    world.write("faults.toml", faults);
    let faults = world.path().join("faults.toml");
    let emulator =
        Emulator::start_with("polyaxon", "POLYAXON_EMULATOR_PROJECT", &["--faults", faults.to_str().unwrap()]);
    let told = emulator.point(world.bench("doctor --backend polyaxon --hard --format json")).run().exits(3).stdout;
    let failed: Vec<String> =
        hard(&told).into_iter().filter(|(_, state)| state != "ok").map(|(name, _)| name).collect();
    assert_eq!(failed, ["normal task"], "{told}");
    assert_eq!(emulator.shows("state")["machines"], serde_json::json!([]));
}

#[test]
fn the_doctor_says_what_is_wrong_and_what_to_do() {
    let world = World::new();
    world.write("wrong.toml", "[backend.local]\nstate_dri = '/nowhere'\n");
    world.write("here.toml", "[backend.docker]\nhost = 'ssh://me@host'\n");
    let shown = [
        world.bench("doctor --backend local --config wrong.toml").run().exits(2),
        world.bench("doctor --backend nowhere").run().exits(2),
        world.bench("doctor --backend docker --config here.toml").run().exits(2),
        world.bench("doctor --backend docker").env("DOCKER_HOST", "tcp://127.0.0.1:1").run().exits(3),
        world.bench("doctor --backend docker").env("DOCKER_HOST", "unix:///no/such.sock").run().exits(3),
    ];
    assert_shown!("doctor-wrong", shown.map(|outcome| outcome.shown()).join("\n"));
}

#[test]
fn the_doctor_runs_a_container_and_removes_it() {
    if !docker::wanted() {
        return;
    }
    let world = World::new();
    let outcome = world.bench("doctor --backend docker --format json").run().exits(0).stdout;
    let told: Vec<Value> = serde_json::from_str(&outcome).unwrap();
    for check in told[0]["checks"].as_array().unwrap() {
        assert!(check["state"] != "failed", "{check}");
    }
}

#[test]
fn a_configured_backend_that_does_not_answer_is_an_error_and_another_is_not() {
    let world = World::new();
    let dead = "tcp://127.0.0.1:1";
    let outcome = world.bench("backends").env("DOCKER_HOST", dead).run().exits(0);
    assert!(outcome.stdout.contains("Connection refused"), "{}", outcome.stdout);
    let _ = world.bench("backends --backend docker").env("DOCKER_HOST", dead).run().exits(3);
    let _ = world.bench("backends --backend local").env("DOCKER_HOST", dead).run().exits(0);
    world.write("bench.toml", "[backend.docker]\npull = 'never'\n");
    let outcome = world.bench("backends --format json").env("DOCKER_HOST", dead).run().exits(3);
    let told: Vec<Value> = serde_json::from_str(&outcome.stdout).unwrap();
    let docker = told.iter().find(|one| one["name"] == "docker").unwrap();
    assert_eq!((&docker["configured"], &docker["info"]), (&true.into(), &Value::Null));
    let local = told.iter().find(|one| one["name"] == "local").unwrap();
    assert_eq!((&local["configured"], &local["info"]["capabilities"]["base"]), (&false.into(), &true.into()));
    world.write("bench.toml", "[backend.docker]\npull = 'sometimes'\n");
    let _ = world.bench("backends").run().exits(2);
    let _ = world.bench("backends --backend nowhere").run().exits(2);
}

#[test]
fn capabilities_stand_side_by_side() {
    if !docker::wanted() {
        return;
    }
    let world = World::new();
    let table = world.bench("backends").run().exits(0).stdout;
    let header = table.lines().find(|line| line.starts_with("capability")).expect("a table");
    let column = |name: &str| header.find(name).expect(name);
    for line in table.lines().skip_while(|line| !line.starts_with("isolation")) {
        // A cell begins where its column does.
        for start in [column("local"), column("docker")] {
            let before = line.char_indices().nth(start - 1).map(|(_, c)| c);
            assert_eq!(before, Some(' '), "{line:?} is not aligned at {start}:\n{table}");
        }
    }
}
