//! Faults that only this vendor's module knows.

use std::time::Duration;

use reqwest::Method;
use sandbox_bench_emulators::faults::{Effect, Ending};
use serde_json::{Value, json};

use super::{Account, archive, image_path, image_request, path};

fn flag(name: &str, value: u64) -> Effect {
    Effect::Flag { name: name.into(), value }
}

#[tokio::test]
async fn reads_can_be_behind() {
    let account = Account::open().await;
    let image = account.image("behind", json!({})).await;
    let microvm = account.microvm(&image, json!({})).await;
    account.script("GET", "/2025-09-09/microvms/*", flag("stale", 3_600_000));
    assert_eq!(account.get(&microvm).await["state"], "PENDING");
    assert_eq!(account.get(&microvm).await["state"], "RUNNING");
    account.close().await;
}

#[tokio::test]
async fn a_terminate_may_be_without_effect() {
    let account = Account::open().await;
    let image = account.image("stays", json!({})).await;
    let microvm = account.microvm(&image, json!({})).await;
    account.script("DELETE", "/2025-09-09/microvms/*", flag("terminate-ignored", 0));
    account.ok("DELETE", &path(&microvm), Value::Null).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(account.get(&microvm).await["state"], "RUNNING");
    account.script("DELETE", "/2025-09-09/microvms/*", flag("terminate-stuck", 0));
    account.ok("DELETE", &path(&microvm), Value::Null).await;
    account.until(&microvm, "TERMINATING").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(account.get(&microvm).await["state"], "TERMINATING");
    account.ok("DELETE", &path(&microvm), Value::Null).await;
    account.until(&microvm, "TERMINATED").await;
    account.close().await;
}

#[tokio::test]
async fn microvms_can_fail_to_start_and_die() {
    let account = Account::open().await;
    let image = account.image("dies", json!({})).await;
    account.script("POST", "/2025-09-09/microvms", flag("start-fails", 0));
    let microvm = account.ok("POST", "/2025-09-09/microvms", json!({ "imageIdentifier": image })).await;
    account.until(&microvm, "TERMINATED").await;
    account.script("POST", "/2025-09-09/microvms", flag("dies", 50));
    let microvm = account.pending(&image, json!({})).await;
    let ended = account.until(&microvm, "TERMINATED").await;
    assert_eq!(ended["stateReason"], "The MicroVM stopped unexpectedly.");
    account.close().await;
}

#[tokio::test]
async fn a_lost_answer_is_found_again_by_its_token() {
    let account = Account::open().await;
    let image = account.image("lost", json!({})).await;
    account.script("POST", "/2025-09-09/microvms", Effect::LoseResponse);
    let run = json!({ "imageIdentifier": image, "clientToken": "lost-1" });
    let lost = account.signed("lambda", Method::POST, "/2025-09-09/microvms", run.to_string()).send().await;
    assert!(lost.is_err());
    account.ok("POST", "/2025-09-09/microvms", run).await;
    let made = account.ok("GET", "/2025-09-09/microvms", Value::Null).await;
    assert_eq!(made["items"].as_array().unwrap().len(), 1);
    account.close().await;
}

#[tokio::test]
async fn tokens_expire_answers_are_cut_and_microvms_die_on_demand() {
    let account = Account::open().await;
    let image = account.image("cut", json!({})).await;
    let microvm = account.microvm(&image, json!({})).await;
    account.script("POST", "/2025-09-09/microvms/*/auth-token", flag("token-expires", 0));
    let dead = account.token(&microvm, json!([{ "port": 8080 }])).await;
    let response = account.endpoint(&microvm, &dead, Method::GET, "/").send().await.unwrap();
    assert_eq!(response.status(), 403);
    let token = account.token(&microvm, json!([{ "port": 8080 }])).await;
    account.ask(&microvm, &token, "/").await;
    account.script("GET", "/big", Effect::Cut { after: 1000, ending: Ending::Close });
    let cut = account.endpoint(&microvm, &token, Method::GET, "/big").send().await.unwrap();
    assert!(cut.bytes().await.is_err());
    account.script("GET", "/", flag("token-revoked", 0));
    for _ in 0..2 {
        let response = account.endpoint(&microvm, &token, Method::GET, "/").send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), response.text().await.unwrap().as_str()),
            (403, "Token authentication failed")
        );
    }
    let token = account.token(&microvm, json!([{ "port": 8080 }])).await;
    account.script("GET", "/seen", flag("dies", 0));
    assert_eq!(account.endpoint(&microvm, &token, Method::GET, "/seen").send().await.unwrap().status(), 502);
    account.until(&microvm, "TERMINATED").await;
    account.close().await;
}

#[tokio::test]
async fn builds_can_fail_for_any_reason_and_be_stuck() {
    let account = Account::open().await;
    account.upload("x.zip", archive(&[("Dockerfile", "FROM x\n")])).await;
    let builds = |arn: &str| format!("{}/versions/1.0/builds", image_path(arn));
    account.script("POST", "/2025-09-09/microvm-images", flag("build-fails", 9));
    let made = account.ok("POST", "/2025-09-09/microvm-images", image_request("x")).await;
    let arn = made["imageArn"].as_str().unwrap();
    assert_eq!(account.built(arn).await, "CREATE_FAILED");
    let reason = account.ok("GET", &builds(arn), Value::Null).await["items"][0]["stateReason"].clone();
    assert_eq!(reason, "INTERNAL_PLATFORM_ERROR");
    account.script("POST", "/2025-09-09/microvm-images", flag("build-stuck", 0));
    let made = account.ok("POST", "/2025-09-09/microvm-images", image_request("y")).await;
    let arn = made["imageArn"].as_str().unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(account.ok("GET", &builds(arn), Value::Null).await["items"][0]["buildState"], "PENDING");
    account.close().await;
}
