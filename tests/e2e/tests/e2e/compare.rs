//! Two real runs side by side: what a person sees, what a script gets, and what CI does with it.

use sandbox_bench_e2e::{World, assert_shown};
use serde_json::Value;

/// Two tasks; the second one's solution can be slowed down.
fn tasks(world: &World, sleep: &str) {
    let _quick = world.task("quick", sandbox_bench_e2e::task::WANTS_DONE);
    let _slow = world.task("slow", sandbox_bench_e2e::task::WANTS_DONE);
    world.write("solve.sh", format!("sleep {sleep}; echo done >done\n"));
}

fn run(world: &World, replicates: u32) -> String {
    let line = format!(
        "run --backend local --dataset tasks --solver command-file:solve.sh --replicates {replicates} -j 2 --quiet"
    );
    let _ = world.bench(&line).run().exits(0);
    world.last_run().argument()
}

#[test]
fn a_slower_solver_is_worse_and_trips_the_gate() {
    let world = World::new();
    tasks(&world, "0.1");
    let before = run(&world, 6);
    tasks(&world, "2");
    let after = run(&world, 6);

    let line = |gate: &str| format!("compare {before} {after} --format json --fail-if '{gate}'");
    let printed = world.bench(&line("p50(solve) > +50%")).run().exits(1).stdout;
    let compared: Value = serde_json::from_str(&printed).unwrap();
    let cells = &compared["cells"][0];
    let solve = cells["changes"].as_array().unwrap().iter().find(|change| change["metric"] == "p50(solve)").unwrap();
    assert_eq!((solve["verdict"].as_str(), solve["n"][0].as_u64()), (Some("worse"), Some(12)), "{solve:#}");
    assert!(solve["a"].as_u64().is_some_and(|us| us < 1_900_000) || solve["a"].as_f64().unwrap() < 1_900_000.0);
    assert!(solve["b"].as_f64().unwrap() >= 2_000_000.0, "{solve:#}");
    assert_eq!(cells["gates"][0]["state"], "failed");

    let _ = world.bench(&line("p50(solve) > +100000%")).run().exits(0);
    let _ = world.bench(&line("p95(solve) > +50%")).run().exits(3);
    let _ = world.bench(&line("passed < 100%")).run().exits(0);
    // The other way round it became better.
    let _ = world.bench(&format!("compare {after} {before} --fail-if 'p50(solve) > +50%'")).run().exits(0);
    // A run is the same as itself.
    let same = format!("compare {before}:local/cold {before} --fail-if 'p50(solve) > +0%'");
    let shown = world.bench(&same).run().exits(0).stdout;
    assert!(!shown.contains("worse") && !shown.contains("better"), "{shown}");
}

#[test]
fn what_differs_is_listed_and_one_replicate_says_nothing() {
    let world = World::new();
    tasks(&world, "0");
    let first = run(&world, 1);
    let _changed = world.task("slow", "exit 0");
    let second = run(&world, 1);
    let text = world.bench(&format!("compare {first} {second}")).run().exits(0).stdout;
    for part in ["left out: slow: its content differs", "compared: 1 task\n", "a task has 1 of the 6 trials"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("worse") && !text.contains("better"), "{text}");
    let gate = world.bench(&format!("compare {first} {second} --fail-if 'p50(ready) > +10%'")).run().exits(3);
    assert!(gate.stdout.contains("gate undecided: p50(ready) > +10%: a task has 1 of the 6 trials"), "{}", gate.stdout);
    assert_shown!(
        "compare-no-cell",
        world.bench(&format!("compare {first}:docker/cold {second}")).run().exits(2).shown()
    );
}

#[test]
fn prices_of_ones_own_give_a_cost() {
    let world = World::new();
    tasks(&world, "0");
    let run = run(&world, 1);
    let unpriced = world.bench(&format!("report {run}")).run().exits(0).stdout;
    assert!(!unpriced.contains("cost"), "{unpriced}");
    world.write(
        "rates.toml",
        "name = \"ours\"\ndate = \"2026-11-01\"\n[backend.local]\ndate = \"2026-11-01\"\nsource = \"our invoice\"\n\
         cpu = { usd = 3600, per = \"vcpu_hour\", default = 1 }\n",
    );
    let priced = world.bench(&format!("report {run} --rates rates.toml")).run().exits(0).stdout;
    assert!(priced.contains("cost/pass") && priced.contains("≈ $"), "{priced}");
    let summary = world.last_run().json("summary.json");
    assert_eq!(
        (summary["rates"]["name"].as_str(), summary["cells"][0]["cost"]["estimated"].as_u64()),
        (Some("ours"), Some(2))
    );
    world.last_run().validate();
    // A dollar for each second of the sandbox's life.
    for row in world.last_run().lines("trials.jsonl") {
        let (usd, seconds) = (row["cost"]["usd"].as_f64().unwrap(), row["total_us"].as_f64().unwrap() / 1e6);
        assert!(usd > 0.0 && usd <= seconds, "{usd} for {seconds} s");
    }
}
