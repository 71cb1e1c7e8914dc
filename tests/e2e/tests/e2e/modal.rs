//! Whole runs on Modal, as its emulator plays it.

use sandbox_bench_core::ConditionProof;
use sandbox_bench_core::evidence::Cleanup;
use sandbox_bench_e2e::evidence::assert_hidden;
use sandbox_bench_e2e::{Emulator, World};
use serde_json::json;

/// Bundled tasks of three forms that need nothing but a shell.
const TASKS: &str = "relay-config,access-log,fifo-service";
const SECRET: &str = "as-emulator";

fn emulator() -> Emulator {
    Emulator::start("modal", "MODAL_CONFIG_PATH")
}

#[test]
fn gold_is_accepted_cold_and_warm_and_nothing_stays_behind() {
    let (world, emulator) = (World::new(), emulator());
    let bench = |line: &str| emulator.point(world.bench(line));
    let line = format!("run -vv --backend modal --dataset smoke --task {TASKS} --condition cold,warm --solver gold");
    let ran = bench(&line).run().exits(0);

    let run = world.run();
    run.validate();
    let attempts = run.attempts();
    assert_eq!(attempts.iter().filter(|attempt| attempt.accepted()).count(), 6);
    for attempt in &attempts {
        assert!(matches!(attempt.proof, Some(ConditionProof::Proven { .. })), "{:?}", attempt.proof);
        assert_eq!(attempt.cleanup, Cleanup::Confirmed);
        // What the workspace pays is in the evidence.
        let cost = &attempt.observation.as_ref().unwrap().cost_evidence;
        assert!(cost["rate.sandbox_cpu_core_hour"].parse::<f64>().is_ok(), "{cost:?}");
    }
    let listed = bench("artifacts list --backend modal --format json").run().exits(0);
    let artifacts: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let ids: Vec<&str> = artifacts.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert!(!ids.is_empty() && ids.iter().all(|id| id.starts_with("im-")), "{artifacts}");
    let deleted = bench(&format!("artifacts delete --backend modal {}", ids.join(" "))).run().exits(0);

    let state = emulator.shows("state");
    assert_eq!(state["machines"], json!([]));
    let sandboxes = state["sandboxes"].as_array().unwrap();
    assert!(sandboxes.iter().all(|one| one["tags"]["sandbox-bench-state"] == "destroyed"), "{state}");
    let images = state["images"].as_array().unwrap();
    assert!(ids.iter().all(|id| !images.contains(&json!(id))), "{state}");
    assert_eq!(emulator.shows("violations"), json!([]));
    assert_hidden(SECRET, world.path(), &[&ran.stdout, &ran.stderr, &listed.stdout, &deleted.stdout, &deleted.stderr]);
}

#[test]
fn missing_and_wrong_credentials_are_told_with_what_to_do() {
    let (world, emulator) = (World::new(), emulator());
    let line = format!("run --backend modal --dataset smoke --task {TASKS}");
    let wrong = emulator.point(world.bench(&line)).env("MODAL_TOKEN_SECRET", "as-wrong-s3cret").run();
    assert!(wrong.code != Some(0) && wrong.stderr.contains("MODAL_TOKEN_SECRET"), "{}", wrong.stderr);
    assert!(!(wrong.stdout + &wrong.stderr).contains("wrong-s3cret"));
    let none = emulator.point(world.bench(&line)).env("MODAL_TOKEN_ID", "").run();
    assert!(none.code != Some(0) && none.stderr.contains("set MODAL_TOKEN_ID"), "{}", none.stderr);
    assert_eq!(emulator.shows("state")["machines"], json!([]));
}
