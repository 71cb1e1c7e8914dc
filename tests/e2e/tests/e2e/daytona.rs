//! Whole runs on Daytona, as its emulator plays it.

use sandbox_bench_core::ConditionProof;
use sandbox_bench_core::evidence::Cleanup;
use sandbox_bench_e2e::evidence::assert_hidden;
use sandbox_bench_e2e::{Emulator, World};
use serde_json::json;

/// Bundled tasks of three forms that need nothing but a shell.
const TASKS: &str = "relay-config,access-log,fifo-service";
const KEY: &str = "dtn_emulator";

fn emulator() -> Emulator {
    Emulator::start("daytona", "DAYTONA_API_KEY")
}

#[test]
fn gold_is_accepted_cold_and_warm_and_nothing_stays_behind() {
    let (world, emulator) = (World::new(), emulator());
    let bench = |line: &str| emulator.point(world.bench(line));
    let line = format!("run -vv --backend daytona --dataset smoke --task {TASKS} --condition cold,warm --solver gold");
    let ran = bench(&line).run().exits(0);

    let run = world.run();
    run.validate();
    let attempts = run.attempts();
    assert_eq!(attempts.iter().filter(|attempt| attempt.accepted()).count(), 6);
    for attempt in &attempts {
        assert!(matches!(attempt.proof, Some(ConditionProof::Proven { .. })), "{:?}", attempt.proof);
        assert_eq!(attempt.cleanup, Cleanup::Confirmed);
        // What a bill is made from is in the evidence.
        let cost = &attempt.observation.as_ref().unwrap().cost_evidence;
        for fact in ["reserved_vcpu", "reserved_memory_gib", "reserved_disk_gib"] {
            assert!(cost[fact].parse::<f64>().is_ok(), "{fact}: {cost:?}");
        }
    }
    let state = emulator.shows("state");
    assert_eq!((&state["machines"], &state["sandboxes"]), (&json!([]), &json!([])));
    assert_eq!(emulator.shows("violations"), json!([]));
    let listed = bench("artifacts list --backend daytona").run().exits(0);
    assert!(listed.stdout.contains("sbx-"), "the warm artifacts are listed: {}", listed.stdout);
    assert_hidden(KEY, world.path(), &[&ran.stdout, &ran.stderr, &listed.stdout, &listed.stderr]);
}

#[test]
fn missing_and_wrong_credentials_are_told_with_what_to_do() {
    let (world, emulator) = (World::new(), emulator());
    let line = format!("run --backend daytona --dataset smoke --task {TASKS}");
    let wrong = emulator.point(world.bench(&line)).env("DAYTONA_API_KEY", "dtn_wrong-s3cret").run();
    assert!(wrong.code != Some(0) && wrong.stderr.contains("DAYTONA_API_KEY"), "{}", wrong.stderr);
    assert!(!(wrong.stdout + &wrong.stderr).contains("wrong-s3cret"));
    let none = emulator.point(world.bench(&line)).env("DAYTONA_API_KEY", "").env("DAYTONA_JWT_TOKEN", "").run();
    assert!(none.code != Some(0) && none.stderr.contains("set DAYTONA_API_KEY"), "{}", none.stderr);
    assert_eq!(emulator.shows("state")["machines"], json!([]));
}
