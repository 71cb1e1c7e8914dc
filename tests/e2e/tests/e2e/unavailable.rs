//! Tasks that a backend cannot run, and environments that cannot be made: neither is the solver's fault.

use sandbox_bench_core::FailureClass;
use sandbox_bench_core::evidence::Cleanup;
use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{World, assert_shown};

fn class(world: &World, task: &str) -> FailureClass {
    world.run().attempt(task).failure.unwrap().class
}

#[test]
fn what_local_cannot_do_is_unavailable_and_not_failed() {
    let world = World::new();
    let compose = "services:\n  main: {image: debian:bookworm-slim}\n  db: {image: debian:bookworm-slim}\n";
    let _ = world.task("compose", WANTS_DONE).file("environment/docker-compose.yaml", compose).file("task.toml", "");
    let _ = world.task("gpu", WANTS_DONE).toml("gpus = 1");
    let _ = world.task("allowlist", WANTS_DONE).toml("network_mode = 'allowlist'\nallowed_hosts = ['example.org']");
    let _ =
        world.task("image", WANTS_DONE).file("task.toml", "[environment]\ndocker_image = 'example.org/special:1'\n");
    let _ = world.task("no-solution", WANTS_DONE).without("solution");
    let _ = world.task("possible", WANTS_DONE);
    let line = "run --backend local --dataset tasks --order sequential";
    assert_shown!("unavailable", world.bench(line).run().exits(0).shown());
    for task in ["compose", "gpu", "allowlist", "image", "no-solution"] {
        assert_eq!(class(&world, task), FailureClass::Unavailable, "{task}");
        assert_eq!(world.run().attempt(task).cleanup, Cleanup::Nothing, "{task}: something was created");
    }
    let totals = &world.run().json("summary.json")["totals"];
    assert_eq!((&totals["unavailable"], &totals["failed"]), (&5.into(), &0.into()));
}

#[test]
fn a_run_in_which_nothing_can_run_is_no_success() {
    let world = World::new();
    let _task = world.task("gpu", WANTS_DONE).toml("gpus = 1");
    let _ = world.bench("run --backend local --dataset tasks").run().exits(3);
}

#[test]
fn an_environment_that_cannot_be_made_is_its_own_class() {
    let world = World::new();
    let _ = world.task("variable", WANTS_DONE).toml("env = { TOKEN = '${E2E_NOT_SET}' }");
    let _ = world.task("verifier-variable", WANTS_DONE).toml("[verifier]\nenv = { TOKEN = '${E2E_NOT_SET}' }");
    let recipe = "FROM debian:bookworm-slim\nWORKDIR /workspace\nRUN true\nRUN echo 'no such package' >&2; exit 3\n";
    let _ = world.task("recipe", WANTS_DONE).dockerfile(recipe);
    let _ = world.task("copy", WANTS_DONE).dockerfile("FROM debian:bookworm-slim\nCOPY missing.txt /workspace/\n");
    let line = "run --backend local --dataset tasks --order sequential";
    assert_shown!("environment", world.bench(line).run().exits(3).shown());
    for task in ["variable", "verifier-variable", "recipe", "copy"] {
        assert_eq!(class(&world, task), FailureClass::Environment, "{task}");
    }
}

#[test]
fn a_template_is_filled_from_the_hosts_variable() {
    let world = World::new();
    let test = format!("[ \"$TOKEN\" = given ] || exit 4\n{WANTS_DONE}");
    let _task = world.task("one", &test).toml("env = { TOKEN = '${E2E_TOKEN}' }");
    let _ = world.bench("run --backend local --dataset tasks").env("E2E_TOKEN", "given").run().exits(0);
}
