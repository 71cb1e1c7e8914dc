//! What a report costs: time and peak memory of deriving and reporting a synthetic run of many trials.
//!
//! ```text
//! cargo bench -p sandbox-bench-reports --bench scale -- [--trials 1000000] [--check] [--keep DIRECTORY]
//! ```
//!
//! Trials are spread over 2 backends × 2 conditions × 1000 tasks. With `--check` it fails beyond the budgets. With `--keep` the run
//! stays in that directory.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use sandbox_bench_core::evidence::{Attempt, Event, JournalLine, Manifest};
use sandbox_bench_reports::cost::RateCard;
use sandbox_bench_reports::derived::{write_csv, write_derived, write_parquet};
use sandbox_bench_reports::report::write_report;
use serde_json::{Value, json};

const TASKS: u64 = 1000;
const CELLS: [(&str, &str); 4] = [("local", "cold"), ("local", "warm"), ("docker", "cold"), ("docker", "warm")];

/// Budgets of CPU time for each trial, on a CPU of a few years ago: twice to several times what was measured.
const DERIVE_US: f64 = 150.0;
const REPORT_US: f64 = 60.0;
/// Peak memory in MiB beyond what the process has before: a ceiling for a million trials and all fewer, twice what was measured.
const MEMORY: u64 = 160;
/// The page in KiB, likewise.
const PAGE: u64 = 4096;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1);
    let trials: u64 = after("--trials").and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let temporary = tempfile::tempdir().unwrap();
    let place = after("--keep").map_or(temporary.path(), Path::new);
    std::fs::create_dir_all(place).unwrap();
    let writing = timed(|| write_run(place, trials)).wall;
    println!("{trials} trials written in {writing:.1} s, {} MiB of journal", kib(&place.join("journal.jsonl")) / 1024);

    let runs = [place.to_owned()];
    let base = peak();
    let each = |took: Took| took.cpu * 1e6 / trials as f64;
    let tell = |what: &str, took: Took| {
        let (each, peak) = (each(took), peak());
        println!(
            "{what:8} {:6.1} s, {:6.1} s of CPU, {each:3.0} µs a trial, peak so far {peak} MiB",
            took.wall, took.cpu
        );
    };
    println!("{:8} peak so far {base} MiB", "before");
    let derive = timed(|| drop(write_derived(place, &RateCard::named(None).unwrap()).unwrap()));
    tell("derive", derive);
    let report = timed(|| drop(write_report(&runs, &place.join("report")).unwrap()));
    tell("report", report);
    tell("parquet", timed(|| write_parquet(&runs, std::io::sink()).unwrap()));
    tell("csv", timed(|| write_csv(&runs, std::io::sink()).unwrap()));
    let (last, page) = (peak(), kib(&place.join("report/index.html")));
    println!("{:8} {page} KiB", "page");
    if arguments.iter().any(|argument| argument == "--check") {
        let within = each(derive) < DERIVE_US && each(report) < REPORT_US;
        assert!(within, "beyond the budgets of {DERIVE_US} and {REPORT_US} µs of CPU a trial");
        assert!(last - base < MEMORY, "beyond the ceiling of {MEMORY} MiB: {}", last - base);
        assert!(page < PAGE, "the page has more than {PAGE} KiB: {page}");
    }
}

/// Seconds that passed, and seconds of CPU time.
#[derive(Clone, Copy)]
struct Took {
    wall: f64,
    cpu: f64,
}

fn timed(work: impl FnOnce()) -> Took {
    let (start, before) = (Instant::now(), cpu());
    work();
    Took { wall: start.elapsed().as_secs_f64(), cpu: cpu() - before }
}

/// CPU time of this thread, which does all the work, in seconds.
fn cpu() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Peak resident memory of this process in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn kib(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |facts| facts.len() >> 10)
}

