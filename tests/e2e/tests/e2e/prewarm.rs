//! Warm artifacts: made once, found again in every documented way, never silently replaced by a cold start.

use sandbox_bench_core::evidence::{Creates, Event};
use sandbox_bench_core::{ConditionProof, FailureClass};
use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{Emulator, World, assert_shown};
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
    let run = world.last_run();
    assert_eq!(run.json(&format!("prewarm-local-{}.json", run.id())), printed[0]);
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

#[test]
fn what_newer_artifacts_have_replaced_is_pruned_and_the_newest_is_used() {
    let world = world();
    let ids = [prewarm(&world), prewarm(&world), prewarm(&world)];
    let prune =
        |options: &str| world.bench(&format!("artifacts prune --backend local {options}")).run().exits(0).stdout;
    let old = |what: &str| format!("{what} {}\n{what} {}\n", ids[1], ids[0]);
    assert_eq!(prune("--dry-run"), old("would delete"));
    let _ = world.bench(WARM).run().exits(0);
    assert_eq!(used(&world), ids[2]);
    assert_eq!(prune(""), old("deleted"));
    assert_eq!(prune(""), "");
    assert_eq!(prune("--older-than 1"), "", "it was made today");
    let _ = world.bench(WARM).run().exits(0);
    assert_eq!(used(&world), ids[2]);
    assert_eq!(prune("--older-than 0"), format!("deleted {}\n", ids[2]));
}

#[test]
fn every_backend_has_its_file_and_one_without_artifacts_is_no_failure_beside_others() {
    let world = world();
    let emulators = [("daytona", "DAYTONA_API_KEY"), ("polyaxon", "POLYAXON_EMULATOR_PROJECT")];
    let emulators = emulators.map(|(vendor, last)| Emulator::start(vendor, last));
    world.write("bench.toml", "[backend.polyaxon]\nproject = 'default/bench'\n");
    let bench = |line: &str| emulators.iter().fold(world.bench(line), |bench, emulator| emulator.point(bench));
    let line = "prewarm --backend local,daytona,polyaxon --dataset tasks --quiet";
    let first = bench(line).run().exits(0).stdout;
    assert!(first.contains("local: 1 warm artifact, 1 new\nLOCAL_SNAPSHOT="), "{first}");
    assert!(first.contains("daytona: 1 warm artifact, 1 new\nDAYTONA_SNAPSHOT="), "{first}");
    assert!(first.contains("polyaxon: 0 warm artifacts, 0 new\n"), "{first}");
    let run = world.last_run();
    run.validate();
    for backend in ["local", "daytona"] {
        let file = run.json(&format!("prewarm-{backend}-{}.json", run.id()));
        let artifact = &file["artifacts"][0];
        assert!(artifact["built_us"].as_u64() > Some(0) && artifact["fingerprint"].is_string(), "{file:#}");
        let (_, ids) = file["env"].as_str().unwrap().split_once('=').unwrap();
        assert_eq!(artifact["id"], ids);
    }
    let none = run.json(&format!("prewarm-polyaxon-{}.json", run.id()));
    assert_eq!(none["failures"][0], "the polyaxon backend has no warm artifacts");
    let again = bench(line).run().exits(0).stdout;
    assert_eq!(again, first.replace("1 new", "0 new"), "what is valid is used again");
    // Alone, nothing was made: that is not what was asked for.
    let alone = bench("prewarm --backend polyaxon --dataset tasks --quiet").run().exits(3);
    assert!(alone.stderr.contains("some environments have no warm artifact"), "{}", alone.stderr);
}

#[test]
fn a_quota_that_is_used_up_is_asked_for_once() {
    let world = world();
    for (name, value) in [("two", "2"), ("three", "3")] {
        let _ = world.task(name, WANTS_DONE).toml(&format!("env = {{ OTHER = '{value}' }}"));
    }
    let daytona = Emulator::start_with("daytona", "DAYTONA_API_KEY", &["--snapshot-quota", "1"]);
    let line = "prewarm --backend daytona --dataset tasks --quiet --format json";
    let made = daytona.point(world.bench(line)).run().exits(3).stdout;
    let made: Value = serde_json::from_str(&made).unwrap();
    let failures: Vec<&str> = made[0]["failures"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert_eq!((made[0]["artifacts"].as_array().unwrap().len(), failures.len()), (1, 2), "{made:#}");
    let not_tried =
        failures.iter().filter(|why| why.starts_with("not tried, as daytona had no room for the one before"));
    assert_eq!(not_tried.count(), 1, "{failures:?}");
    assert!(failures.iter().all(|why| why.contains("quota")), "{failures:?}");
}

#[test]
fn a_report_tells_what_artifacts_save_and_what_their_making_took() {
    let world = World::new();
    // What the environment takes is in the artifact.
    let _ = world.task("one", WANTS_DONE).dockerfile("FROM debian:bookworm-slim\nRUN sleep 1\n");
    let _ = world.bench(&format!("{PREWARM} --quiet")).run().exits(0);
    let prewarm = world.last_run();
    let _ = world.bench("run --backend local --dataset tasks --condition cold,warm --quiet").run().exits(0);
    let run = world.last_run();
    let line = format!("report {} {} --html both", prewarm.argument(), run.argument());
    let _ = world.bench(&line).run().exits(0);
    let read = |name: &str| std::fs::read_to_string(world.path().join("both").join(name)).unwrap();
    let times = read("times.md");
    let row = times.lines().find(|line| line.contains("local cold → ")).unwrap();
    let columns: Vec<&str> = row.split('|').map(str::trim).collect();
    let [saved, artifacts, made_in, pays] = columns[5..9] else { panic!("{row}") };
    assert!(saved.ends_with(" s") || saved.ends_with(" ms"), "{row}");
    assert_eq!((artifacts, made_in.ends_with(" s"), pays.contains(" trial")), ("1", true, true), "{row}");
    let gaps = read("gaps.md");
    assert!(!gaps.contains("planned trials were not run") && !gaps.contains("nothing was run"), "{gaps}");
    let summary = prewarm.json("summary.json");
    assert_eq!((&summary["outcome"], &summary["totals"]["planned"]), (&"accepted".into(), &0.into()));
    assert_eq!(summary["cells"].as_array().unwrap().len(), 0);
    prewarm.validate();
}
