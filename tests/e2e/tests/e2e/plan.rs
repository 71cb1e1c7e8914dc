//! `run --dry-run`: what would be run, in which order.

use sandbox_bench_e2e::{World, assert_shown};
use serde_json::Value;

fn world() -> World {
    let world = World::new();
    for name in ["alpha-1", "alpha-2", "beta-1", "beta-2"] {
        let _ = world.task(name, "exit 0");
    }
    world
}

/// Tasks (with `options`) in the order of the plan.
fn order(world: &World, options: &str) -> Vec<String> {
    let line = format!("run --backend local --dataset tasks --dry-run --format json {options}");
    let plan: Value = serde_json::from_str(&world.bench(&line).run().exits(0).stdout).unwrap();
    plan["trials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| {
            let text = |key: &str| t[key].as_str().unwrap();
            format!("{} {} {}", text("condition"), text("task"), t["replicate"])
        })
        .collect()
}

fn sorted(mut order: Vec<String>) -> Vec<String> {
    order.sort();
    order
}

#[test]
fn the_plan_is_shown_and_nothing_is_run() {
    let world = world();
    let line = "run --backend local --dataset tasks --condition cold,reuse --dry-run";
    assert_shown!("plan-text", world.bench(line).run().exits(0).shown());
    let line = "run --backend local --dataset tasks --limit 1 --dry-run --format json";
    assert_shown!("plan-json", world.bench(line).run().exits(0).shown());
    assert!(world.runs().is_empty(), "something was run");
}

#[test]
fn the_seed_decides_the_order_and_nothing_else() {
    let world = world();
    let one = order(&world, "--condition cold,reuse --replicates 2 --seed 1");
    assert_eq!(one.len(), 16);
    assert_eq!(one, order(&world, "--condition cold,reuse --replicates 2 --seed 1"));
    let two = order(&world, "--condition cold,reuse --replicates 2 --seed 2");
    assert_ne!(one, two);
    assert_eq!(sorted(one), sorted(two));
}

#[test]
fn sequential_goes_by_condition_and_interleaved_by_task() {
    let world = world();
    let sequential = order(&world, "--condition cold,reuse --order sequential");
    assert_eq!(
        sequential,
        ["cold", "reuse"].map(|c| ["alpha-1", "alpha-2", "beta-1", "beta-2"].map(|t| format!("{c} {t} 1"))).concat()
    );
    let interleaved = order(&world, "--condition cold,reuse --order interleaved");
    for pair in interleaved.chunks(2) {
        let task = |line: &str| line.split(' ').nth(1).unwrap().to_owned();
        assert_eq!(task(&pair[0]), task(&pair[1]));
    }
    let random = order(&world, "--condition cold,reuse --order random");
    assert_eq!(sorted(random), sorted(sequential));
}

#[test]
fn globs_and_limit_select_tasks() {
    let world = world();
    let tasks = |options: &str| sorted(order(&world, options));
    assert_eq!(tasks("--task 'alpha-*'"), ["cold alpha-1 1", "cold alpha-2 1"]);
    assert_eq!(tasks("--task '*-2,alpha-1'"), ["cold alpha-1 1", "cold alpha-2 1", "cold beta-2 1"]);
    let both = ["cold alpha-1 1", "cold beta-1 1"];
    assert_eq!(tasks("--task '{alpha,beta}-1'"), both);
    assert_eq!(tasks("--task alpha-1 --task beta-1"), both);
    assert_eq!(tasks("--limit 2"), ["cold alpha-1 1", "cold alpha-2 1"]);
    assert_eq!(tasks("--task 'beta-*' --limit 1"), ["cold beta-1 1"]);
}

#[test]
fn a_broken_task_is_told_and_the_others_are_planned() {
    let world = world();
    let _ = world.task("broken", "exit 0").without("instruction.md");
    let outcome = world.bench("run --backend local --dataset tasks --dry-run").run().exits(0);
    assert_shown!("plan-broken-task", outcome.shown());
}

#[test]
fn a_plan_that_is_too_large_is_refused_at_once() {
    let line = "run --backend local --dataset smoke --replicates 100000 --dry-run";
    let told = World::new().bench(line).run().exits(2).stderr;
    assert!(told.contains("more than 1000000 trials"), "{told}");
}
