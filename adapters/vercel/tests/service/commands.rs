//! A command's end is never lost and never invented, and it is started once.

use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_core::{Completion, ErrorKind, ExecReport, ExecSpec, Result, Sandbox, Stream, TailSink};
use serde_json::{Value, json};

use crate::script::{NAMED, Reply, SESSION, Scripted, always, call, ok, opened, reference, refusal, session};

const CMD: &str = "POST /v2/sandboxes/sessions/sbx_1/cmd";
const LOGS: &str = "GET /v2/sandboxes/sessions/sbx_1/cmd/cmd_1/logs";
const COMMAND: &str = "GET /v2/sandboxes/sessions/sbx_1/cmd/cmd_1";

fn command(exit_code: Option<i32>) -> Value {
    json!({ "command": { "id": "cmd_1", "name": "/bin/sh", "args": [], "cwd": "/", "sessionId": "sbx_1",
        "exitCode": exit_code, "startedAt": 1 } })
}

fn out(text: &str) -> Value {
    json!({ "stream": "stdout", "data": text })
}

fn err(text: &str) -> Value {
    json!({ "stream": "stderr", "data": text })
}

fn begun() -> Vec<Value> {
    vec![out("\u{1e}FRAME<\u{1e}\n"), err("\u{1e}FRAME<12 1\u{1e}\n")]
}

fn ended(code: i32) -> Vec<Value> {
    vec![out("\u{1e}FRAME>\u{1e}\n"), err(&format!("\u{1e}FRAME>code={code} \u{1e}\n"))]
}

/// A running sandbox and one command in it: what its sink got, and the report.
async fn run(replies: Vec<(&str, Reply)>) -> (Scripted, Result<ExecReport>, String) {
    let get = format!("GET {NAMED}");
    let mut all = vec![(get.as_str(), ok(opened("running")))];
    all.extend(replies);
    let service = Scripted::new(all).await;
    let sandbox: Arc<dyn Sandbox> = service.backend.attach(&call(), &reference()).await.unwrap();
    let sink = TailSink::new(1 << 16);
    let report = sandbox.exec(&call(), &ExecSpec::sh("x"), &sink).await;
    (service, report, sink.text(Stream::Stdout))
}

fn completion(report: Result<ExecReport>) -> Completion {
    report.unwrap().completion
}

#[tokio::test]
async fn output_that_breaks_off_is_asked_for_again_and_delivered_once() {
    for first in [
        Reply::Cut([begun(), vec![out("on"), out("e\ntw")]].concat()),
        Reply::Lines([begun(), vec![out("one\n")]].concat()),
        Reply::Lines(
            [begun(), vec![out("one"), json!({"stream": "error", "data": {"code": "sandbox_stream_closed"}})]].concat(),
        ),
        Reply::Text(502, "<html>bad gateway</html>"),
        Reply::Lost,
    ] {
        let whole = [begun(), vec![out("one\ntwo\nth"), out("ree\n"), json!({"stream": "new", "data": 1})], ended(3)];
        let (service, report, got) = run(vec![
            (CMD, ok(command(None))),
            (LOGS, first),
            (COMMAND, always(ok(command(None)))),
            (LOGS, Reply::Lines(whole.concat())),
        ])
        .await;
        assert_eq!((completion(report), got.as_str()), (Completion::Exited { code: 3 }, "one\ntwo\nthree\n"));
        assert_eq!((service.count(CMD), service.count(LOGS)), (1, 2));
    }
}

#[tokio::test]
async fn a_start_whose_answer_is_lost_is_found_and_not_repeated() {
    let listed = json!({ "commands": [
        { "id": "cmd_9", "args": ["-c", "another"], "exitCode": 0 },
        { "id": "cmd_1", "args": ["-c", "x", "FRAME"], "exitCode": null },
    ] });
    let list = format!("GET {SESSION}/cmd");
    let (service, report, got) = run(vec![
        (CMD, Reply::Lost),
        (&list, ok(listed)),
        (LOGS, Reply::Lines([begun(), vec![out("ran")], ended(0)].concat())),
    ])
    .await;
    assert_eq!((completion(report), got.as_str()), (Completion::Exited { code: 0 }, "ran"));
    assert_eq!(service.count(CMD), 1);

    let (service, report, _) = run(vec![(CMD, Reply::Text(502, "")), (&list, ok(json!({ "commands": [] })))]).await;
    assert_eq!(*report.unwrap_err().kind(), ErrorKind::Transport, "it may have been started");
    assert_eq!(service.count(CMD), 1);
}

