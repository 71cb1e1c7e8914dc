//! `run --plan`: a whole run from a file.

use std::collections::BTreeMap;

use sandbox_bench_core::evidence::{Attempt, Variant};
use sandbox_bench_e2e::{World, assert_shown};
use serde_json::Value;

/// A task that is accepted at once.
const ACCEPTED: &str = "echo 1 >/logs/verifier/reward.txt";

fn world(plan: &str) -> World {
    let world = World::new();
    for name in ["one", "two"] {
        let _ = world.task(name, ACCEPTED);
    }
    world.write("bench.toml", plan);
    world
}

const PLAN: &str = "\
[plan]
backends = ['local']
datasets = ['tasks']
solver = 'none'
";

fn by_variant(attempts: &[Attempt]) -> BTreeMap<Variant, Vec<&Attempt>> {
    let mut by: BTreeMap<Variant, Vec<&Attempt>> = BTreeMap::new();
    for attempt in attempts {
        by.entry(attempt.trial.variant.clone()).or_default().push(attempt);
    }
    by
}

#[test]
fn a_plan_is_shown_with_its_cells_and_what_it_takes() {
    let plan = format!("{PLAN}replicates = 2\nconcurrency = [1, 2]\n[plan.profiles]\nsmall = {{ memory_mb = 256 }}\n");
    let world = world(&plan);
    assert_shown!(
        "plan-file",
        world.bench("run --plan bench.toml --order sequential --dry-run").run().exits(0).shown()
    );
    assert!(world.runs().is_empty(), "something was run");
    // With an earlier run, time and cost are expected; what the command line says wins.
    let _ = world.bench("run --plan bench.toml --replicates 1 --concurrency 1").run().exits(0);
    let shown = world.bench("run --plan bench.toml --dry-run --format json").run().exits(0).stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["trials"].as_array().unwrap().len(), 8);
    assert!(shown["estimate"]["seconds"].as_f64().unwrap() > 0.0, "{}", shown["estimate"]);
    assert_eq!(shown["settings"]["varies"], serde_json::json!(["concurrency"]));
}

#[test]
fn every_dimension_is_gone_through_and_recorded() {
    let plan = format!(
        "{PLAN}replicates = 2\nwarm_up = 1\nconcurrency = [1, 2]\ninput_sizes = [0, '3 KiB']\n\
         [plan.profiles]\nsmall = {{ memory_mb = 256 }}\n"
    );
    let world = world(&plan);
    let shown = world.bench("run --plan bench.toml").run().exits(0).stdout;
    let run = world.run();
    run.validate();
    let attempts = run.attempts();
    let by = by_variant(&attempts);
    assert_eq!(by.len(), 4, "{:?}", by.keys());
    for (variant, attempts) in &by {
        // Two tasks, two replicates, one that warms up.
        assert_eq!(attempts.len(), 6, "{variant}");
        assert_eq!(attempts.iter().filter(|attempt| attempt.trial.is_warm_up()).count(), 2);
        for attempt in attempts {
            assert_eq!(attempt.requested.memory_mb, Some(256));
            let payload = attempt.inputs.iter().find(|input| input.name == "payload").unwrap();
            assert_eq!(Some(payload.size), variant.input_bytes);
        }
    }
    // Levels do not overlap.
    let level = |attempt: &Attempt| attempt.trial.variant.concurrency.unwrap();
    let mut in_order: Vec<&Attempt> = attempts.iter().collect();
    in_order.sort_by_key(|attempt| attempt.started_at);
    assert!(in_order.is_sorted_by_key(|attempt| level(attempt)));
    let summary = run.json("summary.json");
    let totals = ["planned", "attempted", "accepted"].map(|name| summary["totals"][name].as_u64());
    assert_eq!(totals, [Some(16); 3], "what warms up does not count");
    assert_eq!(summary["cells"].as_array().unwrap().len(), 4);
    assert!(shown.contains("small +3072B x2"), "{shown}");
}

#[test]
fn a_burst_starts_when_the_one_before_has_ended() {
    let world = world(&format!("{PLAN}replicates = 2\nconcurrency = 2\n[plan.load]\nshape = 'burst'\n"));
    let _ = world.bench("run --plan bench.toml").run().exits(0);
    let mut attempts = world.run().attempts();
    attempts.sort_by_key(|attempt| attempt.started_at);
    let micros = |attempt: &Attempt| i128::from(attempt.started_at.as_microsecond());
    let end = |attempt: &Attempt| micros(attempt) + i128::from(attempt.total_us);
    let waves: Vec<&[Attempt]> = attempts.chunks(2).collect();
    for pair in waves.windows(2) {
        let ended = pair[0].iter().map(end).max().unwrap();
        assert!(pair[1].iter().all(|attempt| micros(attempt) >= ended), "a wave began before the last one had ended");
    }
}

#[test]
fn staggered_launches_keep_their_distance() {
    let plan = format!("{PLAN}replicates = 2\nconcurrency = 4\n[plan.load]\nshape = 'staggered'\ninterval_ms = 300\n");
    let world = world(&plan);
    let _ = world.bench("run --plan bench.toml").run().exits(0);
    let mut starts: Vec<i64> = world.run().attempts().iter().map(|a| a.started_at.as_millisecond()).collect();
    starts.sort_unstable();
    assert_eq!(starts.len(), 4);
    // What is packed before a trial's clock starts may shift it a little.
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 200), "{starts:?}");
}

#[test]
fn a_run_ends_when_it_knows_enough_or_has_spent_enough() {
    // Any interval will do, so each cell is done after six replicates.
    let plan = format!("{PLAN}replicates = 40\n[plan.stop]\ninterval = 1000.0\n");
    let world = world(&plan);
    let _ = world.bench("run --plan bench.toml").run().exits(0);
    assert_eq!(world.run().attempts().len(), 12);

    let world = self::world(&format!("{PLAN}replicates = 1000\n[plan.stop]\nminutes = 0.02\n"));
    let _ = world.bench("run --plan bench.toml").run().exits(0);
    let attempts = world.run().attempts().len();
    assert!((1..2000).contains(&attempts), "{attempts}");
}

#[test]
fn what_is_wrong_with_a_plan_is_named() {
    for (plan, says) in [
        ("[plan]\nbackend = ['local']\n", "backend"),
        ("[plan]\nbackends = ['lokal']\ndatasets = ['smoke']\n", "lokal"),
        ("[plan]\nbackends = ['local']\n", "no data set is named"),
        ("[plan]\ndatasets = ['smoke']\n", "no backend is named"),
        ("[plan]\nbackends = ['local']\ndatasets = ['nowhere']\n", "nowhere"),
        ("[plan]\nbackends = ['local']\ndatasets = [{ path = 'tasks', tasks = ['x*'] }]\n", "x*"),
        ("[plan]\nbackends = ['local']\ndatasets = ['tasks']\norder = 'up'\n", "up"),
        ("[backend.local]\n", "no table [plan]"),
    ] {
        let world = world(plan);
        let outcome = world.bench("run --plan bench.toml").run().exits(2);
        assert!(outcome.stderr.contains(says), "{plan}: {}", outcome.stderr);
        assert!(world.runs().is_empty());
    }
}
