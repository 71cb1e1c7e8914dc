//! Whole runs of bundled tasks on `local`: what a person sees, and evidence that explains every number of it.

use std::collections::BTreeSet;

use sandbox_bench_core::evidence::{Creates, Event};
use sandbox_bench_core::{Condition, ConditionProof, Destruction, Digest, FailureClass};
use sandbox_bench_e2e::{RunDir, World, assert_shown, recount};
use serde_json::{Value, json};

/// Bundled tasks of three forms that need nothing but a shell.
const TASKS: &str = "relay-config,access-log,fifo-service";

#[test]
fn gold_is_accepted_cold_warm_and_reused_and_the_evidence_explains_it() {
    let world = World::new();
    let line = format!("run --backend local --dataset smoke --task {TASKS} --condition cold,warm,reuse");
    assert_shown!("gold", world.bench(&line).run().exits(0).shown());

    let run = world.run();
    run.validate();
    assert_eq!(std::fs::read(run.path().join("trials.parquet")).unwrap()[..4], *b"PAR1");
    recount::check(&run);
    every_output_is_what_its_digest_says(&run);
    nothing_was_created_unannounced_or_left(&run);
    let proven = |a: &_| matches!(a, Some(ConditionProof::Proven { .. }));
    assert!(run.attempts().iter().all(|attempt| proven(&attempt.proof)));
    let reused: BTreeSet<String> = run
        .attempts()
        .into_iter()
        .filter(|attempt| attempt.trial.condition == Condition::Reuse)
        .map(|attempt| attempt.sandbox.unwrap().id)
        .collect();
    assert_eq!(reused.len(), 3, "one session for each environment");
}

#[test]
fn doing_nothing_is_rejected_and_that_is_no_failure() {
    let world = World::new();
    let line = format!("run --backend local --dataset smoke --task {TASKS} --solver none");
    assert_shown!("none", world.bench(&line).run().exits(1).shown());
    let run = world.run();
    run.validate();
    recount::check(&run);
    assert!(run.attempts().iter().all(|attempt| attempt.failure.as_ref().unwrap().class == FailureClass::Rejected));
    assert_eq!(run.json("summary.json")["totals"]["rejected"], json!(3));
}

#[test]
fn every_bundled_task_is_solved_by_its_solution_and_by_nothing_less() {
    let world = World::new();
    let run = "run --backend local --dataset smoke -j 2 --quiet --format json";
    for (solver, code, wanted) in [("gold", 0, "accepted"), ("none", 1, "rejected")] {
        let printed = world.bench(&format!("{run} --solver {solver}")).run().exits(code).stdout;
        let totals = serde_json::from_str::<Value>(&printed).unwrap()["totals"].take();
        // Without Python on the host, the tasks that need it are unavailable.
        assert_eq!(totals[wanted].as_u64().unwrap() + totals["unavailable"].as_u64().unwrap(), 17, "{totals:#}");
        assert!(totals[wanted].as_u64().unwrap() >= 8, "{totals:#}");
    }
}

#[test]
fn the_report_is_rebuilt_from_the_journal() {
    let world = World::new();
    let _task = world.task("one", sandbox_bench_e2e::task::WANTS_DONE);
    let shown = world.bench("run --backend local --dataset tasks --quiet").run().exits(0).stdout;
    let run = world.run();
    let derived = ["summary.json", "trials.jsonl", "trials.parquet", "cleanup.json"];
    let contents = || derived.map(|name| std::fs::read(run.path().join(name)).unwrap());
    let before = contents();
    for name in derived {
        std::fs::remove_file(run.path().join(name)).unwrap();
    }
    let again = world.bench(&format!("report {}", run.argument())).run().exits(0).stdout;
    let page = format!("report:   {}/report/index.html\n", run.argument());
    assert_eq!(again, shown.clone() + &page);
    assert!(contents() == before, "a derived file differs after it was rebuilt");

    let page = || std::fs::read(run.path().join("report/index.html")).unwrap();
    let first = page();
    let _ = world.bench(&format!("report {} --format json", run.argument())).run().exits(0);
    assert!(page() == first, "equal evidence gives an equal page");
    let both = world.bench(&format!("report {0} {0}", run.argument())).run().exits(0).stdout;
    assert!(both.ends_with("report:   results/report/index.html\n"), "{both}");
    let elsewhere = world.bench(&format!("report {} --html out/of/the/way", run.argument())).run().exits(0).stdout;
    assert!(elsewhere.ends_with("report:   out/of/the/way/index.html\n"), "{elsewhere}");
    assert_eq!(world.bench("reap").run().exits(0).stdout, "nothing to clean up\n", "a report is no run");
}

fn every_output_is_what_its_digest_says(run: &RunDir) {
    let outputs: Vec<_> = run.attempts().into_iter().flat_map(|attempt| attempt.outputs).collect();
    assert!(!outputs.is_empty());
    for output in outputs {
        let bytes = run.output(&output);
        assert_eq!((Digest::of(&bytes), bytes.len() as u64), (output.digest, output.size), "{}", output.name);
    }
}

fn nothing_was_created_unannounced_or_left(run: &RunDir) {
    let mut announced = BTreeSet::new();
    let mut there = BTreeSet::new();
    let mut created = 0;
    for event in run.events() {
        match event {
            Event::Intent { tag, creates, .. } => {
                assert!(announced.insert((tag.to_string(), creates == Creates::Artifact)))
            }
            Event::Created { sandbox } => {
                created += 1;
                assert!(announced.contains(&(sandbox.tag.to_string(), false)), "{sandbox:?} was not announced");
                there.insert(sandbox.id);
            }
            Event::ArtifactReady { artifact } => {
                assert!(announced.contains(&(artifact.tag.unwrap().to_string(), true)), "not announced");
            }
            Event::Destroyed { sandbox, outcome } => {
                assert_eq!(outcome, Destruction::Confirmed);
                assert!(there.remove(&sandbox.id));
            }
            _ => {}
        }
    }
    assert_eq!(created, 3 * 2 + 3 + 3, "cold and warm trials, sessions, and the making of artifacts");
    assert!(there.is_empty(), "never destroyed: {there:?}");
}
