//! Runs of other programs: taken in, reported on as what they are, and given back.

use std::path::Path;
use std::process::Command;

use sandbox_bench_core::{Decision, FailureClass};
use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{World, assert_shown};
use serde_json::{Value, json};

const COLD: &str = "ts-modal-cold-verifier-all-20260528.json";
const WARM: &str = "ts-modal-warm-verifier-all-20260528.json";
const PREWARM: &str = "prewarm-modal-terminalbench-20260528.json";
const MATRIX: &str = "matrix.json";

/// A result of code-sandbox-bench: `start` seconds for the sandbox, 1 s for all else that was reached.
fn result(task: &str, code: i64, start: f64, stderr: &str) -> Value {
    json!({
        "task_id": task, "task_cpu": 2, "task_memory_gb": 4, "task_disk_gb": 10, "env_type": "terminalbench",
        "task_workdir": "/workspace", "passed": code == 0, "return_code": code, "elapsed_seconds": start + 5.25,
        "phases": {
            "start_seconds": start, "upload_seconds": 1.0, "prepare_seconds": 1.0, "instruction_write_seconds": 1.0,
            "verify_seconds": 1.0, "stop_seconds": 1.0,
        },
        "stdout_tail": "collected 1 item\n", "stderr_tail": stderr, "resource_policy": "static",
    })
}

/// The older form: mode, kind and data set are in the file's name alone.
fn results(warm: bool) -> Value {
    let start = if warm { 0.5 } else { 2.5 };
    let results = [
        result("a", 0, start, ""),
        result("b", 1, start + 1.0, "FAILED tests/test_b.py::test_b - assert 1 == 2\n"),
        result("c", 124, start + 30.0, "timed out after 30s"),
        result("d", 127, start, "sh: 1: pytest: not found\n"),
    ];
    json!({
        "provider": "modal", "runtime": "python:3.13", "task_count": 4, "solve_enabled": false, "passed": 1,
        "results": results,
    })
}

fn prewarm() -> Value {
    json!({
        "provider": "modal", "profile": "terminalbench-smoke", "runtime": "python:3.13", "modal_image_id": "im-1",
        "env": "MODAL_IMAGE_ID=im-1",
    })
}

/// A place with a matrix, its two result files and what prewarm wrote.
fn world() -> World {
    let world = World::new();
    let entry = |mode: &str, output: &str| {
        json!({
            "provider": "modal", "mode": mode, "runtime": "python:3.13", "task_concurrency": 2, "exit_code": 1,
            "output": output, "elapsed_seconds": 60.5,
        })
    };
    let matrix = json!({
        "generated_at": "2026-05-28T00:00:00Z", "run_concurrency": 2,
        "effective_task_concurrency_per_run": {"modal-cold": 2, "modal-warm": 2},
        "results": [entry("cold", COLD), entry("warm", WARM)],
    });
    for (name, content) in [(COLD, results(false)), (WARM, results(true)), (PREWARM, prewarm()), (MATRIX, matrix)] {
        world.write(&format!("in/{name}"), content.to_string());
    }
    world
}

