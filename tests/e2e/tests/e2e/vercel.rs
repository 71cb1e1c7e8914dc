//! Whole runs on Vercel Sandbox, as its emulator plays it.

use sandbox_bench_core::ConditionProof;
use sandbox_bench_core::evidence::Cleanup;
use sandbox_bench_e2e::evidence::assert_hidden;
use sandbox_bench_e2e::{Emulator, World};
use serde_json::json;

/// Bundled tasks of three forms that need nothing but a shell.
const TASKS: &str = "relay-config,access-log,fifo-service";
const TOKEN: &str = "emulator-token";

fn emulator() -> Emulator {
    Emulator::start("vercel", "VERCEL_PROJECT_ID")
}

#[test]
fn gold_is_accepted_cold_and_warm_and_nothing_stays_behind() {
    let (world, emulator) = (World::new(), emulator());
    let bench = |line: &str| emulator.point(world.bench(line));
    let line = format!("run -vv --backend vercel --dataset smoke --task {TASKS} --condition cold,warm --solver gold");
    let ran = bench(&line).run().exits(0);

    let run = world.run();
    run.validate();
    let attempts = run.attempts();
    assert_eq!(attempts.iter().filter(|attempt| attempt.accepted()).count(), 6);
    for attempt in &attempts {
        assert!(matches!(attempt.proof, Some(ConditionProof::Proven { .. })), "{:?}", attempt.proof);
        assert_eq!(attempt.cleanup, Cleanup::Confirmed);
        // What the service tells of cost only at the end of a sandbox is in the evidence.
        let cost = &attempt.observation.as_ref().unwrap().cost_evidence;
        for fact in ["active_cpu_ms", "network_ingress_bytes", "network_egress_bytes"] {
            assert!(cost[fact].parse::<u64>().is_ok(), "{fact}: {cost:?}");
        }
    }

    let state = emulator.shows("state");
    let records = state["sandboxes"].as_array().unwrap();
    assert!(
        records.iter().all(|record| record["status"] == "stopped" && record["tags"].get("sandbox-bench").is_none())
    );
    assert_eq!(records.len(), state["snapshots"].as_array().unwrap().len(), "one record for each warm artifact");
    assert_eq!(state["machines"], json!([]));
    let ids: Vec<&str> = state["snapshots"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert!(!ids.is_empty());
    let deleted = bench(&format!("artifacts delete --backend vercel {}", ids.join(" "))).run().exits(0);
    let state = emulator.shows("state");
    assert_eq!((&state["sandboxes"], &state["snapshots"]), (&json!([]), &json!([])));
    assert_eq!(emulator.shows("violations"), json!([]));
    assert_hidden(TOKEN, world.path(), &[&ran.stdout, &ran.stderr, &deleted.stdout, &deleted.stderr]);
}

#[test]
fn a_replayed_recipe_runs_as_root_unless_it_names_a_user() {
    let (world, emulator) = (World::new(), emulator());
    let as_user = |id| format!("[ \"$(id -u)\" = {id} ] && echo 1 >/logs/verifier/reward.txt");
    let _ = world.task("root", &as_user(0)).dockerfile("FROM debian:bookworm-slim\nRUN mkdir /srv/made\n");
    let _ = world.task("daemon", &as_user(1)).dockerfile("FROM debian:bookworm-slim\nUSER daemon\n");
    let _ = emulator.point(world.bench("run --backend vercel --dataset tasks --solver none")).run().exits(0);
}

#[test]
fn missing_and_wrong_credentials_are_told_with_what_to_do() {
    let (world, emulator) = (World::new(), emulator());
    let line = format!("run --backend vercel --dataset smoke --task {TASKS}");
    let wrong = emulator.point(world.bench(&line)).env("VERCEL_TOKEN", "wrong-s3cret").run();
    assert!(wrong.code != Some(0) && wrong.stderr.contains("VERCEL_TOKEN"), "{}", wrong.stderr);
    assert!(!(wrong.stdout + &wrong.stderr).contains("wrong-s3cret"));
    let project = emulator.point(world.bench(&line)).env("VERCEL_PROJECT_ID", "prj_another").run();
    assert!(project.code != Some(0) && project.stderr.contains("VERCEL_PROJECT_ID"), "{}", project.stderr);
    let none = emulator.point(world.bench(&line)).env("VERCEL_TOKEN", "").env("VERCEL_OIDC_TOKEN", "").run();
    assert!(none.code != Some(0) && none.stderr.contains("set VERCEL_TOKEN"), "{}", none.stderr);
    assert_eq!(emulator.shows("state")["sandboxes"], json!([]));
}
