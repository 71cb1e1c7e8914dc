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

#[test]
fn a_disk_that_fills_up_ends_the_run_and_its_sandboxes() {
    let world = World::new();
    let sleeper = Sleeper::new();
    let _task = world.task("one", WANTS_DONE).solution(&format!("{} &\necho done >done", sleeper.command()));
    // No file may grow beyond 32 KiB: some trial's journal line will not fit. The signal that comes with it is ignored,
    // so that the write fails as on a full disk.
    let line = "run --backend local --dataset tasks --replicates 20";
    let outcome = world.bench(line).under("trap '' XFSZ; ulimit -f 64").run().exits(5);
    assert!(outcome.stderr.contains("journal.jsonl"), "{}", outcome.stderr);
    assert!(sleeper.running().is_empty());
    let _ = world.bench("reap").run().exits(0);
    assert_eq!(world.bench("reap").run().exits(0).stdout, "nothing to clean up\n");
    let run = world.run();
    run.validate();
    assert!(run.attempts().iter().any(|attempt| attempt.accepted()), "no finished trial was kept");
}
