//! Evidence that cannot be written: the run ends with its own exit code, and leaves no sandbox.

use sandbox_bench_e2e::World;
use sandbox_bench_e2e::processes::Sleeper;
use sandbox_bench_e2e::task::WANTS_DONE;

#[test]
fn a_results_directory_that_cannot_be_made_is_told_before_anything_is_created() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    world.write("file", "");
    let outcome = world.bench("run --backend local --dataset tasks --results file/results").run().exits(5);
    assert!(outcome.stderr.contains("file/results"), "{}", outcome.stderr);
}

/// Runs the task so often that something does not fit below a file size of so many KiB: the write then fails, as on a
/// full disk. The signal that comes with that is ignored.
fn fills_up(task: &str, solver: &str, kib: u64) {
    let world = World::new();
    let sleeper = Sleeper::new();
    let _task = world.task(task, WANTS_DONE).solution(&format!("{} &\n{solver}\necho done >done", sleeper.command()));
    // What `local` keeps of the host is made first.
    let _ = world.bench("run --backend local --dataset tasks --results elsewhere --quiet --solver none").run().exits(1);

    let line = "run --backend local --dataset tasks --replicates 20";
    let outcome = world.bench(line).under(&format!("trap '' XFSZ; ulimit -f {}", kib * 2)).run().exits(5);
    let run = world.run();
    assert!(outcome.stderr.contains("File too large"), "{}", outcome.stderr);
    let next = format!("next: make room, then sandbox-bench reap {}", run.argument());
    assert!(outcome.stderr.contains(&next), "{}", outcome.stderr);
    assert!(sleeper.running().is_empty());
    let _ = world.bench("reap").run().exits(0);
    assert_eq!(world.bench("reap").run().exits(0).stdout, "nothing to clean up\n");
    run.validate();
}

#[test]
fn a_journal_that_takes_no_more_ends_the_run_and_its_sandboxes() {
    fills_up("one", "", 32);
}

#[test]
fn an_output_that_takes_no_more_ends_the_run_and_its_sandboxes() {
    fills_up("one", "head -c 3000000 /dev/zero", 1024);
}
