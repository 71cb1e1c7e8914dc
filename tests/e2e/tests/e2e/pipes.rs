//! Readers that have gone, and results that cannot be written.

use sandbox_bench_core::evidence::Event;
use sandbox_bench_e2e::World;
use sandbox_bench_e2e::task::WANTS_DONE;

#[test]
fn a_run_that_nobody_reads_goes_on_to_its_end() {
    let world = World::new();
    for name in ["one", "two"] {
        let _ = world.task(name, WANTS_DONE);
    }
    let _ = world.bench("run -vv --backend local --dataset tasks --condition cold,warm").unread().run().exits(0);
    assert_eq!(world.run().attempts().len(), 4);
    assert!(matches!(world.run().events().last(), Some(Event::RunFinished { interrupted: false })));
}

#[test]
fn a_result_that_nobody_reads_is_no_error() {
    let world = World::new();
    let _ = world.task("one", WANTS_DONE);
    for line in [
        "dataset list smoke",
        "dataset validate tasks",
        "backends",
        "run --backend local --dataset tasks --dry-run",
        "reap",
    ] {
        let _ = world.bench(line).unread().run().exits(0);
    }
}

#[test]
fn a_result_that_is_lost_is_an_error() {
    let world = World::new();
    let outcome = world.bench("dataset list smoke --format json").under("exec >/dev/full").run().exits(5);
    assert!(outcome.stderr.contains("stdout"), "{}", outcome.stderr);
}
