#![allow(clippy::unwrap_used)]

use std::fs;

use sandbox_bench_core::{Condition, FailureClass, Phase};
use serde_json::Value;

use super::{phases, write};
use crate::evidence::Run;
use crate::samples::{self, attempt, events, failed, finished, manifest, started};

#[test]
fn a_run_of_ours_becomes_one_file_for_each_cell_and_the_last_attempt_counts() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = failed(attempt("local", Condition::Cold, 1), FailureClass::Transport);
    first.last = false;
    let mut second = attempt("local", Condition::Cold, 1);
    second.attempt = 2;
    let mut unfinished = failed(attempt("local", Condition::Cold, 3), FailureClass::Transport);
    unfinished.last = false;
    let attempts = [
        first,
        attempt("local", Condition::Cold, 2),
        second,
        unfinished,
        failed(attempt("docker", Condition::Cold, 1), FailureClass::Rejected),
        failed(attempt("docker", Condition::Cold, 2), FailureClass::Unavailable),
    ];
    let journal: Vec<_> =
        [started()].into_iter().chain(attempts.into_iter().flat_map(events)).chain([finished()]).collect();
    fs::create_dir_all(directory.path().join("outputs/ab")).unwrap();
    fs::write(directory.path().join("outputs/ab/cd"), "output").unwrap();
    samples::write_run(directory.path(), &manifest(&[Condition::Cold], 2), &journal);
    let exported = write(&Run::open(directory.path()).unwrap(), &directory.path().join("csb")).unwrap();
    assert_eq!((exported.results, exported.unfinished), (3, 1));
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(directory.path().join("csb").join(name)).unwrap()).unwrap()
    };
    let local = read("ts-local-cold-solve-all-20261129.json");
    assert_eq!((&local["provider"], &local["mode"], &local["passed"]), (&"local".into(), &"cold".into(), &2.into()));
    assert_eq!(local["estimated_cost_usd"], 0.0);
    let results = local["results"].as_array().unwrap();
    assert_eq!((&results[0]["task_id"], &results[1]["task_id"]), (&"task-2".into(), &"task-1".into()));
    let repeated = &results[1];
    assert_eq!((&repeated["task_attempts"], &repeated["return_code"]), (&2.into(), &0.into()));
    assert_eq!(repeated["elapsed_seconds"], 2.0 * 1.115, "over both attempts");
    assert_eq!(repeated["phases"]["start_seconds"], 0.115, "create and ready, of the last one");
    assert_eq!(repeated["stdout_tail"], "output");
    let docker = read("ts-docker-cold-solve-all-20261129.json");
    assert_eq!((&docker["task_count"], &docker["passed"]), (&1.into(), &0.into()), "what cannot run is no result");
    assert_eq!(docker["results"][0]["return_code"], 1, "a rejection is no success, whatever the verifier exited with");
}

#[test]
fn inputs_before_and_after_the_preparation_are_kept_apart() {
    let mut attempt = attempt("local", Condition::Cold, 0);
    let span = |phase, duration_us| sandbox_bench_core::PhaseSpan {
        phase,
        start_us: 0,
        duration_us,
        guest_us: None,
        ok: true,
    };
    attempt.phases = vec![
        span(Phase::Environment, 1),
        span(Phase::Create, 2),
        span(Phase::Ready, 4),
        span(Phase::Inputs, 8),
        span(Phase::Prepare, 16),
        span(Phase::Inputs, 32),
        span(Phase::Verify, 64),
        span(Phase::Collect, 128),
        span(Phase::Destroy, 256),
    ];
    let named =
        [("start", 7), ("upload", 8), ("prepare", 16), ("instruction_write", 32), ("verify", 64), ("stop", 256)];
    assert_eq!(phases(&attempt), named);
}
