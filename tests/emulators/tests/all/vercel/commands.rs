//! Commands, their streams, and files.

use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::Method;
use sandbox_bench_emulators::faults::{Effect, Ending};
use serde_json::json;

use super::{Account, action, answer, code, lines};

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_begins_and_ends_with_the_command() {
    let account = Account::open().await;
    let session = account.create("streams").await;
    let seen = account.run(&session, "printf 'a\\377b'; exit 5").await;
    let [first, output, last] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!((&first["command"]["exitCode"], &first["command"]["name"]), (&json!(null), &json!("sh")));
    assert_eq!(output, &json!({ "stream": "stdout", "data": "a\u{fffd}b" }), "what is not text is lost");
    assert_eq!((&last["command"]["exitCode"], &last["command"]["id"]), (&json!(5), &first["command"]["id"]));
    let quiet = json!({ "command": "no-such-program", "wait": true });
    let request = account.request(Method::POST, &action(&session, "cmd")).body(quiet.to_string());
    let seen = lines(request.send().await.unwrap()).await;
    assert_eq!(seen.len(), 2, "no output unless it is asked for");
    assert_eq!(seen[1]["command"]["exitCode"], 127);
    account.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clients_own_command_id_is_taken_once() {
    let account = Account::open().await;
    let session = account.create("ids").await;
    let path = format!("{}?cmdId=cmd_own", action(&session, "cmd"));
    let (_, started) = account.post(&path, json!({ "command": "true" })).await;
    assert_eq!(started["command"]["id"], "cmd_own");
    assert_eq!(account.post(&path, json!({ "command": "true" })).await.0, 409);
    account.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_stream_does_not_end_its_command_and_the_logs_begin_anew() {
    let account = Account::open().await;
    let session = account.create("cut").await;
    account.script(Method::POST, "/api/**/cmd", Effect::Cut { after: 20, ending: Ending::Reset });
    let script = "for i in 1 2 3; do echo $i; sleep 0.1; done";
    let body = json!({ "command": "sh", "args": ["-c", script], "wait": true, "logs": true });
    let path = format!("{}?cmdId=cmd_cut", action(&session, "cmd"));
    let response = account.request(Method::POST, &path).body(body.to_string()).send().await;
    let read = async { response?.text().await };
    assert!(read.await.is_err());
    let (_, waited) = account.get(&action(&session, "cmd/cmd_cut?wait=true")).await;
    assert_eq!(waited["command"]["exitCode"], 0);
    let logs = account.request(Method::GET, &action(&session, "cmd/cmd_cut/logs")).send().await.unwrap();
    let said: String = lines(logs).await.iter().map(|line| line["data"].as_str().unwrap()).collect();
    assert_eq!(said, "1\n2\n3\n");
    account.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_kills_at_once_with_all_that_was_started() {
    let account = Account::open().await;
    let session = account.create("limit").await;
    let script = "trap '' TERM; sleep 61 & sleep 62";
    let body = json!({ "command": "sh", "args": ["-c", script], "timeout": 200 });
    let (_, started) = account.post(&action(&session, "cmd"), body).await;
    let id = started["command"]["id"].as_str().unwrap();
    let (_, waited) = account.get(&action(&session, &format!("cmd/{id}?wait=true"))).await;
    assert_eq!(waited["command"]["exitCode"], 137);
    assert!(waited["command"]["durationMs"].as_u64().unwrap() >= 200);
    let left =
        account.run(&session, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 6[12]'").await;
    assert_eq!(left[1]["data"], "0\n");
    let (status, late) = account.post(&action(&session, &format!("cmd/{id}/kill")), json!({ "signal": 15 })).await;
    assert_eq!((status, code(&late)), (404, "not_found"));
    account.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_emulators_own_faults_of_commands() {
    let account = Account::open().await;
    let session = account.create("flags").await;
    account.script(Method::POST, "/api/**/kill", Effect::flag("kill-ignored"));
    let (_, started) = account.post(&action(&session, "cmd"), json!({ "command": "sleep", "args": ["60"] })).await;
    let id = started["command"]["id"].as_str().unwrap();
    assert_eq!(account.post(&action(&session, &format!("cmd/{id}/kill")), json!({ "signal": 9 })).await.0, 200);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (_, still) = account.get(&action(&session, &format!("cmd/{id}"))).await;
    assert_eq!(still["command"]["exitCode"], json!(null));
    account.script(Method::POST, "/api/**/cmd", Effect::Flag { name: "stream-error".into(), value: 1 });
    let seen = account.run(&session, "echo one; sleep 0.1; echo two").await;
    assert_eq!(seen.last().unwrap()["data"]["code"], "sandbox_stream_closed");
    account.close().await;
}

fn archive(header: impl Fn(&mut tar::Builder<GzEncoder<Vec<u8>>>)) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    header(&mut tar);
    tar.into_inner().unwrap().finish().unwrap()
}

fn file(tar: &mut tar::Builder<GzEncoder<Vec<u8>>>, path: &str, mode: u32) {
    let mut header = tar::Header::new_ustar();
    header.set_size(2);
    header.set_mode(mode);
    tar.append_data(&mut header, path, &b"ok"[..]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_belong_to_the_user_and_gnu_archives_are_refused() {
    let account = Account::open().await;
    let session = account.create("files").await;
    let upload = async |cwd: Option<&str>, body: Vec<u8>| {
        let path = action(&session, "fs/write");
        let url = format!("{}/api{path}?teamId=team_emulator", account.server.base_url());
        let request = account.http.post(url).bearer_auth("emulator-token").header("content-type", "application/gzip");
        let request = cwd.into_iter().fold(request, |request, cwd| request.header("x-cwd", cwd));
        answer(request.body(body).send().await.unwrap()).await
    };
    assert_eq!(upload(None, archive(|tar| file(tar, "here/run", 0o755))).await.0, 200);
    let seen = account.run(&session, "stat -c '%U %a' here/run").await;
    assert_eq!(seen[1]["data"], "ubuntu 755\n");
    let (status, refused) = upload(Some("/"), archive(|tar| file(tar, "usr/denied", 0o644))).await;
    assert_eq!((status, code(&refused)), (400, "file_error"));
    assert_eq!(upload(None, b"not gzip".to_vec()).await.0, 400);
    assert_eq!(account.violations(), 0);
    let long = "long/".repeat(60);
    let (status, _) = upload(None, archive(|tar| file(tar, &format!("{long}name"), 0o644))).await;
    assert_eq!((status, account.violations()), (400, 1), "GNU's long names are not known to be taken");
    account.emulation.violations.clear();
    account.close().await;
}
