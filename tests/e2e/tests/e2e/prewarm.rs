//! Warm artifacts: made once, found again in every documented way, never silently replaced by a cold start.

use sandbox_bench_core::evidence::{Creates, Event};
use sandbox_bench_core::{ConditionProof, FailureClass};
use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{World, assert_shown};
use serde_json::Value;

const PREWARM: &str = "prewarm --backend local --dataset tasks";
const WARM: &str = "run --backend local --dataset tasks --condition warm --quiet";

fn world() -> World {
    let world = World::new();
    let _ = world.task("one", WANTS_DONE);
    world
}

/// Makes an artifact; returns its id.
fn prewarm(world: &World) -> String {
    let printed = world.bench(&format!("{PREWARM} --rebuild --quiet --format json")).run().exits(0).stdout;
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let id = printed[0]["artifacts"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(printed[0]["env"], format!("{}={id}", variable(world)));
    assert_eq!(world.last_run().json("prewarm-local.json"), printed[0]);
    id
}

/// The variable that names artifacts of `local`, as the program tells it.
fn variable(world: &World) -> String {
    let printed = world.bench("backends --format json").run().exits(0).stdout;
    let backends: Value = serde_json::from_str(&printed).unwrap();
    backends[0]["info"]["capabilities"]["artifact_variable"].as_str().unwrap().to_owned()
}

/// The artifact that the only attempt of the newest run was started from; it must be proven, and none may be new.
fn used(world: &World) -> String {
    let run = world.last_run();
    let attempt = run.attempt("one");
    assert!(matches!(attempt.proof, Some(ConditionProof::Proven { .. })), "{:?}", attempt.proof);
    let new = |event: &Event| matches!(event, Event::Intent { creates: Creates::Artifact, .. });
    assert!(!run.events().iter().any(new), "the run made an artifact");
    attempt.environment.unwrap().resolved
}

#[test]
fn an_artifact_is_made_once_and_printed_ready_for_a_shell() {
    let world = world();
    let shown = [PREWARM, PREWARM].map(|line| world.bench(line).run().exits(0).shown()).join("\n");
    assert_shown!("prewarm", shown);
}

#[test]
fn a_warm_run_finds_the_artifact_by_listing() {
    let world = world();
    let id = prewarm(&world);
    let _ = world.bench(WARM).run().exits(0);
    assert_eq!(used(&world), id);
}

#[test]
fn a_warm_run_takes_the_artifact_that_is_named() {
    let world = world();
    let ids = [prewarm(&world), prewarm(&world)];
    assert_ne!(ids[0], ids[1]);
    for id in &ids {
        let _ = world.bench(WARM).env(&variable(&world), id).run().exits(0);
        assert_eq!(&used(&world), id, "by the variable");
        let _ = world.bench(&format!("{WARM} --artifact local={id}")).env(&variable(&world), "other").run().exits(0);
        assert_eq!(&used(&world), id, "by the option, which wins");
    }
}

#[test]
fn an_artifact_that_is_not_there_is_an_error_and_nothing_starts_cold() {
    let world = world();
    let id = prewarm(&world);
    let _ = world.bench(&format!("artifacts delete --backend local {id}")).run().exits(0);
    for wrong in [id.as_str(), "no-such-artifact", "../../../etc"] {
        let outcome = world.bench(&format!("{WARM} --artifact local={wrong}")).run().exits(3);
        assert!(outcome.stderr.contains(&format!("the warm artifact {wrong} cannot be used")), "{}", outcome.stderr);
        let run = world.last_run();
        assert_eq!(run.attempt("one").failure.unwrap().class, FailureClass::Startup);
        let created = run.events().into_iter().any(|event| matches!(event, Event::Created { .. }));
        assert!(!created, "a sandbox was created");
    }
}

#[test]
fn artifacts_are_listed_and_deleted() {
    let world = world();
    let id = prewarm(&world);
    let list = "artifacts list --backend local";
    assert_shown!("artifacts-list", world.bench(list).run().exits(0).shown());
    let delete = format!("artifacts delete --backend local {id}");
    assert_eq!(world.bench(&delete).run().exits(0).stdout, format!("deleted {id}\n"));
    assert_shown!("artifacts-delete-again", world.bench(&delete).run().exits(2).shown());
    let _ = prewarm(&world);
    let _ = world.bench("artifacts delete --backend local --all").run().exits(0);
    assert_eq!(world.bench(&format!("{list} --format json")).run().exits(0).stdout, "[]\n");
}

#[test]
fn an_artifact_of_another_environment_is_not_ignored_in_silence() {
    let world = world();
    let other = prewarm(&world);
    let _ = world.task("one", WANTS_DONE).toml("env = { OTHER = 'yes' }");
    let outcome = world.bench(&format!("{WARM} --artifact local={other}")).run().exits(0);
    assert_eq!(
        outcome.stderr,
        format!("local: the warm artifact {other} fits no environment of this run and is not used\n")
    );
    assert_ne!(world.last_run().attempt("one").environment.unwrap().resolved, other);
}
