//! What the vendor would refuse is refused in its words, and what no client of the documentation sends is recorded.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use sandbox_bench_emulators::faults::Effect;
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
    assert_eq!(status, 200);
    let image = made["sandbox"]["image"].as_str().unwrap();
    let (_, pushed) = account.get("/v1/vcr/repository/task/images?projectId=prj_emulator").await;
    assert_eq!(pushed["images"][0]["status"], "ready");
    assert_eq!(image, format!("task@{}", pushed["images"][0]["manifestDigest"].as_str().unwrap()));
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

#[tokio::test(flavor = "multi_thread")]
async fn an_oidc_token_says_the_project() {
    let mut account = Account::open().await;
    let claims = json!({ "owner_id": "team_emulator", "project_id": "prj_emulator", "exp": u32::MAX });
    account.options.tokens = vec![format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))];
    let (status, made) = account.post("/v3/sandboxes", json!({ "name": "claimed" })).await;
    assert_eq!((status, &made["sandbox"]["persistent"]), (200, &json!(true)));
    assert_eq!(account.get("/v2/sandboxes").await.1["sandboxes"][0]["name"], "claimed");
    account.options.tokens = vec!["another".to_owned()];
    assert_eq!(account.get("/v2/sandboxes").await.0, 401);
    account.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_answers_reach_the_client() {
    let account = Account::open().await;
    let session = account.create("wrong").await;
    let path = format!("/v2/sandboxes/sessions/{session}");
    for (flag, pointer, value) in [
        ("unknown-status", "/session/status", json!("hibernating")),
        ("null-started-at", "/session/startedAt", json!(null)),
        ("echo-policy", "/session/networkPolicy/mode", json!("default-allow")),
    ] {
        account.emulation.faults.set(Default::default()).unwrap();
        account.script(Method::GET, "/api/**", Effect::flag(flag));
        assert_eq!(account.get(&path).await.1.pointer(pointer), Some(&value), "{flag}");
    }
    account.script(Method::POST, "/api/**/snapshot", Effect::flag("snapshot-failed"));
    let (_, taken) = account.post(&action(&session, "snapshot"), json!({})).await;
    assert_eq!(taken["snapshot"]["status"], "failed");
    account.script(Method::POST, "/api/v3/sandboxes", Effect::flag("image-not-ready"));
    assert_eq!(code(&account.post("/v3/sandboxes", account.body("late")).await.1), "image_not_ready");
    account.close().await;
}
