//! Help, and what the program says to a wrong command line: what is wrong with which value, and what to do.

use sandbox_bench_e2e::{World, assert_shown};

#[test]
fn help() {
    let world = World::new();
    for (name, line) in [
        ("help", "--help"),
        ("help-run", "run --help"),
        ("help-prewarm", "prewarm --help"),
        ("help-fixture", "fixture --help"),
        ("help-dataset-validate", "dataset validate --help"),
        ("help-reap", "reap --help"),
        ("help-backends", "backends --help"),
        ("help-doctor", "doctor --help"),
        ("help-compare", "compare --help"),
        ("help-import", "import --help"),
        ("help-export", "export --help"),
        ("help-triage", "triage --help"),
        ("help-report", "report --help"),
    ] {
        insta::assert_snapshot!(name, world.bench(line).run().exits(0).stdout);
    }
}

#[test]
fn wrong_values_are_named_with_the_way_out() {
    let world = World::new();
    let _task = world.task("one", "exit 0");
    world.write("other/tasks/one/task.toml", "");
    let lines = [
        "run --dataset smoke",
        "run --backend local",
        "run --backend nowhere --dataset tasks",
        "run --backend local --dataset nothing-here",
        "run --backend local --dataset tasks --task 'two*,three'",
        "run --backend local --dataset tasks --task '['",
        "run --backend local --dataset tasks --condition hot",
        "run --backend local --dataset tasks --solver oracle",
        "run --backend local --dataset tasks --solver command-file:nothing-here",
        "run --backend local --dataset tasks --order alphabetical",
        "run --backend local --dataset tasks --replicates 0",
        "run --backend local --dataset tasks --backend-concurrency local",
        "run --backend local --dataset tasks --backend-concurrency docker=2",
        "run --backend local --dataset tasks --artifact docker=abc",
        "run --backend local --dataset tasks --task one --task 'two-{a,b}'",
        "run --backend local --dataset tasks,tasks",
        "run --backend local --dataset tasks,other/tasks",
        "run --backend local --dataset tasks --forward-env E2E_NOT_SET",
        "run --backend local --dataset tasks --config nothing-here.toml",
        "dataset inspect tasks two",
        "report nothing-here",
        "report nothing-here --rates nothing-here.toml",
        "compare nothing-here",
        "compare nothing-here nothing-there",
        "compare nothing-here:local/hot nothing-there",
        "compare nothing-here nothing-there --fail-if 'p95(redy) > +10%'",
        "compare nothing-here nothing-there --fail-if 'p95(ready) > 10%'",
    ];
    let shown: Vec<String> = lines.iter().map(|line| world.bench(line).run().exits(2).shown()).collect();
    assert_shown!("wrong-values", shown.join("\n"));
    assert!(world.runs().is_empty(), "something was run");
}

#[test]
fn no_command_shows_the_help_and_is_an_error() {
    let outcome = World::new().bench("").run().exits(2);
    assert!(outcome.stdout.is_empty());
    assert!(outcome.stderr.contains("Usage: sandbox-bench"), "{}", outcome.stderr);
}

#[test]
fn a_wrong_configuration_names_the_file_and_the_setting() {
    let world = World::new();
    let _task = world.task("one", "exit 0");
    world.write("bench.toml", "[backend.local]\nstate_dri = '/nowhere'\n");
    let outcome = world.bench("run --backend local --dataset tasks").run().exits(2);
    assert_shown!("wrong-configuration", outcome.shown());
    // Also of a backend that is not used.
    world.write("bench.toml", "[backend.docker]\npul = 'never'\n");
    let told = world.bench("run --backend local --dataset tasks").run().exits(2).stderr;
    assert!(told.contains("bench.toml: backend docker:") && told.contains("unknown field `pul`"), "{told}");
}