#[tokio::test]
async fn a_command_without_a_word_about_its_end_has_the_services_exit_code() {
    let cut = || Reply::Lines([begun(), vec![out("partial")]].concat());
    let (service, report, got) =
        run(vec![(CMD, ok(command(None))), (LOGS, always(cut())), (COMMAND, always(ok(command(Some(137)))))]).await;
    assert_eq!((completion(report), got.as_str()), (Completion::Exited { code: 137 }, "partial"));
    assert_eq!(service.count(LOGS), 2, "the last piece may come late");
}

#[tokio::test]
async fn a_sandbox_that_dies_under_a_command_is_lost_and_never_resumed() {
    let (service, report, got) = run(vec![
        (CMD, ok(command(None))),
        (LOGS, Reply::Cut([begun(), vec![out("partial")]].concat())),
        (LOGS, refusal(410, "sandbox_stopped")),
    ])
    .await;
    assert_eq!((completion(report), got.as_str()), (Completion::SandboxLost, "partial"));
    for (status, code) in
        [(410, "sandbox_stopped"), (422, "sandbox_stopping"), (422, "sandbox_snapshotting"), (404, "not_found")]
    {
        let (again, report, _) = run(vec![(CMD, refusal(status, code))]).await;
        assert_eq!(*report.unwrap_err().kind(), ErrorKind::SandboxLost, "{status} {code}");
        assert_eq!(again.count(CMD), 1);
        assert!(!again.asked().iter().any(|asked| asked.contains("resume")));
    }
    assert!(!service.asked().iter().any(|asked| asked.contains("resume")));
}

#[tokio::test]
async fn refusals_to_start_say_what_to_do() {
    let limited = run(vec![(CMD, refusal(429, "rate_limited"))]).await.1.unwrap_err();
    assert_eq!(*limited.kind(), ErrorKind::RateLimited { retry_after: None });
    let denied = run(vec![(CMD, refusal(401, "forbidden"))]).await.1.unwrap_err();
    assert_eq!(*denied.kind(), ErrorKind::Credentials);
    assert!(!format!("{denied} {denied:?}").contains(crate::script::TOKEN));
}

#[tokio::test]
async fn a_command_waits_for_its_sandbox_to_run() {
    let (named, get) = (format!("GET {NAMED}"), format!("GET {SESSION}"));
    let service = Scripted::new(vec![
        (&named, ok(opened("pending"))),
        (&get, ok(json!({ "session": session("pending") }))),
        (&get, ok(json!({ "session": session("running") }))),
        (CMD, always(ok(command(None)))),
        (LOGS, always(Reply::Lines([begun(), ended(0)].concat()))),
    ])
    .await;
    let sandbox = service.backend.attach(&call(), &reference()).await.unwrap();
    for _ in 0..2 {
        let report = sandbox.exec(&call(), &ExecSpec::sh("x"), &TailSink::new(0)).await;
        assert_eq!(completion(report), Completion::Exited { code: 0 });
    }
    assert_eq!(service.count(&get), 2, "asked until it runs, and no more");
}

#[tokio::test]
async fn a_limit_holds_also_when_the_service_does_not_answer_any_more() {
    let get = format!("GET {NAMED}");
    let service = Scripted::new(vec![
        (&get, ok(opened("running"))),
        (CMD, ok(command(None))),
        (LOGS, Reply::Cut([begun(), vec![out("partial")]].concat())),
        (LOGS, always(Reply::Text(502, ""))),
        (CMD, always(Reply::Text(502, ""))),
    ])
    .await;
    let sandbox = service.backend.attach(&call(), &reference()).await.unwrap();
    let sink = TailSink::new(1 << 16);
    let report = sandbox.exec(&call(), &ExecSpec::sh("x").timeout(Duration::from_millis(300)), &sink).await;
    // Nobody has seen it run that long; the service was asked to kill it all the same.
    assert_eq!(completion(report), Completion::TransportLost);
    assert_eq!(sink.text(Stream::Stdout), "partial");
    assert_eq!(service.bodies(&format!("{CMD}/cmd_1/kill")), [json!({ "signal": 9 })]);
}
