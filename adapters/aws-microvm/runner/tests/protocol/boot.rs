//! Who is let in, and who the MicroVM is.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use reqwest::Method;
use serde_json::Value;

use super::support::*;

async fn health(runner: &Runner) -> Value {
    json_of(runner.bare(Method::GET, "/v1/health").send().await.unwrap(), 200).await
}

#[tokio::test]
async fn the_token_of_the_first_run_is_the_only_key() {
    let runner = Runner::fresh(&[]);
    let before = health(&runner).await;
    assert_eq!((&before["bootstrapped"], &before["microvm_id"]), (&false.into(), &Value::Null));
    assert_eq!((&before["runner"], &before["protocol"]), (&"sandbox-runner".into(), &1.into()));
    refused(runner.request(Method::GET, "/v1/jobs").send().await.unwrap(), 503, "not_bootstrapped").await;

    assert_eq!(runner.run_hook(&payload(TOKEN)).await.status(), 200);
    assert_eq!(runner.run_hook(&payload(TOKEN)).await.status(), 200, "the same again changes nothing");
    refused(runner.run_hook(&payload("another")).await, 409, "conflict").await;

    let after = health(&runner).await;
    assert_eq!((&after["bootstrapped"], &after["microvm_id"]), (&true.into(), &"microvm-1".into()));
    assert_ne!(before["boot_id"], after["boot_id"], "what the snapshot held is not this MicroVM's");
    assert_eq!(health(&runner).await["boot_id"], after["boot_id"]);
    for request in [runner.bare(Method::GET, "/v1/jobs"), runner.bare(Method::GET, "/v1/jobs").bearer_auth("wrong")] {
        refused(request.send().await.unwrap(), 401, "unauthorized").await;
    }
    let basic = runner.bare(Method::GET, "/v1/jobs").header("authorization", TOKEN);
    refused(basic.send().await.unwrap(), 401, "unauthorized").await;
    json_of(runner.request(Method::GET, "/v1/jobs").send().await.unwrap(), 200).await;
}

#[tokio::test]
async fn a_payload_that_is_not_one_is_refused_and_leaves_the_door_shut() {
    let runner = Runner::fresh(&[]);
    for bad in ["x", "{}", r#"{"v":2,"token_sha256":"00"}"#, r#"{"v":1,"token_sha256":"+1"}"#] {
        refused(runner.run_hook(bad).await, 400, "bad_request").await;
    }
    refused(runner.hook("run", "no json".into()).await, 400, "bad_request").await;
    assert_eq!(runner.hook("run", String::new()).await.status(), 200, "an image may be run without a payload");
    refused(runner.request(Method::GET, "/v1/jobs").send().await.unwrap(), 503, "not_bootstrapped").await;
}

#[tokio::test]
async fn an_image_may_do_without_a_token() {
    let runner = Runner::fresh(&[("SANDBOX_RUNNER_TOKEN_REQUIRED", "0")]);
    json_of(runner.bare(Method::GET, "/v1/jobs").send().await.unwrap(), 200).await;
}

#[tokio::test]
async fn hooks_answer_and_are_told_by_health() {
    let runner = Runner::start().await;
    for hook in ["ready", "validate", "suspend", "resume", "terminate", "suspend"] {
        assert_eq!(runner.hook(hook, String::new()).await.status(), 200, "{hook}");
    }
    refused(runner.hook("reboot", String::new()).await, 404, "not_found").await;
    let expected = ["run", "ready", "validate", "suspend", "resume", "terminate"];
    assert_eq!(health(&runner).await["hooks"], serde_json::json!(expected));
    // The API port has no hooks, and the hook port no API.
    let elsewhere = runner.request(Method::POST, "/aws/lambda-microvms/runtime/v1/ready");
    refused(elsewhere.send().await.unwrap(), 404, "not_found").await;
}

#[tokio::test]
async fn whatever_else_is_sent_is_answered_or_dropped() {
    let runner = Runner::start().await;
    refused(runner.request(Method::GET, "/v1/nothing").send().await.unwrap(), 404, "not_found").await;
    refused(runner.request(Method::PATCH, "/v1/jobs").send().await.unwrap(), 405, "bad_request").await;
    for bad in ["", "[]", "{", r#"{"job_id":"a"}"#, r#"{"job_id":"a/b","argv":["x"],"timeout_ms":1}"#] {
        let answer = runner.request(Method::POST, "/v1/jobs").body(bad).send().await.unwrap();
        refused(answer, 400, "bad_request").await;
    }
    let odd = runner.request(Method::GET, "/v1/jobs/none?wait_ms=soon").send().await.unwrap();
    refused(odd, 400, "bad_request").await;
    // The proxy tries TLS first.
    for hello in [&b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03"[..], b"\0\0\0\r\n\r\n", b"GET / HTTP/9\r\n\r\n"] {
        let mut connection = TcpStream::connect(runner.api.trim_start_matches("http://")).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        connection.write_all(hello).unwrap();
        connection.shutdown(std::net::Shutdown::Write).unwrap();
        connection.read_to_end(&mut Vec::new()).unwrap();
    }
    assert_eq!(runner.finish(shell("j", "echo alive")).await["exit_code"], 0);
}
