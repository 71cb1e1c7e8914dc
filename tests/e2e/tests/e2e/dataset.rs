//! `dataset`: list, inspect, validate, convert.

use std::collections::{BTreeMap, BTreeSet};

use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{World, assert_shown};
use serde_json::{Value, json};

/// Digests by task id, as `dataset list` has them.
fn digests(world: &World, dataset: &str) -> BTreeMap<String, String> {
    let listed = world.bench(&format!("dataset list {dataset} --format json")).run().exits(0).stdout;
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let text = |task: &Value, key: &str| task[key].as_str().unwrap().to_owned();
    listed.iter().map(|task| (text(task, "id"), text(task, "digest"))).collect()
}

#[test]
fn the_bundled_tasks_are_listed_inspected_and_valid() {
    let world = World::new();
    assert_shown!("dataset-list", world.bench("dataset list smoke").run().exits(0).shown());
    assert_shown!("dataset-inspect", world.bench("dataset inspect smoke relay-config").run().exits(0).shown());
    assert_shown!("dataset-validate", world.bench("dataset validate smoke").run().exits(0).shown());
}

#[test]
fn conversion_changes_the_container_and_not_the_tasks() {
    let world = World::new();
    let convert = |from: &str, to: &str, code: i32| {
        world.bench(&format!("dataset convert {from} --to {to} --out {to}")).run().exits(code).stderr
    };
    // Rows and directories have ids of different forms; the digests are those of the content.
    let digests = |dataset: &str| digests(&world, dataset).into_values().collect::<BTreeSet<String>>();
    let before = digests("smoke");
    assert_eq!(before.len(), 17);
    assert_eq!(convert("smoke", "jsonl", 0), "");
    assert_eq!(digests("jsonl"), before);
    assert_eq!(convert("jsonl", "parquet", 0), "");
    assert_eq!(digests("parquet"), before);
    // SWE-smith instances are rows by nature: they are told and left out, which is no success.
    let left_out = convert("parquet", "directories", 1);
    assert!(left_out.ends_with("4 tasks were left out: see above\n"), "{left_out}");
    let after = digests("directories");
    assert!(after.is_subset(&before), "{after:?}");
    assert_eq!((after.len(), left_out.lines().filter(|line| line.starts_with("left out: ")).count()), (13, 4));
}

#[test]
fn an_output_that_is_there_is_not_overwritten() {
    let world = World::new();
    let _ = world.task("one", WANTS_DONE);
    let line = "dataset convert tasks --to jsonl --out out";
    let _ = world.bench(line).run().exits(0);
    assert_shown!("convert-again", world.bench(line).run().exits(2).shown());
}

#[test]
fn every_fault_of_a_broken_data_set_is_told_with_its_place_and_its_remedy() {
    let world = World::new();
    broken(&world);
    let outcome = world.bench("dataset validate tasks").run().exits(1);
    assert_shown!("broken", outcome.shown());
    let problems = world.bench("dataset validate tasks --format json").run().exits(1).stdout;
    let problems: Vec<Value> = serde_json::from_str(&problems).unwrap();
    assert_eq!(problems.len(), outcome.stdout.lines().count() - 1);
    for problem in &problems {
        for part in ["file", "what", "remedy", "severity"] {
            assert!(!problem[part].as_str().unwrap().is_empty(), "{part} of {problem:#}");
        }
    }
    // What is broken does not keep the rest from running.
    let outcome = world.bench("run --backend local --dataset tasks --task sound").run().exits(0);
    assert!(outcome.stderr.contains("left out: tasks/rows.jsonl: line 6"), "{}", outcome.stderr);
}

/// One task for each kind of fault, in all forms, and one sound task.
fn broken(world: &World) {
    let task = |name: &str| world.task(name, WANTS_DONE);
    let _ = task("sound");
    let _ = task("bad-toml").file("task.toml", "[environment]\ndocker_image = \n");
    let _ = task("wrong-type").toml("memory_mb = 'plenty'");
    let _ = task("unknown-os").toml("os = 'plan9'");
    let _ = task("no-instruction").without("instruction.md");
    let _ = task("empty-instruction").file("instruction.md", " \n");
    let _ = task("latin-1-instruction").file("instruction.md", b"caf\xe9\n");
    let _ = task("no-test").without("tests");
    let _ = task("no-environment").file("task.toml", "");
    let outside = task("link-outside");
    std::os::unix::fs::symlink("/etc/passwd", outside.path().join("tests/passwd")).unwrap();
    let _ = task("windows-lines").file("tests/test.sh", "#!/bin/sh\r\nexit 0\r\n");
    let _ = task("bom").file("task.toml", "\u{feff}[environment]\ndocker_image = 'debian:bookworm-slim'\n");
    let _ = task("unreplayable")
        .dockerfile("FROM debian:bookworm-slim AS a\nFROM debian:bookworm-slim\nCOPY --from=a /x /y\n");

    let compose = "services:\n  client:\n    build: .\n";
    let old = |name: &str, yaml: &str, run_tests: bool| {
        world.write(&format!("tasks/{name}/task.yaml"), yaml);
        world.write(&format!("tasks/{name}/docker-compose.yaml"), compose);
        world.write(&format!("tasks/{name}/Dockerfile"), "FROM debian:bookworm-slim\n");
        if run_tests {
            world.write(&format!("tasks/{name}/run-tests.sh"), "exit 0\n");
        }
    };
    old("tb1-bad-yaml", "instruction: [\n", true);
    old("tb1-no-difficulty", "instruction: x\n", true);
    old("tb1-unknown-parser", "instruction: x\ndifficulty: easy\nparser_name: tarot\n", true);
    old("tb1-no-run-tests", "instruction: x\ndifficulty: easy\n", false);

    let files = |encoding: &str, content: &str| json!({ "encoding": encoding, "content": content });
    let rows = [
        json!({ "task_id": "not-base64", "prompt": "x", "instruction": "x", "task_files": files("tar.gz+base64", "%%%") }),
        json!({ "task_id": "not-gzip", "prompt": "x", "instruction": "x", "task_files": files("tar.gz+base64", "aGVsbG8=") }),
        json!({ "task_id": "encoding", "prompt": "x", "instruction": "x", "task_files": files("zip", "aGVsbG8=") }),
        json!({ "task_id": "no-files", "prompt": "x", "instruction": "x" }),
        json!({ "prompt": "x", "instruction": "x", "task_files": files("tar.gz+base64", "aGVsbG8=") }),
    ];
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    world.write("tasks/rows.jsonl", lines + "{\"task_id\": \"cut off\", \"pro");
    let bug = json!({
        "instance_id": "owner__repo.12345678.func_basic__abcdef", "repo": "swesmith/owner__repo.12345678",
        "patch": "not a patch", "image_name": "x", "FAIL_TO_PASS": ["t.py::a"], "PASS_TO_PASS": ["t.py::b"],
    });
    world.write("tasks/swesmith.jsonl", format!("{bug}\n"));
    world.write("tasks/rows.parquet", "PAR1 and nothing else");
}
