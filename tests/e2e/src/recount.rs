//! Counts a run again, from `trials.jsonl`, `manifest.json` and `cleanup.json` alone, by the rules that the summary
//! states and without its code. Whoever doubts a number can do the same.

use std::collections::BTreeMap;

use sandbox_bench_core::Phase;
use serde_json::{Map, Value, json};

use crate::RunDir;

/// Checks every number of `summary.json` against the trials, but for intervals by resampling.
///
/// # Panics
/// One does not follow from them.
pub fn check(run: &RunDir) {
    let (expected, mut summary) = (recount(run), run.json("summary.json"));
    for cell in summary["cells"].as_array_mut().unwrap() {
        let cell = cell.as_object_mut().unwrap();
        let share = cell.remove("accepted_share");
        match (accepted_share(&cell["trials"]), share) {
            (Some((low, high)), Some(share)) => {
                let close = |end: &Value, expected: f64| (end.as_f64().unwrap() - expected).abs() < 1e-9;
                assert!(close(&share["low"], low) && close(&share["high"], high), "{share} is not {low} to {high}");
            }
            (expected, share) => assert_eq!((expected, share), (None, None)),
        }
        cell.remove("total_p50");
    }
    for part in ["totals", "cells", "cleanup"] {
        assert_eq!(summary[part], expected[part], "{part} of summary.json");
    }
}

/// `totals` and `cells` as `summary.json` should have them.
fn recount(run: &RunDir) -> Value {
    let manifest = run.json("manifest.json");
    let mut attempts = run.lines("trials.jsonl");
    // Replicate 0 only warms up.
    attempts.retain(|attempt| attempt["trial"]["replicate"] != 0);
    let cleanup = run.json("cleanup.json");
    let (backends, conditions) = (list(&manifest["backends"]), list(&manifest["plan"]["conditions"]));
    let planned = manifest["trials"].as_u64().unwrap();
    let variants = variants(&manifest["plan"]);
    let per_cell = planned / (backends.len() * conditions.len() * variants.len()) as u64;
    let mut cells = Vec::new();
    for backend in &backends {
        for condition in &conditions {
            for variant in &variants {
                let of_cell = |a: &&Value| {
                    let trial = &a["trial"];
                    let varied = trial.get("variant").cloned().unwrap_or_else(|| json!({}));
                    trial["backend"] == backend["name"] && trial["condition"] == *condition && varied == *variant
                };
                let mine: Vec<&Value> = attempts.iter().filter(of_cell).collect();
                let mut counted = cell(&backend["name"], condition, &mine, per_cell, &cleanup);
                if *variant != json!({}) {
                    counted["variant"] = variant.clone();
                }
                cells.push(counted);
            }
        }
    }
    let all: Vec<&Value> = attempts.iter().collect();
    let states = |_: &Value| true;
    json!({ "totals": trials(&all, planned), "cells": cells, "cleanup": endings(&cleanup, states) })
}

/// Every combination of the plan's further dimensions; one without any if there are none.
fn variants(plan: &Value) -> Vec<Value> {
    let profiles = plan["profiles"].as_object().map(|named| named.keys().map(|name| json!(name)).collect());
    let dimensions = [
        ("profile", profiles.unwrap_or_default()),
        ("input_bytes", list(&plan["input_bytes"])),
        ("concurrency", list(&plan["concurrency_levels"])),
    ];
    let mut variants = vec![json!({})];
    for (name, values) in dimensions.iter().filter(|(_, values)| !values.is_empty()) {
        let with = |variant: &Value, value: &Value| {
            let mut variant = variant.clone();
            variant[*name] = value.clone();
            variant
        };
        variants = variants.iter().flat_map(|one| values.iter().map(move |value| with(one, value))).collect();
    }
    variants
}

fn cell(backend: &Value, condition: &Value, attempts: &[&Value], planned: u64, cleanup: &Value) -> Value {
    let total = |wanted: &str| {
        durations(attempts.iter().filter(|a| ending(a) == wanted).map(|a| a["total_us"].as_u64().unwrap()).collect())
    };
    let proofs = |state: &str| attempts.iter().filter(|a| a["proof"]["state"] == state).count();
    let caches = |state: &str| attempts.iter().filter(|a| a["environment"]["cache"] == state).count();
    let mut cell = json!({
        "backend": backend,
        "condition": condition,
        "trials": trials(attempts, planned),
        "environment": { "hits": caches("hit"), "misses": caches("miss") },
        "phases": Phase::ALL.iter().filter_map(|phase| phase_times(phase.name(), attempts)).collect::<Vec<_>>(),
        "total": totals(attempts, total),
        "cost": cost(attempts),
        "proof": {
            "proven": proofs("proven"), "unproven": proofs("unproven"), "violated": proofs("violated"),
        },
        "cleanup": endings(cleanup, |entry| {
            attempts.iter().any(|a| a["tag"] == entry["tag"] || a["sandbox"]["tag"] == entry["tag"])
        }),
    });
    // Time stamps in UTC and of one form sort as text.
    let first = attempts.iter().filter(|a| length(a, "create").is_some()).min_by_key(|a| a["started_at"].to_string());
    if let Some(first) = first {
        cell["first_create_us"] = json!(length(first, "create"));
    }
    cell
}