fn write_run(directory: &Path, trials: u64) {
    let digest = format!("sha256:{}", "ab".repeat(32));
    let backend = |name: &str| json!({"name": name, "adapter_version": "0.1.0", "endpoint": "embedded", "architecture": "x86_64", "capabilities": {}});
    let manifest: Manifest = serde_json::from_value(json!({
        "schema_version": "1.0", "run": "scale", "started_at": "2026-01-01T00:00:00Z", "binary_version": "0.1.0",
        "backends": [backend("local"), backend("docker")],
        "datasets": [{"name": "synthetic", "digest": digest, "tasks": TASKS}], "solver": "gold",
        "plan": {"conditions": ["cold", "warm"], "replicates": trials.div_ceil(TASKS * 4), "order": "interleaved", "seed": 1,
            "concurrency": 64, "backend_concurrency": {}, "max_attempts": 1},
        "trials": trials, "forwarded_env": [],
    }))
    .unwrap();
    serde_json::to_writer(File::create(directory.join("manifest.json")).unwrap(), &manifest).unwrap();
    let mut journal = BufWriter::new(File::create(directory.join("journal.jsonl")).unwrap());
    let mut seq = 0;
    let mut event = |event: Value| {
        seq += 1;
        let event: Event = serde_json::from_value(event).unwrap();
        let line = JournalLine { seq, at: manifest.started_at, event };
        serde_json::to_writer(&mut journal, &line).unwrap();
        journal.write_all(b"\n").unwrap();
    };
    event(json!({"event": "run_started", "run": "scale", "schema_version": "1.0"}));
    for number in 0..trials {
        let (backend, condition) = CELLS[(number % 4) as usize];
        let tag = format!("sbx-scale--{number}");
        let sandbox = json!({"backend": backend, "id": format!("{number:032x}"), "tag": tag});
        event(json!({"event": "intent", "tag": tag, "backend": backend, "creates": "sandbox"}));
        event(json!({"event": "created", "sandbox": sandbox}));
        event(json!({"event": "destroyed", "sandbox": sandbox, "outcome": {"state": "confirmed"}}));
        event(json!({"event": "attempt_finished", "attempt": attempt(number, backend, condition, &tag, sandbox)}));
    }
    event(json!({"event": "run_finished", "interrupted": false}));
    journal.flush().unwrap();
}

/// An attempt whose times spread as those of real ones do: a third more or less, and every fiftieth one fails.
fn attempt(number: u64, backend: &str, condition: &str, tag: &str, sandbox: Value) -> Attempt {
    // A fixed sequence that looks random (Knuth's multiplicative hash).
    let noise = number.wrapping_mul(6_364_136_223_846_793_005) >> 44;
    let create = 200_000 + noise % 100_000;
    let solve = 2_000_000 + noise * 3 % 1_500_000;
    let span =
        |phase: &str, start: u64, us: u64| json!({"phase": phase, "start_us": start, "duration_us": us, "ok": true});
    let failed = number % 50 == 7;
    let failure = json!({"class": if number % 100 == 7 { "timeout" } else { "rejected" }, "phase": "verify", "message": "it did not pass", "retryable": false});
    let task = number / 4 % TASKS;
    serde_json::from_value(json!({
        "schema_version": "1.0", "run": "scale", "attempt": 1, "last": true, "tag": tag, "adapter_version": "0.1.0",
        "trial": {"backend": backend, "condition": condition, "dataset": "synthetic", "task": format!("task-{task}"), "replicate": number / 4 / TASKS + 1},
        "task_digest": format!("sha256:{task:064x}"),
        "started_at": format!("2026-01-{:02}T{:02}:{:02}:{:02}Z", 1 + number / 2_000_000, number / 90_000 % 24, number / 1500 % 60, number / 25 % 60),
        "total_us": create + solve + 600_000, "sandbox": sandbox,
        "environment": {"way": "image", "fingerprint": format!("sha256:{task:064x}"), "asked": "debian:bookworm-slim", "resolved": "sha256:1234", "cache": "hit"},
        "proof": {"state": "proven", "why": "new pid namespace"},
        "phases": [span("create", 0, create), span("ready", create, 20_000), span("inputs", create + 20_000, 30_000),
            span("solve", create + 50_000, solve), span("verify", create + 50_000 + solve, 500_000)],
        "meter": {"api_calls": 7, "bytes_up": 1000, "bytes_down": 2000, "retries": 0},
        "requested": {"cpus": 1.0, "memory_mb": 2048}, "network": {"mode": "public"},
        "verdict": if failed { Value::Null } else { json!({"decision": "accepted", "decided_by": "reward", "rewards": {"reward": 1.0}, "exit_code": 0}) },
        "failure": if failed { failure } else { Value::Null },
        "cleanup": {"state": "confirmed"}, "inputs": [], "outputs": [],
    }))
    .unwrap()
}
