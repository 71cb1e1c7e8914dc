//! Whole runs on AWS Lambda MicroVMs, as their emulator plays them.

use sandbox_bench_core::evidence::{Attempt, Cleanup};
use sandbox_bench_core::{Condition, ConditionProof, FailureClass, Phase};
use sandbox_bench_e2e::evidence::assert_hidden;
use sandbox_bench_e2e::{Emulator, World};
use serde_json::json;

/// Bundled tasks of three forms that need nothing but a shell.
const TASKS: &str = "relay-config,access-log,fifo-service";
const SECRET: &str = "emulator-secret";
const BUCKET: &str = "contexts";
const ROLE: &str = "arn:aws:iam::123456789012:role/build";

fn emulator() -> Emulator {
    Emulator::start_with("aws-microvm", "AWS_MICROVM_ARCH", &["--bucket", BUCKET])
}

#[test]
fn gold_is_accepted_cold_and_warm_and_nothing_stays_behind() {
    let (world, emulator) = (World::new(), emulator());
    let bench = |line: &str| emulator.point(world.bench(line));
    let line =
        format!("run -vv --backend aws-microvm --dataset smoke --task {TASKS} --condition cold,warm --solver gold");
    let ran = bench(&line).run().exits(0);

    let run = world.run();
    run.validate();
    let attempts = run.attempts();
    assert_eq!(attempts.iter().filter(|attempt| attempt.accepted()).count(), 6);
    for attempt in &attempts {
        assert!(matches!(attempt.proof, Some(ConditionProof::Proven { .. })), "{:?}", attempt.proof);
        assert_eq!(attempt.cleanup, Cleanup::Confirmed);
        let cost = &attempt.observation.as_ref().unwrap().cost_evidence;
        assert!(cost["running_seconds"].parse::<f64>().is_ok_and(|seconds| seconds > 0.0), "{cost:?}");
        assert!(cost["lower_bound"].contains("baseline"), "{cost:?}");
    }

    let state = emulator.shows("state");
    assert_eq!(state["machines"], json!([]));
    let running = state["microvms"].as_object().unwrap().values().filter(|vm| vm["state"] != "TERMINATED").count();
    assert_eq!(running, 0);
    let listed = bench("artifacts list --backend aws-microvm --format json").run().exits(0).stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let ids: Vec<&str> = listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert!(ids.iter().any(|id| id.contains(":sb-warm-")) && ids.iter().any(|id| id.contains(":sb-env-")), "{ids:?}");
    let deleted = bench(&format!("artifacts delete --backend aws-microvm {}", ids.join(" "))).run().exits(0);
    assert_eq!(emulator.shows("state")["images"], json!({}));
    assert_eq!(emulator.shows("violations"), json!([]));
    assert_hidden(SECRET, world.path(), &[&ran.stdout, &ran.stderr, &deleted.stdout, &deleted.stderr]);
}

#[test]
fn a_resumed_sandbox_is_proven_to_be_one_and_its_create_is_the_resumption() {
    let (world, emulator) = (World::new(), emulator());
    let line = format!(
        "run -vv --backend aws-microvm,local --dataset smoke --task {TASKS} --condition cold,resumed --solver gold"
    );
    let bench = emulator.point(world.bench(&line));
    let ran = bench.run().exits(0);

    let run = world.run();
    run.validate();
    let attempts = run.attempts();
    let of = |backend: &str, condition: Condition| {
        let chosen = attempts.iter().filter(|a| a.trial.backend == backend && a.trial.condition == condition);
        let chosen: Vec<_> = chosen.collect();
        assert_eq!(chosen.len(), 3);
        chosen
    };
    for attempt in of("aws-microvm", Condition::Resumed) {
        assert!(attempt.accepted(), "{:?}", attempt.failure);
        let Some(ConditionProof::Proven { why }) = &attempt.proof else { panic!("{:?}", attempt.proof) };
        assert!(why.contains("goes on"), "{why}");
        assert_eq!(attempt.cleanup, Cleanup::Confirmed);
        // Made and suspended in the environment's time, from the same source as a cold one.
        let phases: Vec<Phase> = attempt.phases.iter().map(|span| span.phase).take(4).collect();
        assert_eq!(phases, [Phase::Environment, Phase::Environment, Phase::Create, Phase::Ready]);
        let cold = of("aws-microvm", Condition::Cold).into_iter().find(|cold| cold.trial.task == attempt.trial.task);
        let source = |attempt: &Attempt| attempt.environment.as_ref().map(|made| (made.way, made.resolved.clone()));
        assert_eq!(source(attempt), source(cold.unwrap()));
        let cost = &attempt.observation.as_ref().unwrap().cost_evidence;
        let seconds = |fact: &str| cost[fact].parse::<f64>().unwrap();
        assert!(seconds("running_seconds") > 0.0 && seconds("suspended_seconds") >= 0.0, "{cost:?}");
    }
    for attempt in of("local", Condition::Resumed) {
        let failure = attempt.failure.as_ref().unwrap();
        assert_eq!((failure.class, attempt.sandbox.as_ref()), (FailureClass::Unavailable, None));
        assert!(failure.message.contains("condition resumed on local"), "{}", failure.message);
    }
    for (backend, condition) in [("aws-microvm", Condition::Cold), ("local", Condition::Cold)] {
        assert!(of(backend, condition).iter().all(|attempt| attempt.accepted()));
    }
    // A row of its own.
    assert!(
        ran.stdout.lines().any(|line| line.contains("aws-microvm") && line.contains(" resumed ")),
        "{}",
        ran.stdout
    );

    assert_eq!(emulator.shows("state")["machines"], json!([]));
    assert_eq!(emulator.shows("violations"), json!([]));
}

#[test]
fn prewarm_takes_bucket_and_role_from_the_command_line_and_run_takes_its_image() {
    let (world, emulator) = (World::new(), emulator());
    let tasks = "--backend aws-microvm --dataset smoke --task relay-config";
    let bench = |line: &str| {
        let bench = emulator.point(world.bench(line));
        bench.env("AWS_MICROVM_ARTIFACT_BUCKET", "").env("AWS_MICROVM_BUILD_ROLE_ARN", "")
    };
    let without = bench(&format!("prewarm {tasks}")).run();
    assert!(without.code != Some(0), "{}", without.stdout);
    let told = without.stdout + &without.stderr;
    assert!(told.contains("--aws-build-role-arn"), "{told}");

    let line = format!("prewarm {tasks} --aws-bucket {BUCKET} --aws-build-role-arn {ROLE}");
    let made = bench(&line).run().exits(0);
    let variable = made.stdout.lines().find_map(|line| line.strip_prefix("AWS_MICROVM_IMAGE_ID=")).unwrap();
    // Neither bucket nor role is needed any more.
    let line = format!("run {tasks} --condition warm --solver gold");
    let _ = bench(&line).env("AWS_MICROVM_IMAGE_ID", variable).run().exits(0);
    assert_eq!(emulator.shows("violations"), json!([]));
}
