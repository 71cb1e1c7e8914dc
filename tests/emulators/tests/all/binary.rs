//! The program, as tests in other languages start it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[tokio::test]
async fn it_prints_its_address_serves_and_ends_with_its_input() {
    let faults = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&faults, "[[rule]]\npath = '/api/config'\ntimes = 1\neffect = { kind = 'answer', status = 503 }\n")
        .unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_sandbox-emulator"))
        .args(["daytona", "--api-key", "dtn_mine", "--faults"])
        .arg(faults.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.next().unwrap().strip_prefix("listening on ").unwrap().to_owned();
    assert_eq!(lines.next().unwrap(), format!("export DAYTONA_API_URL={address}/api"));
    assert_eq!(lines.next().unwrap(), "export DAYTONA_API_KEY=dtn_mine");
    let config = || reqwest::get(format!("{address}/api/config"));
    assert_eq!(config().await.unwrap().status(), 503);
    assert_eq!(config().await.unwrap().status(), 200);
    let create = reqwest::Client::new().post(format!("{address}/api/sandbox")).bearer_auth("dtn_mine");
    assert_eq!(create.json(&serde_json::json!({})).send().await.unwrap().status(), 200);
    drop(child.stdin.take());
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_script_with_mistakes_stops_it() {
    let faults = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&faults, "[[rule]]\npath = '/'\neffect = { kind = 'explode' }\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-emulator"));
    let output = command.args(["daytona", "--faults"]).arg(faults.path()).stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("explode"));
}
