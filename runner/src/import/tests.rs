#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use sandbox_bench_core::evidence::{Attempt, Event};
use sandbox_bench_core::{Condition, Decision, FailureClass, Phase};
use sandbox_bench_reports::cost::RateCard;
use sandbox_bench_reports::csb;
use sandbox_bench_reports::derived::write_derived;
use sandbox_bench_reports::evidence::{Entry, Run};
use sandbox_bench_reports::summary::{Outcome, Summary};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ImportError, Options, import};

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn import(&self, sources: &[PathBuf]) -> Result<PathBuf, ImportError> {
        import(sources, &Options::default(), &self.path("results"))
    }

    /// The error of importing, after which nothing may be left behind.
    fn refused(&self, sources: &[PathBuf]) -> ImportError {
        let error = self.import(sources).unwrap_err();
        let left = fs::read_dir(self.path("results")).map(|entries| entries.count()).unwrap_or(0);
        assert_eq!(left, 0, "{error}");
        error
    }
}

fn summarize(directory: &Path) -> Summary {
    write_derived(directory, &RateCard::named(Some("csb-compat")).unwrap()).unwrap()
}

fn attempts(directory: &Path) -> Vec<Attempt> {
    let journal = Run::open(directory).unwrap().journal().unwrap();
    let attempt = |entry| match entry {
        Entry::Known(line) => match line.event {
            Event::AttemptFinished { attempt } => Some(*attempt),
            _ => None,
        },
        Entry::Unknown { .. } => panic!("an unknown line"),
    };
    journal.map(Result::unwrap).filter_map(attempt).collect()
}

/// A result whose phases take a second each, up to and without those given.
fn result(task: &str, passed: bool, code: i64, without: &[&str]) -> Value {
    let names = ["start", "upload", "prepare", "instruction_write", "verify", "stop"];
    let reached = names.iter().filter(|name| !without.contains(name));
    let phases: serde_json::Map<String, Value> =
        reached.map(|name| (format!("{name}_seconds"), Value::from(1.0))).collect();
    let elapsed = phases.len() as f64 + 0.5;
    json!({
        "task_id": task, "passed": passed, "return_code": code, "elapsed_seconds": elapsed, "phases": phases,
        "stdout_tail": "out of it", "stderr_tail": "", "not_known_here": {"a": [1, 2.50, null]},
    })
}

fn run_of(results: &[Value]) -> Value {
    let passed = results.iter().filter(|result| result["passed"] == true).count();
    json!({
        "provider": "modal", "runtime": "python:3.13", "task_count": results.len(), "solve_enabled": false,
        "passed": passed, "results": results,
    })
}

const COLD: &str = "ts-modal-cold-verifier-all-20260528.json";
const WARM: &str = "ts-modal-warm-verifier-all-20260528.json";

#[test]
fn a_result_file_becomes_a_run_that_says_what_it_says_and_no_more() {
    let place = Place::new();
    let results = [
        result("a", true, 0, &[]),
        result("b", false, 1, &[]),
        result("c", false, 124, &[]),
        result("d", false, 2, &["instruction_write", "verify"]),
        result("e", false, 1, &["upload", "prepare", "instruction_write", "verify"]),
        result("f", true, 1, &[]),
    ];
    let file = place.write(COLD, run_of(&results).to_string());
    let directory = place.import(&[file]).unwrap();
    let run = Run::open(&directory).unwrap();
    let imported = run.manifest.imported.as_ref().unwrap();
    assert_eq!((imported.from.as_str(), imported.timed, imported.files.len()), ("csb", false, 1));
    assert_eq!((imported.files[0].name.as_str(), imported.files[0].attempts), (COLD, 6));
    assert_eq!(run.manifest.started_at.to_string(), "2026-05-28T00:00:00Z");
    assert_eq!((run.manifest.host.as_ref(), run.manifest.solver.as_str()), (None, "none"));

    let classes: Vec<Option<(FailureClass, Phase)>> =
        attempts(&directory).iter().map(|a| a.failure.as_ref().map(|f| (f.class, f.phase))).collect();
    assert_eq!(
        classes,
        [
            None,
            Some((FailureClass::Rejected, Phase::Verify)),
            Some((FailureClass::Timeout, Phase::Verify)),
            Some((FailureClass::Environment, Phase::Prepare)),
            Some((FailureClass::Startup, Phase::Create)),
            None,
        ]
    );
    let summary = summarize(&directory);
    assert_eq!((summary.totals.accepted, summary.totals.rejected, summary.totals.failed), (2, 1, 3));
    assert_eq!((summary.outcome, summary.cleanup.confirmed), (Outcome::Infrastructure, 0));
    assert_eq!((summary.disagreements.count, summary.cells[0].proof.unproven), (1, 6));
    assert_eq!((summary.cells[0].backend.as_str(), summary.cells[0].condition), ("modal", Condition::Cold));
    assert_eq!(summary.totals.planned, Some(6));
}

