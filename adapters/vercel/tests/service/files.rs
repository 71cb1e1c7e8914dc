//! Files on bad days: whole, or an error and no file.

use std::sync::Arc;

use sandbox_bench_core::{ErrorKind, Input, Sandbox, Stage};
use serde_json::json;

use crate::script::{NAMED, Reply, SESSION, Scripted, always, call, ok, opened, reference, refusal};

const READ: &str = "POST /v2/sandboxes/sessions/sbx_1/fs/read";

/// A running sandbox whose helpers all end with this code and say this.
async fn sandbox(code: i32, said: &str, replies: Vec<(&str, Reply)>) -> (Scripted, Arc<dyn Sandbox>) {
    let (get, cmd) = (format!("GET {NAMED}"), format!("POST {SESSION}/cmd"));
    let ended = json!({ "command": { "id": "cmd_1", "args": [], "exitCode": code } });
    let mut all = vec![
        (get.as_str(), ok(opened("running"))),
        (&cmd, always(Reply::Lines(vec![json!({ "stream": "stdout", "data": said }), ended]))),
    ];
    all.extend(replies);
    let service = Scripted::new(all).await;
    let sandbox = service.backend.attach(&call(), &reference()).await.unwrap();
    (service, sandbox)
}

#[tokio::test]
async fn a_file_that_does_not_arrive_whole_is_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("file");
    for (reply, kind) in [
        (Reply::File(b"abc"), ErrorKind::Unavailable),
        (ok(json!({ "message": "a gateway's answer" })), ErrorKind::Unavailable),
        (Reply::Text(502, "<html>"), ErrorKind::Unavailable),
        (refusal(410, "sandbox_stopped"), ErrorKind::SandboxLost),
    ] {
        std::fs::write(&to, "an older download").unwrap();
        let (_, sandbox) = sandbox(0, "6\n", vec![(READ, reply)]).await;
        let error = sandbox.download(&call(), "/a/b", &to, 100).await.unwrap_err();
        assert_eq!((error.kind(), to.exists()), (&kind, false), "{error}");
    }
    let (service, sandbox) = sandbox(0, "6\n", vec![(READ, Reply::File(b"abcdef"))]).await;
    assert_eq!(sandbox.download(&call(), "/a/b", &to, 100).await.unwrap().bytes, 6);
    assert_eq!(std::fs::read(&to).unwrap(), b"abcdef");
    let path = service.bodies(READ)[0]["path"].as_str().unwrap().to_owned();
    let removed = service.bodies(&format!("POST {SESSION}/cmd")).pop().unwrap();
    assert!(removed["args"].to_string().contains(&path), "what was packed is removed: {removed}");
}

#[tokio::test]
async fn an_upload_that_the_service_refuses_says_why() {
    let write = format!("POST {SESSION}/fs/write");
    let inputs = [Input::bytes("f", "/tests/f", Stage::Setup, 0o644, vec![b'x'; 50_000])];
    for (reply, kind) in [
        (Reply::Text(413, ""), ErrorKind::InvalidRequest),
        (Reply::Text(502, ""), ErrorKind::Unavailable),
        (refusal(422, "sandbox_stopping"), ErrorKind::SandboxLost),
    ] {
        let (_, sandbox) = sandbox(0, "", vec![(&write, reply)]).await;
        assert_eq!(*sandbox.upload(&call(), &inputs).await.unwrap_err().kind(), kind);
    }
    for (code, kind) in [(120, ErrorKind::Unavailable), (121, ErrorKind::Environment), (2, ErrorKind::InvalidRequest)] {
        let (_, sandbox) = sandbox(code, "", vec![(&write, ok(json!({})))]).await;
        assert_eq!(*sandbox.upload(&call(), &inputs).await.unwrap_err().kind(), kind, "{code}");
    }
    let (_, sandbox) = sandbox(0, "", vec![(&write, ok(json!({})))]).await;
    assert!(sandbox.upload(&call(), &inputs).await.unwrap().bytes >= 50_000);
}
