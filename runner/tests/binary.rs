//! The binary starts. That this file is here makes cargo build it for `cargo test --workspace`, where the end-to-end
//! tests of `tests/e2e` look for it.

use std::process::Command;

#[test]
fn it_tells_its_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_sandbox-bench")).arg("--version").output();
    let told = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    assert_eq!(told.ok(), Some(format!("sandbox-bench {}\n", env!("CARGO_PKG_VERSION"))));
}
