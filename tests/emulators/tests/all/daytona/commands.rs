//! One-shot commands and sessions.

use std::time::Duration;

use futures_util::StreamExt;
use sandbox_bench_emulators::daytona::DaytonaOptions;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::Daytona;

#[tokio::test]
async fn execute_merges_streams_waits_for_the_pipe_and_times_out() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({})).await;
    let done = daytona.execute(&id, "echo a; echo b >&2; echo c; exit 3").await;
    assert_eq!(done, json!({"exitCode": 3, "result": "a\nb\nc\n"}));
    // The call is held until nobody has the output any more.
    assert_eq!(daytona.execute(&id, "(sleep 0.5; echo late) & echo now").await["result"], "now\nlate\n");
    assert_eq!(daytona.execute(&id, "(sleep 3000) >/dev/null 2>&1 & echo now").await["result"], "now\n");
    assert_eq!(daytona.execute(&id, "printf '\\377x'").await["result"], "\u{fffd}x");
    let large = daytona.execute(&id, "head -c 3000000 /dev/zero | tr '\\0' x").await;
    assert_eq!(large["result"].as_str().unwrap().len(), 3_000_000);
    let path = format!("/toolbox/{id}/process/execute");
    let slow = json!({"command": "trap '' TERM; touch /began; sleep 3000; touch /went-on", "timeout": 1});
    let (status, body) = daytona.call("POST", &path, slow).await;
    assert_eq!(
        (status.as_u16(), &body["code"], &body["source"]),
        (408, &json!("PROCESS_EXECUTION_TIMEOUT"), &json!("DAYTONA_DAEMON"))
    );
    assert!(body.get("result").is_none(), "the output is lost");
    assert_eq!(daytona.execute(&id, "ls /began /went-on 2>/dev/null").await["result"], "/began\n");
    let nowhere = json!({"command": "pwd", "cwd": "/no", "timeout": 5});
    assert_eq!(daytona.ok("POST", &path, nowhere).await["exitCode"], -1);
    daytona.close().await;
}

struct Session<'a> {
    daytona: &'a Daytona,
    path: String,
}

impl Session<'_> {
    async fn exec(&self, command: &str, run_async: bool) -> Value {
        let body = json!({"command": command, "runAsync": run_async});
        self.daytona.ok("POST", &format!("{}/exec", self.path), body).await
    }

    async fn exit_code(&self, command: &str) -> Value {
        self.daytona.ok("GET", &format!("{}/command/{command}", self.path), Value::Null).await["exitCode"].clone()
    }

    async fn until_ended(&self, command: &str) -> Value {
        for _ in 0..4000 {
            let code = self.exit_code(command).await;
            if !code.is_null() {
                return code;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        panic!("it never ended");
    }
}

async fn session<'a>(daytona: &'a Daytona, id: &str, name: &str) -> Session<'a> {
    let path = format!("/toolbox/{id}/process/session");
    daytona.ok("POST", &path, json!({"sessionId": name})).await;
    Session { daytona, path: format!("{path}/{name}") }
}

#[tokio::test]
async fn one_shell_runs_commands_one_after_another() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({"env": {"A": "b"}})).await;
    let session = session(&daytona, &id, "s").await;
    session.exec("cd /usr; export KEPT=$A", false).await;
    let first = session.exec("sleep 0.3; echo first > /order", true).await;
    assert!(first["exitCode"].is_null() && first["output"].is_null(), "{first}");
    let second = session.exec("cat <<EOF\n$KEPT $PWD\nEOF\ncat /order; cat; printf no-newline", false).await;
    assert_eq!(second["stdout"], "b /usr\nfirst\nno-newline\n");
    assert_eq!(second["output"], "\u{1}\u{1}\u{1}b /usr\n\u{1}\u{1}\u{1}first\n\u{1}\u{1}\u{1}no-newline\n");
    assert_eq!(session.exit_code(first["cmdId"].as_str().unwrap()).await, 0);
    let large = session.exec("head -c 3000000 /dev/zero | tr '\\0' x | fold -w 100; echo", false).await;
    assert_eq!(large["stdout"].as_str().unwrap().len(), 3_030_000);
    // A child in the background keeps the command from ending.
    let held = session.exec("(sleep 0.5; echo child) & echo parent", false).await;
    assert_eq!(held["stdout"], "parent\nchild\n");
    assert_eq!(
        daytona.refused("POST", &format!("/toolbox/{id}/process/session/no/exec"), json!({"command": "x"})).await.0,
        500
    );
    daytona.close().await;
}

#[tokio::test]
async fn the_end_of_the_shell_is_the_end_of_the_session() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({})).await;
    for (at, ending) in ["exit 0", "set -e; false", "exec true"].into_iter().enumerate() {
        let session = session(&daytona, &id, &format!("s{at}")).await;
        let lost = session.exec(ending, true).await;
        let exec = format!("{}/exec", session.path);
        let mut refusal = (0, String::new());
        for _ in 0..1000 {
            let (status, body) = daytona.call("POST", &exec, json!({"command": "true", "runAsync": true})).await;
            if !status.is_success() {
                refusal = (status.as_u16(), body["message"].as_str().unwrap().to_owned());
                assert!(body.get("code").is_none(), "{body}");
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(refusal.0 == 500 && refusal.1.ends_with("broken pipe"), "{ending}: {refusal:?}");
        assert!(session.exit_code(lost["cmdId"].as_str().unwrap()).await.is_null());
    }
    daytona.close().await;
}

#[tokio::test]
async fn deleting_a_session_kills_everything_that_it_started() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({})).await;
    let session = session(&daytona, &id, "s").await;
    let running = session.exec("setsid sleep 3000 & trap '' TERM; sleep 3000", true).await;
    let count = "pgrep -cx sleep || true";
    while daytona.execute(&id, count).await["result"] != "2\n" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    daytona.ok("DELETE", &session.path, Value::Null).await;
    assert_eq!(daytona.execute(&id, count).await["result"], "0\n");
    let gone = format!("{}/command/{}", session.path, running["cmdId"].as_str().unwrap());
    assert_eq!(daytona.refused("GET", &gone, Value::Null).await.0, 404);
    daytona.close().await;
}

