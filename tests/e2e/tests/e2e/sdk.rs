//! The tests' own server, and what is written for other programs, judged by those who define them.

use std::path::Path;
use std::process::Command;

use sandbox_bench_e2e::World;
use sandbox_bench_e2e::gateway::{Asked, Gateway, KEY, Reply, call};
use sandbox_bench_e2e::task::WANTS_DONE;
use serde_json::json;

/// The interpreter that `variable` names, in which the judge is installed (see CONTRIBUTING.md).
fn judge(variable: &str) -> Option<String> {
    let interpreter = std::env::var(variable).ok().filter(|path| !path.is_empty());
    if interpreter.is_none() {
        eprintln!("skipped: {variable} names no Python with the judge");
    }
    interpreter
}

fn answers(asked: &Asked) -> Reply {
    match asked.task() {
        "refuse" => Reply::Refuses("No.".into()),
        "call" => Reply::Calls(vec![
            call("run_command", json!({ "command": "ls" })),
            call("run_command", json!({ "command": "pwd" })),
        ]),
        "429" => Reply::error(429, "rate_limit_exceeded", "slow down"),
        "500" => Reply::error(500, "server_error", "oops"),
        _ => Reply::Says("Grüße, it is done.".into()),
    }
}

#[test]
fn the_official_client_understands_the_gateway_of_these_tests() {
    let Some(python) = judge("SANDBOX_BENCH_OPENAI_PYTHON") else { return };
    let gateway = Gateway::start(answers);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk/openai_client.py");
    let output = Command::new(python).arg(script).args([&gateway.url(), KEY]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn harbor_reads_the_transcripts() {
    let Some(python) = judge("SANDBOX_BENCH_HARBOR_PYTHON") else { return };
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let gateway = Gateway::start(|asked| match asked.turn() {
        0 => Reply::Priced(Box::new(Reply::run("echo done >done")), 0.01),
        1 => Reply::Calls(vec![("run_command".into(), "{broken".into()), call("no_such_tool", json!({}))]),
        2 => Reply::Says("And now?".into()),
        _ => Reply::finish(),
    });
    let line = format!("run --backend local --dataset tasks --solver agent --model-base-url {}", gateway.url());
    let bench = world.bench(&format!("{line} --model scripted --model-key-env E2E_KEY")).env("E2E_KEY", KEY);
    let _ = bench.run().exits(0);
    let line = format!("record {} one --form trajectory --output t.json", world.run().argument());
    let _ = world.bench(&line).run().exits(0);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk/harbor_trajectory.py");
    let output = Command::new(python).arg(script).arg(world.path().join("t.json")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
