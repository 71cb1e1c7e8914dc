//! Why trials failed, what reference solutions came to over runs, and tasks that are kept out for it.

use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{Bench, World, assert_shown};
use serde_json::{Value, json};

/// Accepts the work, unless a payload lies there, which a plan can place: the same task, now so, now so.
const UNLESS_PAYLOAD: &str = "\
if test -e /.sandbox-bench/payload; then echo 0 >/logs/verifier/reward.txt; else echo 1 >/logs/verifier/reward.txt; fi";

const GOLD: &str = "run --backend local --dataset tasks --quiet";

/// A good task, one whose verdict can be changed, and one that rejects everything.
fn world() -> World {
    let world = World::new();
    let _ = world.task("good", WANTS_DONE);
    let _ = world.task("fickle", UNLESS_PAYLOAD);
    let _ = world.task("broken", "echo 'FAILED tests/t.py::t - assert 0'; echo 0 >/logs/verifier/reward.txt");
    world.write("payload.toml", "[plan]\ninput_sizes = [1]\n");
    world
}

/// Runs the reference solutions; with a payload, `fickle` is rejected. Returns the run, as an argument.
fn gold(world: &World, payload: bool) -> String {
    let line = if payload { format!("{GOLD} --plan payload.toml") } else { GOLD.to_owned() };
    let _ = world.bench(&line).run().exits(1);
    world.last_run().argument()
}

fn json(bench: Bench) -> Value {
    serde_json::from_str(&bench.run().exits(0).stdout).unwrap()
}

fn tasks(found: &Value) -> Vec<&str> {
    found.as_array().unwrap().iter().map(|one| one["task"].as_str().or(one["task"]["task"].as_str()).unwrap()).collect()
}

#[test]
fn flaky_and_never_passing_tasks_are_told_and_kept_out_of_later_runs() {
    let world = world();
    let runs = [gold(&world, false), gold(&world, true)].join(" ");
    let line = format!("triage {runs} --baseline gold.json --record --quarantine quarantine.tsv");
    assert_shown!("triage", world.bench(&line).run().exits(0).shown());
    let list = std::fs::read_to_string(world.path().join("quarantine.tsv")).unwrap();
    assert_shown!("triage-quarantine", list);

    let outcome = world.bench("run --backend local --dataset tasks --quarantine quarantine.tsv").run().exits(0);
    assert_shown!("quarantined", outcome.shown());
    let run = world.last_run();
    run.validate();
    let attempts: Vec<String> = run.attempts().into_iter().map(|attempt| attempt.trial.task).collect();
    assert_eq!(attempts, ["good"]);
    let (manifest, summary) = (run.json("manifest.json"), run.json("summary.json"));
    assert_eq!(manifest["quarantined"], summary["quarantined"]);
    assert_eq!((&manifest["quarantined"]["count"], &manifest["datasets"][0]["tasks"]), (&json!(2), &json!(1)));
    let why = manifest["quarantined"]["first"][0].as_str().unwrap();
    assert!(why.starts_with("tasks/broken: broken: the reference solution was rejected 2 times"), "{why}");
    let _ = world.bench(&format!("report {}", run.argument())).run().exits(0);
    let gaps = std::fs::read_to_string(run.path().join("report/gaps.md")).unwrap();
    let told = "2 tasks in quarantine and left out: tasks/broken: broken: the reference solution was rejected 2 times";
    assert!(gaps.contains(told) && gaps.contains("tasks/fickle: flaky: "), "{gaps}");
    let page = std::fs::read_to_string(run.path().join("report/index.html")).unwrap();
    assert!(page.contains(told), "the page says it, too");
}

#[test]
fn a_plan_names_a_list_and_the_command_line_wins() {
    let world = world();
    world.write("lists/kept-out.tsv", "# by hand\ntasks\tbroken\t-\tit rejects everything\n");
    world.write(
        "lists/bench.toml",
        "[plan]\nbackends = ['local']\ndatasets = ['../tasks']\nquarantine = 'kept-out.tsv'\n",
    );
    let planned = |options: &str| {
        let plan = json(world.bench(&format!("run --plan lists/bench.toml --dry-run --format json {options}")));
        let mut planned = tasks(&plan["trials"]).into_iter().map(str::to_owned).collect::<Vec<_>>();
        planned.sort();
        planned
    };
    assert_eq!(planned(""), ["fickle", "good"]);
    world.write("other.tsv", "tasks\tfickle\t-\n");
    assert_eq!(planned("--quarantine other.tsv"), ["broken", "good"]);
    // Artifacts are not made for what is not run.
    let shown = world.bench("prewarm --backend local --dataset tasks --quarantine other.tsv --quiet").run().exits(0);
    assert_eq!(shown.stderr, "in quarantine: tasks/fickle: no reason is given\n");
}

#[test]
fn a_task_that_was_mended_is_taken_again_and_a_wrong_list_stops_the_run() {
    let world = world();
    let runs = [gold(&world, false), gold(&world, false)].join(" ");
    let _ = world.bench(&format!("triage {runs} --quarantine quarantine.tsv")).run().exits(0);
    let _ = world.task("broken", WANTS_DONE);
    let outcome = world.bench(&format!("{GOLD} --quarantine quarantine.tsv")).run().exits(0);
    assert_eq!(outcome.stderr, "out of quarantine: tasks/broken: it has changed since it was listed\n");
    assert!(world.last_run().json("manifest.json").get("quarantined").is_none());

    let before = world.runs().len();
    world.write("all.tsv", "tasks\tbroken\t-\ntasks\tfickle\t-\ntasks\tgood\t-\tenough\n");
    world.write("wrong.tsv", "tasks\tbroken\t-\ntasks broken\n");
    let shown: Vec<String> = ["all.tsv", "wrong.tsv", "nothing-here.tsv"]
        .iter()
        .map(|list| world.bench(&format!("{GOLD} --quarantine {list}")).run().exits(2).shown())
        .collect();
    assert_shown!("quarantine-wrong", shown.join("\n"));
    assert_eq!(world.runs().len(), before, "something was run");
}

#[test]
fn later_runs_are_held_against_the_baseline() {
    let world = world();
    let good = gold(&world, false);
    let record = |run: &str| format!("triage {run} --baseline gold.json --record --format json");
    let first = json(world.bench(&record(&good)));
    assert_eq!((tasks(&first["changed"]), tasks(&first["quarantine"])), (vec![], vec![]), "once is an accident");
    // The same run again is not another one.
    let again = json(world.bench(&record(&good)));
    assert_eq!(again["quarantine"], json!([]), "each run counts once");

    let later = gold(&world, true);
    let line = format!("triage {later} --baseline gold.json");
    assert_shown!("triage-changed", world.bench(&line).run().exits(0).shown());
    let found = json(world.bench(&format!("{line} --format json")));
    assert_eq!(tasks(&found["changed"]), ["fickle"]);
    assert_eq!(found["changed"][0]["before"], json!({"accepted": 1, "rejected": 0, "failed": 0}));
    assert_eq!(tasks(&found["quarantine"]), ["broken", "fickle"]);

    // What a solver does with a task says nothing about the task.
    let _ = world.bench(&format!("{GOLD} --solver none")).run().exits(1);
    let solved = json(world.bench(&record(&world.last_run().argument())));
    assert_eq!((tasks(&solved["changed"]), tasks(&solved["quarantine"])), (vec![], vec![]));
}