#[tokio::test]
async fn calls_end_when_the_sandbox_goes_down_under_them() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({})).await;
    let session = session(&daytona, &id, "s").await;
    let execute = format!("/toolbox/{id}/process/execute");
    let exec = format!("{}/exec", session.path);
    let one_shot = daytona.call("POST", &execute, json!({"command": "sleep 3000", "timeout": 3000}));
    let in_session = daytona.call("POST", &exec, json!({"command": "sleep 3000"}));
    let stop = async {
        while daytona.execute(&id, "pgrep -cx sleep || true").await["result"] != "2\n" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        daytona.ok("POST", &format!("/api/sandbox/{id}/stop"), Value::Null).await;
    };
    let (one_shot, in_session, ()) = tokio::join!(one_shot, in_session, stop);
    assert_eq!((one_shot.0.as_u16(), in_session.0.as_u16()), (502, 502));
    daytona.until(&id, "stopped").await;
    daytona.ok("POST", &format!("/api/sandbox/{id}/start"), Value::Null).await;
    assert_eq!(daytona.execute(&id, "pgrep -cx sleep || true").await["result"], "0\n");
    assert_eq!(daytona.refused("GET", &session.path, Value::Null).await.0, 404, "sessions end with the boot");
    daytona.close().await;
}

#[tokio::test]
async fn answers_depend_on_the_version_header() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({})).await;
    let session = session(&daytona, &id, "s").await;
    let text = "echo out; echo err >&2";
    let exec = || daytona.bare("POST", &format!("{}/exec", session.path)).bearer_auth("dtn_emulator");
    let bare: Value = exec().json(&json!({"command": text})).send().await.unwrap().json().await.unwrap();
    assert!(bare["stdout"].is_null() && !bare["output"].as_str().unwrap().contains('\u{1}'), "{bare}");
    let split = exec().header("X-Daytona-Split-Output", "true").json(&json!({"command": text}));
    let split: Value = split.send().await.unwrap().json().await.unwrap();
    assert!(split["stdout"].is_null() && split["output"].as_str().unwrap().contains('\u{1}'), "{split}");
    let new = session.exec(text, false).await;
    assert_eq!((&new["stdout"], &new["stderr"]), (&json!("out\n"), &json!("err\n")));
    let logs = format!("{}/command/{}/logs", session.path, new["cmdId"].as_str().unwrap());
    let plain = daytona.bare("GET", &logs).bearer_auth("dtn_emulator").send().await.unwrap();
    assert!(plain.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert!(!plain.text().await.unwrap().contains('\u{1}'));
    assert_eq!(daytona.ok("GET", &format!("{logs}?follow=true"), Value::Null).await["stderr"], "err\n");
    daytona.close().await;
}

#[tokio::test]
async fn a_log_stream_brings_marked_slices_and_closes_late() {
    let log_silence = Duration::from_millis(300);
    let daytona = Daytona::with(DaytonaOptions { log_silence, ..DaytonaOptions::default() }).await;
    let id = daytona.sandbox(json!({})).await;
    let session = session(&daytona, &id, "s").await;
    let started =
        session.exec("head -c 3000 /dev/zero | tr '\\0' x; echo; echo err >&2; sleep 0.1; echo end", true).await;
    let command = started["cmdId"].as_str().unwrap();
    let url = format!("{}{}/command/{command}/logs?follow=true", daytona.server.base_url(), session.path);
    let mut request = url.replace("http", "ws").into_client_request().unwrap();
    request.headers_mut().insert("authorization", "Bearer dtn_emulator".parse().unwrap());
    let address = daytona.server.base_url().trim_start_matches("http://").to_owned();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    let (mut log, mut close) = (Vec::new(), None);
    while let Some(message) = socket.next().await {
        match message.unwrap() {
            tokio_tungstenite::tungstenite::Message::Binary(frame) => {
                assert!(frame.len() <= 1024);
                log.extend(frame);
            }
            tokio_tungstenite::tungstenite::Message::Close(frame) => {
                // The exit code is there before the stream ends.
                assert_eq!(session.exit_code(command).await, 0);
                close = frame.map(|frame| u16::from(frame.code));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(close, Some(1000));
    let text = String::from_utf8(log).unwrap();
    assert!(text.starts_with("\u{1}\u{1}\u{1}xxx") && text.contains("\u{2}\u{2}\u{2}err\n"), "{text:?}");
    assert!(text.ends_with("\u{1}\u{1}\u{1}end\n"), "{text:?}");
    assert_eq!(session.until_ended(command).await, 0);
    daytona.close().await;
}
