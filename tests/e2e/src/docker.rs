//! The Docker engine, asked directly with its own command line: what the program says of it is not taken for granted.

use std::process::Command;

/// The label that the program puts on its containers: the correlation tag (see the adapter's README).
const LABEL: &str = "dev.sandbox-bench.tag";

/// Whether tests use the engine. `SANDBOX_BENCH_NO_DOCKER=1` says no.
///
/// # Panics
/// They do, and no engine answers.
#[must_use]
pub fn wanted() -> bool {
    if std::env::var_os("SANDBOX_BENCH_NO_DOCKER").is_some_and(|value| value == "1") {
        eprintln!("skipped: SANDBOX_BENCH_NO_DOCKER=1");
        return false;
    }
    let answer = Command::new("docker").arg("info").output();
    assert!(
        answer.is_ok_and(|answer| answer.status.success()),
        "no Docker engine answers; start one, or set SANDBOX_BENCH_NO_DOCKER=1"
    );
    true
}

/// Ids of the containers of a run, ended ones included.
#[must_use]
pub fn containers(run: &str) -> Vec<String> {
    let listed = docker(&["ps", "--all", "--no-trunc", "--format", &format!("{{{{.ID}}}} {{{{.Label \"{LABEL}\"}}}}")]);
    let tag = format!("sbx-{run}--");
    listed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, label)| label.starts_with(&tag))
        .map(|(id, _)| id.to_owned())
        .collect()
}

/// Runs a command of Docker that must succeed; returns its output.
#[must_use]
pub fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