#[test]
fn the_rollup_has_the_methods_of_the_older_harness() {
    let place = Place::new();
    // Elapsed: 6.5, 6.5, 6.5, 4.5. Median: the mean of the two in the middle; p95: the greatest of four.
    let results = [
        result("a", true, 0, &[]),
        result("b", false, 1, &[]),
        result("c", false, 124, &[]),
        result("d", false, 2, &["instruction_write", "verify"]),
    ];
    let file = place.write(COLD, run_of(&results).to_string());
    let rollup = csb::rollup(&Run::open(&place.import(&[file]).unwrap()).unwrap()).unwrap();
    let text = rollup.markdown();
    let cost = 24.0 * (2.0 / 2.0 * 0.000_039_42 + 4.0 * 0.000_006_72);
    assert!(
        text.contains(&format!("| modal | cold | verifier | 1/4 | 24.00 | 6.00 | 6.50 | 6.50 | ${cost:.4} |")),
        "{text}"
    );
    assert!(
        text.contains("| provider | mode | start | upload | prepare | instruction\\_write | verify | stop |"),
        "{text}"
    );
    assert!(text.contains("| modal | cold | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 |"), "{text}");
}

/// The directory of task collections that developers have at hand.
fn shared() -> Option<PathBuf> {
    let place = match std::env::var_os("SANDBOX_BENCH_SHARED_DATASETS") {
        Some(place) => PathBuf::from(place),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/datasets"),
    };
    Some(place.join("csb-results")).filter(|place| place.is_dir())
}