/// Total times by the end of the attempt, and of all that took time, whatever became of them.
fn totals(attempts: &[&Value], of: impl Fn(&str) -> Value) -> Value {
    let mut totals = json!({ "accepted": of("accepted"), "rejected": of("rejected"), "failed": of("failed") });
    let mut all: Vec<u64> =
        attempts.iter().filter(|a| !list(&a["phases"]).is_empty()).map(|a| a["total_us"].as_u64().unwrap()).collect();
    all.sort_unstable();
    let (n, sum) = (all.len(), all.iter().sum::<u64>());
    if n > 0 {
        let middle = (all[(n - 1) / 2] + all[n / 2]) as f64 / 2.0;
        let nearest = all[(n * 95).div_ceil(100) - 1];
        totals["all"] = json!({
            "n": n, "sum_us": sum, "mean_us": sum as f64 / n as f64, "p50_us": middle, "p95_nearest_us": nearest,
        });
    }
    totals
}

/// Nobody asks a price for the user's own machine.
fn cost(attempts: &[&Value]) -> Value {
    let unknown: Vec<&Value> = attempts.iter().map(|a| &a["cost"]).filter(|cost| cost["basis"] == "unknown").collect();
    let mut cost = json!({ "measured": 0, "estimated": 0, "unknown": unknown.len() });
    if let Some(one) = unknown.first() {
        cost["why"] = json!({ (one["why"].as_str().unwrap()): unknown.len() });
    }
    cost
}

/// Wilson's interval of the share of runnable trials that were accepted; the least and the greatest share whose
/// z-score of what was seen is 1.96.
fn accepted_share(trials: &Value) -> Option<(f64, f64)> {
    let count = |name: &str| trials[name].as_f64().unwrap();
    let n = count("attempted") - count("unavailable");
    let (p, z2) = (count("accepted") / n, 1.959_963_984_540_054_f64.powi(2));
    // The roots of (p - s)² = z² s (1 - s) / n.
    let (a, b, c) = (1.0 + z2 / n, -2.0 * p - z2 / n, p * p);
    let root = (b * b - 4.0 * a * c).max(0.0).sqrt();
    (n > 0.0).then_some(((-b - root) / (2.0 * a), (-b + root) / (2.0 * a)))
}

/// `accepted`, `rejected`, `unavailable` or `failed`.
fn ending(attempt: &Value) -> &'static str {
    match attempt["failure"]["class"].as_str() {
        None if attempt["verdict"]["decision"] == "accepted" => "accepted",
        Some("rejected") => "rejected",
        Some("unavailable") => "unavailable",
        _ => "failed",
    }
}

fn trials(attempts: &[&Value], planned: u64) -> Value {
    let mut last: BTreeMap<String, &Value> = BTreeMap::new();
    for attempt in attempts {
        last.insert(attempt["trial"].to_string(), attempt);
    }
    let count = |wanted: &str| last.values().filter(|a| ending(a) == wanted).count();
    let mut failures: BTreeMap<&str, u64> = BTreeMap::new();
    for attempt in last.values().filter(|a| ending(a) == "failed") {
        *failures.entry(attempt["failure"]["class"].as_str().unwrap()).or_default() += 1;
    }
    json!({
        "planned": planned,
        "attempted": last.len(),
        "accepted": count("accepted"),
        "rejected": count("rejected"),
        "failed": count("failed"),
        "failures": failures,
        "unavailable": count("unavailable"),
        "retries": attempts.len() - last.len(),
    })
}

fn endings(cleanup: &Value, of: impl Fn(&Value) -> bool) -> Value {
    let entries: Vec<Value> = list(&cleanup["entries"]).into_iter().filter(|entry| of(entry)).collect();
    let states = ["confirmed", "unconfirmed", "retained"];
    let count = |state: &str| entries.iter().filter(|entry| entry["state"] == state).count();
    Value::Object(states.iter().map(|state| ((*state).to_owned(), json!(count(state)))).collect::<Map<_, _>>())
}

/// Length of a phase in an attempt: all its spans together.
fn length(attempt: &Value, phase: &str) -> Option<u64> {
    let spans = list(&attempt["phases"]).into_iter().filter(|span| span["phase"] == phase);
    spans.map(|span| span["duration_us"].as_u64().unwrap()).reduce(|a, b| a + b)
}

fn phase_times(phase: &str, attempts: &[&Value]) -> Option<Value> {
    let well = |a: &&Value| list(&a["phases"]).iter().filter(|span| span["phase"] == phase).all(|s| s["ok"] == true);
    let (completed, failed): (Vec<&Value>, Vec<&Value>) =
        attempts.iter().filter(|a| length(a, phase).is_some()).partition(|a| well(a));
    let lengths = |of: Vec<&Value>| of.into_iter().filter_map(|a| length(a, phase)).collect::<Vec<_>>();
    if completed.is_empty() && failed.is_empty() {
        return None;
    }
    let (completed, failed) = (durations(lengths(completed)), durations(lengths(failed)));
    Some(json!({ "phase": phase, "completed": completed, "failed": failed }))
}

/// n, R-7 percentiles rounded to microseconds, and the greatest of the values.
fn durations(mut values: Vec<u64>) -> Value {
    values.sort_unstable();
    let Some(max) = values.last() else { return Value::Null };
    let at = |p: f64| {
        let position = (values.len() - 1) as f64 * p;
        let (below, above) = (values[position.floor() as usize] as f64, values[position.ceil() as usize] as f64);
        (below + (above - below) * position.fract()).round() as u64
    };
    json!({ "n": values.len(), "p50_us": at(0.5), "p95_us": at(0.95), "max_us": max })
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}