fn read(world: &World, path: &str) -> Value {
    let path = world.path().join(path);
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

fn text(world: &World, path: &str) -> String {
    std::fs::read_to_string(world.path().join(path)).unwrap()
}

#[test]
fn a_matrix_is_taken_in_reported_and_given_back() {
    let world = world();
    let line = format!("import in/{MATRIX} in/{PREWARM} --rates csb-compat");
    assert_shown!("import-matrix", world.bench(&line).run().exits(0).shown());
    let run = world.run();
    run.validate();
    let argument = run.argument();
    let summary = run.json("summary.json");
    assert_eq!(summary["imported"], "csb");

    // The harness's own figures, by its methods.
    let rollup = format!("export {argument} --format csb-rollup");
    assert_shown!("import-rollup", world.bench(&rollup).run().exits(0).shown());

    // The report says what it is, and its exit code what the run came to: a timeout is no rejection.
    let _ = world.bench(&format!("report {argument} --rates csb-compat")).run().exits(3);
    assert_shown!("import-gaps", text(&world, &format!("{argument}/report/gaps.md")));
    let page = text(&world, &format!("{argument}/report/index.html"));
    for part in ["imported (csb)", COLD, WARM, PREWARM, MATRIX, "What the imported run left behind is not known."] {
        assert!(page.contains(part), "{part} is not on the page");
    }
    assert_shown!("import-triage", world.bench(&format!("triage {argument}")).run().exits(0).shown());
    let compared = world.bench(&format!("compare {argument}:modal/cold {argument}:modal/warm")).run().exits(0).stdout;
    assert!(compared.contains("compared: 4 tasks\n"), "{compared}");

    // What went in comes out, also what has no place here.
    let exported = world.bench(&format!("export {argument} --output out")).run().exits(0).stdout;
    assert_eq!(exported.lines().count(), 4, "{exported}");
    for name in [COLD, WARM, PREWARM, MATRIX] {
        assert_eq!(read(&world, &format!("in/{name}")), read(&world, &format!("out/{name}")), "{name}");
    }
    // And makes the same run again.
    let again = format!("import out/{MATRIX} out/{PREWARM} --rates csb-compat --results again");
    let _ = world.bench(&again).run().exits(0);
    let id = std::fs::read_dir(world.path().join("again")).unwrap().next().unwrap().unwrap().file_name();
    let again = read(&world, &format!("again/{}/summary.json", id.to_str().unwrap()));
    assert_eq!(again["cells"], summary["cells"]);

    assert_shown!("import-again", world.bench(&line).run().exits(2).shown());
}

#[test]
fn files_of_one_name_are_both_given_back() {
    let world = World::new();
    world.write(&format!("one/{COLD}"), results(false).to_string());
    world.write(&format!("two/{COLD}"), results(true).to_string());
    let _ = world.bench(&format!("import one/{COLD} two/{COLD}")).run().exits(0);
    let _ = world.bench(&format!("export {} --output out", world.run().argument())).run().exits(0);
    assert_eq!(read(&world, &format!("out/{COLD}")), results(false));
    assert_eq!(read(&world, &format!("out/{}", COLD.replace(".json", "-2.json"))), results(true));
}

#[test]
fn a_run_of_ours_goes_out_and_in_again() {
    let world = World::new();
    let _good = world.task("good", WANTS_DONE);
    let _bad = world.task("bad", "echo 0 >/logs/verifier/reward.txt; echo no >&2; exit 1");
    let _ = world.bench("run --backend local --dataset tasks --condition cold,warm --quiet").run().exits(1);
    let ours = world.run();
    let exported = world.bench(&format!("export {} --output out", ours.argument())).run().exits(0).stdout;
    let files: Vec<&str> = exported.lines().collect();
    assert_eq!(files.len(), 2, "one for each condition: {exported}");
    let _ = world.bench(&format!("import {} --results in", files.join(" "))).run().exits(0);
    let id = std::fs::read_dir(world.path().join("in")).unwrap().next().unwrap().unwrap().file_name();
    let theirs = read(&world, &format!("in/{}/summary.json", id.to_str().unwrap()));
    for (before, after) in
        ours.json("summary.json")["cells"].as_array().unwrap().iter().zip(theirs["cells"].as_array().unwrap())
    {
        assert_eq!((&before["backend"], &before["condition"]), (&after["backend"], &after["condition"]));
        let trials =
            ["attempted", "accepted", "rejected"].map(|name| (&before["trials"][name], &after["trials"][name]));
        assert!(trials.iter().all(|(before, after)| before == after), "{trials:?}");
    }
}

/// The directory of task collections that developers have at hand.
fn published() -> Option<std::path::PathBuf> {
    let place = match std::env::var_os("SANDBOX_BENCH_SHARED_DATASETS") {
        Some(place) => std::path::PathBuf::from(place),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/datasets"),
    };
    Some(place.join("csb-results")).filter(|place| place.is_dir())
}

#[test]
fn published_results_give_the_published_lines() {
    let Some(published) = published() else {
        eprintln!("left out: there are no published results in SANDBOX_BENCH_SHARED_DATASETS");
        return;
    };
    let world = World::new();
    let files: Vec<String> =
        [COLD, WARM, PREWARM].iter().map(|name| published.join(name).display().to_string()).collect();
    let _ = world.bench(&format!("import {} --rates csb-compat", files.join(" "))).run().exits(0);
    let argument = world.run().argument();
    let rollup = world.bench(&format!("export {argument} --format csb-rollup")).run().exits(0).stdout;
    for line in [
        "| modal | cold | verifier | 0/16 | 117.44 | 7.34 | 6.98 | 8.70 | $0.0078 |",
        "| modal | warm | verifier | 0/16 | 126.29 | 7.89 | 7.43 | 11.91 | $0.0084 |",
        "| modal | cold | 0.67 | 1.73 | 2.65 | 1.36 | 0.80 | 0.13 |",
        "| modal | warm | 0.78 | 1.96 | 2.76 | 1.34 | 0.94 | 0.12 |",
    ] {
        assert!(rollup.lines().any(|shown| shown == line), "{line} is not in\n{rollup}");
    }
    // The report's own table of all attempts has the same p95 and costs, by the same formulas.
    let _ = world.bench(&format!("report {argument} --rates csb-compat")).run().exits(1);
    let cells = world.run().json("summary.json")["cells"].clone();
    for (cell, (p95, usd)) in cells.as_array().unwrap().iter().zip([("8.70", "0.0078"), ("11.91", "0.0084")]) {
        let seconds = cell["total"]["all"]["p95_nearest_us"].as_f64().unwrap() / 1e6;
        assert_eq!(format!("{seconds:.2}"), p95, "{cell:#}");
        assert_eq!(format!("{:.4}", cell["cost"]["known_usd"].as_f64().unwrap()), usd, "{cell:#}");
    }
    let _ = world.bench(&format!("export {argument} --output out")).run().exits(0);
    for name in [COLD, WARM, PREWARM] {
        let before: Value = serde_json::from_slice(&std::fs::read(published.join(name)).unwrap()).unwrap();
        assert_eq!(before, read(&world, &format!("out/{name}")), "{name}");
    }
}

/// A trial of Harbor, as far as it is read.
fn trial(task: &str, reward: Option<f64>, exception: Option<(&str, bool)>) -> Value {
    let timing = |from: u32, to: u32| {
        json!({
            "started_at": format!("2026-05-28T10:00:{from:02}.5Z"), "finished_at": format!("2026-05-28T10:00:{to:02}.5Z"),
        })
    };
    json!({
        "task_name": task, "trial_name": format!("{task}__1"), "source": "terminal-bench", "task_checksum": "c".repeat(64),
        "config": {"environment": {"type": "docker"}}, "agent_info": {"name": "oracle", "version": "1.0.0"},
        "verifier_result": reward.map(|reward| json!({"rewards": {"reward": reward}})),
        "exception_info": exception.map(|(name, _)| json!({"exception_type": name, "exception_message": "it broke"})),
        "reward_valid": reward.is_some() && exception.is_none_or(|(_, valid)| valid),
        "started_at": "2026-05-28T10:00:00.5Z", "finished_at": "2026-05-28T10:00:30.5Z",
        "environment_setup": timing(0, 5), "agent_setup": timing(5, 6), "agent_execution": timing(6, 20),
        "verifier": reward.map(|_| timing(20, 29)),
    })
}

#[test]
fn a_job_of_harbor_is_taken_in_and_what_was_not_finished_is_told() {
    let world = World::new();
    for (task, reward, exception) in [
        ("accepted", Some(1.0), None),
        ("rejected", Some(0.0), None),
        // The agent ran out of time, and its work was good all the same.
        ("late", Some(1.0), Some(("AgentTimeoutError", true))),
        // The model's gateway failed, and what was graded is nothing.
        ("unheard", Some(0.0), Some(("ApiRateLimitError", false))),
        ("new", Some(0.0), Some(("ErrorOfLaterVersion", false))),
        ("lost", None, Some(("SandboxBuildFailedError", false))),
    ] {
        world.write(&format!("job/{task}__1/result.json"), trial(task, reward, exception).to_string());
    }
    world.write("job/accepted__1/verifier/test-stdout.txt", "1 passed\n");
    world.write("job/unfinished__1/config.json", "{}");
    world.write("job/result.json", "{}");
    assert_shown!("import-harbor", world.bench("import job").run().exits(0).shown());
    let run = world.run();
    run.validate();
    let ends: Vec<(String, Option<Decision>, Option<FailureClass>)> = run
        .attempts()
        .into_iter()
        .map(|a| (a.trial.task, a.verdict.map(|verdict| verdict.decision), a.failure.map(|failure| failure.class)))
        .collect();
    let end = |task: &str| {
        let (_, decision, class) = ends.iter().find(|(name, ..)| name == task).unwrap();
        (*decision, *class)
    };
    assert_eq!(end("accepted"), (Some(Decision::Accepted), None));
    assert_eq!(end("rejected"), (Some(Decision::Rejected), Some(FailureClass::Rejected)));
    assert_eq!(end("late"), (Some(Decision::Accepted), None));
    assert_eq!(end("unheard"), (None, Some(FailureClass::Solver)));
    assert_eq!(end("new"), (None, Some(FailureClass::Verifier)));
    assert_eq!(end("lost"), (None, Some(FailureClass::Environment)));
    let _ = world.bench(&format!("report {}", run.argument())).run().exits(3);
    let gaps = text(&world, &format!("{}/report/gaps.md", run.argument()));
    for part in ["imported (harbor)", "1 result left out: unfinished\\_\\_1: it has no result"] {
        assert!(gaps.contains(part), "{part}: {gaps}");
    }
    let page = text(&world, &format!("{}/report/index.html", run.argument()));
    assert!(page.contains("imported (harbor)"), "the page says it");
}

#[test]
fn a_job_that_harbor_ran_is_taken_in() {
    let Some(python) = std::env::var("SANDBOX_BENCH_HARBOR_PYTHON").ok().filter(|path| !path.is_empty()) else {
        eprintln!("skipped: SANDBOX_BENCH_HARBOR_PYTHON names no Python with Harbor");
        return;
    };
    if !sandbox_bench_e2e::docker::wanted() {
        return;
    }
    let world = World::new();
    let limit = "[verifier]\ntimeout_sec = 5";
    let _good = world.task("good", "echo checked; test -f done && echo 1 >/logs/verifier/reward.txt").toml(limit);
    let _bad = world.task("bad", "echo 0 >/logs/verifier/reward.txt").toml(limit);
    let _slow = world.task("slow", "sleep 60").toml(limit);
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk");
    let ran = Command::new(python)
        .arg(sdk.join("harbor_job.py"))
        .args(["tasks", "jobs"])
        .current_dir(world.path())
        .env("PYTHONPATH", &sdk)
        // It would ask the network for prices of models.
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let _ = world.bench("import jobs/job").run().exits(0);
    let run = world.run();
    run.validate();
    let classes = ["good", "bad", "slow"].map(|task| run.attempt(task).failure.map(|failure| failure.class));
    assert_eq!(classes, [None, Some(FailureClass::Rejected), Some(FailureClass::Timeout)]);
    let good = run.attempt("good");
    assert_eq!(good.requested.memory_mb, Some(256));
    assert!(good.phases.len() >= 4 && good.total_us > 0, "{:?}", good.phases);
    let stdout = good.outputs.iter().find(|output| output.name == "verifier.stdout").unwrap();
    assert_eq!(run.output(stdout), b"checked\n");
    assert_eq!(run.json("manifest.json")["solver"], "oracle");
}