#[test]
fn published_results_give_the_published_figures() {
    let Some(shared) = shared() else {
        eprintln!("left out: there are no published results in SANDBOX_BENCH_SHARED_DATASETS");
        return;
    };
    let place = Place::new();
    let files = [COLD, WARM, "prewarm-modal-terminalbench-20260528.json"].map(|name| shared.join(name));
    let directory = place.import(&files).unwrap();
    let text = csb::rollup(&Run::open(&directory).unwrap()).unwrap().markdown();
    for line in [
        "| modal | cold | verifier | 0/16 | 117.44 | 7.34 | 6.98 | 8.70 | $0.0078 |",
        "| modal | warm | verifier | 0/16 | 126.29 | 7.89 | 7.43 | 11.91 | $0.0084 |",
        "| modal | cold | 0.67 | 1.73 | 2.65 | 1.36 | 0.80 | 0.13 |",
        "| modal | warm | 0.78 | 1.96 | 2.76 | 1.34 | 0.94 | 0.12 |",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let summary = summarize(&directory);
    for (cell, file) in summary.cells.iter().zip(&files) {
        let told = serde_json::from_slice::<Value>(&fs::read(file).unwrap()).unwrap()["estimated_cost_usd"].as_f64();
        let ours = cell.cost.known_usd.unwrap();
        assert!((ours - told.unwrap()).abs() < 1e-9, "{ours} is not {told:?}");
    }
    assert_same_again(&place, &directory, &files);
}

/// Exporting gives files that say the same as those imported.
fn assert_same_again(place: &Place, directory: &Path, files: &[PathBuf]) {
    let exported = csb::write(&Run::open(directory).unwrap(), &place.path("again")).unwrap();
    assert_eq!(exported.files.len(), files.len());
    for (before, after) in files.iter().zip(&exported.files) {
        assert_eq!(before.file_name(), after.file_name());
        let read = |path: &Path| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
        assert_eq!(read(before), read(after));
    }
}

#[test]
fn files_come_out_as_they_went_in_also_what_has_no_place_here() {
    let place = Place::new();
    let cold = place.write(COLD, run_of(&[result("a", true, 0, &[]), result("a", false, 1, &[])]).to_string());
    let mut warm = run_of(&[result("a", true, 0, &[])]);
    warm["adaptive_concurrency"] = json!({"enabled": true, "events": [1e300, "\u{0}ü"]});
    let warm = place.write(WARM, warm.to_string());
    let directory = place.import(&[cold.clone(), warm.clone()]).unwrap();
    assert_eq!(Run::open(&directory).unwrap().manifest.plan.replicates, 2, "a task that comes twice is a replicate");
    assert_same_again(&place, &directory, &[cold.clone(), warm.clone()]);
    let error = place.import(&[cold, warm]).unwrap_err();
    assert!(matches!(error, ImportError::Exists(_)), "{error}");
}

#[test]
fn what_is_exported_of_a_run_of_ours_can_be_imported_again() {
    let place = Place::new();
    let harbor = place.write("job/a__1/result.json", trial("a", Some(1.0), None).to_string());
    place.write("job/b__1/result.json", trial("b", Some(0.0), None).to_string());
    let directory = place.import(&[harbor.parent().unwrap().parent().unwrap().to_owned()]).unwrap();
    let exported = csb::write(&Run::open(&directory).unwrap(), &place.path("csb")).unwrap();
    assert_eq!((exported.files.len(), exported.results, exported.unfinished), (1, 2, 0));
    let again = place.import(&exported.files).unwrap();
    let times = |directory: &Path| {
        let of = |a: &Attempt| (a.trial.task.clone(), a.accepted(), a.total_us, a.phase_us(Phase::Solve));
        attempts(directory).iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(times(&directory), times(&again));
    assert_eq!(Run::open(&again).unwrap().manifest.backends[0].name, "docker");
}

#[test]
fn a_matrix_leads_to_its_files_and_prewarm_to_the_artifact() {
    let place = Place::new();
    let _cold = place.write("out/a.json", run_of(&[result("a", true, 0, &[])]).to_string());
    let _warm = place.write("out/b.json", run_of(&[result("a", true, 0, &[])]).to_string());
    let entry = |mode: &str, output: &str| json!({"provider": "modal", "mode": mode, "output": output, "exit_code": 1});
    let matrix = json!({
        "generated_at": "2026-05-28T00:00:00Z", "run_concurrency": 2,
        "effective_task_concurrency_per_run": {"modal-cold": 2, "modal-warm": 2},
        "results": [entry("cold", "/elsewhere/a.json"), entry("warm", "b.json"), entry("warm", "gone.json")],
    });
    let matrix = place.write("out/matrix.json", matrix.to_string());
    let prewarm = json!({"provider": "modal", "profile": "terminalbench-smoke", "modal_image_id": "im-1", "env": "MODAL_IMAGE_ID=im-1"});
    let prewarm = place.write("prewarm.json", prewarm.to_string());
    let directory = place.import(&[matrix, prewarm]).unwrap();
    let manifest = Run::open(&directory).unwrap().manifest;
    assert_eq!(manifest.plan.conditions, [Condition::Cold, Condition::Warm]);
    assert_eq!((manifest.plan.concurrency, manifest.left_out.count), (4, 1));
    assert!(manifest.left_out.first[0].contains("modal warm: no result file"), "{:?}", manifest.left_out);
    let asked: Vec<String> =
        attempts(&directory).iter().map(|a| a.environment.as_ref().unwrap().asked.clone()).collect();
    assert_eq!(asked, ["python:3.13", "im-1"]);
}

fn trial(task: &str, reward: Option<f64>, exception: Option<&str>) -> Value {
    let timing = |from: u32, to: u32| json!({"started_at": format!("2026-05-28T10:00:{from:02}.5Z"), "finished_at": format!("2026-05-28T10:00:{to:02}.5Z")});
    json!({
        "id": "6f1d5a4e-0000-4000-8000-000000000000", "task_name": task, "trial_name": format!("{task}__1"), "trial_uri": "file:///x",
        "task_id": {"path": "tasks/x"}, "source": "terminal-bench", "task_checksum": "c".repeat(64),
        "config": {"task": {"path": "tasks/x"}, "environment": {"type": "docker", "override_memory_mb": 2048}},
        "agent_info": {"name": "oracle", "version": "1"},
        "verifier_result": reward.map(|reward| json!({"rewards": {"reward": reward}})),
        "exception_info": exception.map(|name| json!({"exception_type": name, "exception_message": "it broke", "exception_traceback": "", "occurred_at": "2026-05-28T10:00:10Z"})),
        "started_at": "2026-05-28T10:00:00.500000Z", "finished_at": "2026-05-28T10:00:30.5Z",
        "environment_setup": timing(0, 5), "agent_setup": timing(5, 6), "agent_execution": timing(6, 20), "verifier": timing(20, 29),
    })
}

#[test]
fn a_job_of_harbor_becomes_a_run_with_its_times() {
    let place = Place::new();
    for (name, value) in [
        ("a__1", trial("a", Some(1.0), None)),
        ("a__2", trial("a", Some(0.0), None)),
        ("b__1", trial("b", None, Some("VerifierTimeoutError"))),
        ("c__1", trial("c", Some(1.0), Some("AgentTimeoutError"))),
        ("d__1", trial("d", None, Some("SandboxBuildFailedError"))),
        ("e__1", trial("e", None, None)),
    ] {
        place.write(&format!("job/{name}/result.json"), value.to_string());
    }
    place.write("job/a__1/verifier/test-stdout.txt", "1 passed");
    place.write("job/f__1/config.json", "{}");
    place.write("job/g__1/result.json", "{\"task_name\": 3}");
    let directory = place.import(&[place.path("job")]).unwrap();
    let attempts = attempts(&directory);
    let ends: Vec<(&str, u32, Option<Decision>, Option<FailureClass>)> = attempts
        .iter()
        .map(|a| {
            let decision = a.verdict.as_ref().map(|verdict| verdict.decision);
            (a.trial.task.as_str(), a.trial.replicate, decision, a.failure.as_ref().map(|f| f.class))
        })
        .collect();
    assert_eq!(
        ends,
        [
            ("a", 1, Some(Decision::Accepted), None),
            ("a", 2, Some(Decision::Rejected), Some(FailureClass::Rejected)),
            ("b", 1, None, Some(FailureClass::Timeout)),
            ("c", 1, Some(Decision::Accepted), None),
            ("d", 1, None, Some(FailureClass::Environment)),
            ("e", 1, Some(Decision::Undecided), Some(FailureClass::Verifier)),
        ]
    );
    let first = &attempts[0];
    assert_eq!(
        (first.total_us, first.phase_us(Phase::Create), first.phase_us(Phase::Verify)),
        (30_000_000, Some(5_000_000), Some(9_000_000))
    );
    assert_eq!((first.requested.memory_mb, first.outputs[0].name.as_str()), (Some(2048), "verifier.stdout"));
    let manifest = Run::open(&directory).unwrap().manifest;
    assert!(manifest.imported.unwrap().timed);
    assert_eq!(manifest.left_out.count, 2, "{:?}", manifest.left_out);
    assert_eq!((manifest.backends[0].name.as_str(), manifest.solver.as_str()), ("docker", "oracle"));
    assert_eq!(summarize(&directory).totals.accepted, 2);
}

#[test]
fn what_is_no_result_is_refused_with_what_to_do() {
    let place = Place::new();
    let good = run_of(&[result("a", true, 0, &[])]);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut value = good.clone();
        change(&mut value);
        value.to_string()
    };
    let cases: [(&str, String, &str); 11] = [
        (COLD, "[]".into(), "a JSON object"),
        (COLD, "{}".into(), "nothing that can be imported"),
        ("unknown.json", with(&|_| {}), "give --condition"),
        ("unknown.json", with(&|v| v["mode"] = "hot".into()), "neither cold nor warm"),
        (COLD, with(&|v| v["task_count"] = 2.into()), "not complete"),
        (
            COLD,
            with(&|v| v["results"] = json!([]))
                .replace("\"task_count\":1", "\"task_count\":0")
                .replace("\"passed\":1", "\"passed\":0"),
            "no result in",
        ),
        (COLD, with(&|v| v["results"][0]["elapsed_seconds"] = (-1).into()), "result 1: elapsed_seconds is -1"),
        (COLD, with(&|v| v["results"][0]["task_id"] = 7.into()), "result 1"),
        (COLD, with(&|v| v["results"] = 3.into()), "a list of results"),
        (COLD, with(&|_| {}).replace("6.5", "1e999"), "number out of range"),
        (COLD, with(&|_| {}) + "{}", "trailing"),
    ];
    for (name, content, words) in cases {
        let error = place.refused(&[place.write(name, &content)]).to_string();
        assert!(error.contains(words) && error.contains(name), "{error} for {content}");
    }
    let mut solve = good.clone();
    solve["solve_enabled"] = true.into();
    let files = [place.write(COLD, good.to_string()), place.write(WARM, solve.to_string())];
    assert!(matches!(place.refused(&files), ImportError::Mixed { .. }));
    assert!(matches!(place.refused(&[place.path("gone.json")]), ImportError::Io { .. }));
    assert!(matches!(place.refused(&[PathBuf::from("/dev/null")]), ImportError::NotAFile(_)));
    fs::create_dir(place.path("empty")).unwrap();
    assert!(matches!(place.refused(&[place.path("empty")]), ImportError::Unknown(_)));
}

#[test]
fn what_is_too_large_is_refused_before_it_is_held() {
    let place = Place::new();
    let mut huge = run_of(&[result("a", true, 0, &[])]);
    huge["results"][0]["stdout_tail"] = "x".repeat(17 << 20).into();
    let error = place.refused(&[place.write(COLD, huge.to_string())]);
    assert!(matches!(error, ImportError::TooLarge { .. }), "{error}");
    let deep = format!("{{\"provider\":\"modal\",\"deep\":{}", "[".repeat(1 << 20));
    let error = place.refused(&[place.write(COLD, deep)]);
    assert!(matches!(error, ImportError::Truncated { .. } | ImportError::Invalid { .. }), "{error}");
}

/// Any JSON of a few levels.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn damage_by_a_cut_is_told_and_leaves_nothing(share in 0.0f64..1.0) {
        let place = Place::new();
        let text = run_of(&[result("a", true, 0, &[]), result("b", false, 1, &[])]).to_string();
        let cut = (text.len() as f64 * share) as usize;
        let error = place.refused(&[place.write(COLD, &text.as_bytes()[..cut])]);
        prop_assert!(matches!(error, ImportError::Truncated { .. }), "{}", error);
    }

    #[test]
    fn damage_by_any_value_in_any_place_is_an_error_or_a_run(
        value in any_json(),
        key in prop::sample::select(vec!["task_id", "passed", "return_code", "elapsed_seconds", "phases", "task_cpu", "stderr_tail", "task_attempts", "archive_sha256"]),
        of_run in prop::option::of(prop::sample::select(vec!["provider", "mode", "kind", "dataset", "runtime", "results", "passed"])),
    ) {
        let place = Place::new();
        let mut run = run_of(&[result("a", true, 0, &[]), result("b", false, 1, &[])]);
        match of_run {
            Some(member) => run[member] = value,
            None => run["results"][1][key] = value,
        }
        if let Ok(directory) = place.import(&[place.write(COLD, run.to_string())]) {
            prop_assert_eq!(summarize(&directory).totals.attempted, 2);
            assert_same_again(&place, &directory, &[place.path(COLD)]);
        }
    }

    #[test]
    fn damage_of_any_bytes_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let place = Place::new();
        let _error = place.refused(&[place.write(COLD, bytes)]);
    }
}
