//! What the vendor would refuse is refused in its words, and what no client of the documentation sends is recorded.

use reqwest::Method;
use sandbox_bench_emulators::vercel::{ImageState, Limits, VercelOptions};
use serde_json::json;

use super::{Account, action, answer, code};

#[tokio::test(flavor = "multi_thread")]
async fn unknown_routes_fields_parameters_and_headers_are_violations() {
    let account = Account::open().await;
    let session = account.create("strict").await;
    let mut seen = 0;
    let mut recorded = |status: u16, wanted: u16, what: &str| {
        assert_eq!(status, wanted, "{what}");
        seen += 1;
        assert_eq!(account.violations(), seen, "{what}");
    };
    recorded(account.get("/v9/sandboxes").await.0, 404, "route");
    recorded(account.get("/v2/sandboxes/drives").await.0, 404, "drives");
    recorded(account.get("/v2/sandboxes?project=prj_emulator&color=red").await.0, 400, "parameter");
    recorded(account.get("/v2/sandboxes").await.0, 400, "project");
    let mut body = account.body("other");
    body["imageName"] = json!("x");
    recorded(account.post("/v3/sandboxes", body).await.0, 400, "field");
    let mut body = account.body("other");
    body["runtime"] = json!("node24");
    recorded(account.post("/v3/sandboxes", body).await.0, 400, "runtime on v3");
    let command = json!({ "command": "true", "shell": true });
    recorded(account.post(&action(&session, "cmd"), command).await.0, 400, "field of a command");
    let request = account.request(Method::POST, &action(&session, "stop")).header("x-sandbox-name", "strict");
    recorded(answer(request.send().await.unwrap()).await.0, 400, "header");
    let request = account.request(Method::POST, &action(&session, "fs/write")).body("tar");
    recorded(answer(request.send().await.unwrap()).await.0, 400, "content type of an upload");
    account.server.shutdown(crate::common::LIMIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_correct_client_can_meet_is_no_violation() {
    let images = [("task:1".to_owned(), ImageState::Ready), ("task:2".to_owned(), ImageState::Preparing)];
    let account = Account::with(VercelOptions { images: images.into(), ..VercelOptions::default() }).await;
    let with = |field: &str, value: serde_json::Value| {
        let mut body = account.body("met");
        body[field] = value;
        body
    };
    for (field, value, status, wanted) in [
        ("image", json!("task:2"), 409, "image_not_ready"),
        ("image", json!("python:3.11-slim"), 404, "not_found"),
        ("resources", json!({ "vcpus": 5 }), 400, "bad_request"),
        ("timeout", json!(86_400_001), 400, "bad_request"),
        ("source", json!({ "type": "snapshot", "snapshotId": "snap_gone" }), 410, "snapshot_not_found"),
        ("source", json!({ "type": "git", "url": "/nowhere" }), 400, "bad_request"),
        ("projectId", json!("prj_other"), 403, "forbidden"),
    ] {
        let (got, answer) = account.post("/v3/sandboxes", with(field, value)).await;
        assert_eq!((got, code(&answer)), (status, wanted), "{field}: {answer}");
    }
    let (status, made) = account.post("/v3/sandboxes", with("image", json!("task:1"))).await;
    assert_eq!((status, &made["sandbox"]["image"]), (200, &json!("task:1")));
    let (_, pushed) = account.get("/v1/vcr/repository/task/images?projectId=prj_emulator").await;
    assert_eq!(pushed["images"][0]["status"], "ready");
    assert_eq!(account.delete("met").await.0, 200);
    assert_eq!(account.delete("met").await.0, 404);
    assert_eq!(account.emulation.machines.alive(), Vec::<String>::new(), "a failed creation leaves nothing");
    account.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_answer_429_with_the_time_to_wait() {
    let limits = Limits { concurrent_sessions: 1, vcpus_per_minute: 4, ..Limits::default() };
    let account = Account::with(VercelOptions { limits, ..VercelOptions::default() }).await;
    account.create("one").await;
    let second = account.request(Method::POST, "/v3/sandboxes").body(account.body("two").to_string());
    let refused = second.send().await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "20");
    account.delete("one").await;
    let third = account.request(Method::POST, "/v3/sandboxes").body(account.body("three").to_string());
    let refused = third.send().await.unwrap();
    assert_eq!(refused.status(), 429, "four processors a minute have been handed out");
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait));
    account.close().await;
}
