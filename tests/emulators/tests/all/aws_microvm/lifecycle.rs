//! How MicroVMs live and end.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{Account, path};

const HOOKS: [&str; 4] = ["run", "suspend", "resume", "terminate"];

fn all_hooks() -> Value {
    let mut hooks = json!({ "port": 9000, "microvmHooks": {}, "microvmImageHooks": { "ready": "ENABLED", "readyTimeoutInSeconds": 60 } });
    for hook in HOOKS {
        hooks["microvmHooks"][hook] = json!("ENABLED");
        hooks["microvmHooks"][format!("{hook}TimeoutInSeconds")] = json!(10);
    }
    hooks
}

#[tokio::test]
async fn suspended_processes_stand_still_and_go_on() {
    let account = Account::open().await;
    let image = account.image("sleeper", json!({ "hooks": all_hooks() })).await;
    let microvm = account.microvm(&image, json!({})).await;
    let token = account.token(&microvm, json!([{ "port": 8080 }])).await;
    account.ask(&microvm, &token, "/").await;
    account.ok("POST", &format!("{}/suspend", path(&microvm)), Value::Null).await;
    account.until(&microvm, "SUSPENDED").await;
    // Twice is fine, and tokens can be had meanwhile.
    account.ok("POST", &format!("{}/suspend", path(&microvm)), Value::Null).await;
    let token = account.token(&microvm, json!([{ "port": 8080 }])).await;
    let get = || account.endpoint(&microvm, &token, Method::GET, "/seen");
    let response = get().send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.text().await.unwrap()), (502, String::new()));
    account.ok("POST", &format!("{}/resume", path(&microvm)), Value::Null).await;
    account.until(&microvm, "RUNNING").await;
    let seen: Vec<Value> = account.ask(&microvm, &token, "/seen").await.as_array().unwrap().clone();
    // The same process: it remembers.
    let hooks: Vec<&str> =
        seen.iter().filter_map(|call| call["hook"].as_str()).filter(|hook| *hook != "ready").collect();
    assert_eq!(hooks, ["run", "suspend", "resume"]);
    account.ok("DELETE", &path(&microvm), Value::Null).await;
    let ended = account.until(&microvm, "TERMINATED").await;
    assert_eq!(ended["stateReason"], "Success.");
    assert!(ended["terminatedAt"].is_f64(), "{ended}");
    account.ok("DELETE", &path(&microvm), Value::Null).await;
    let (status, _, message) = account.refused("POST", &format!("{}/resume", path(&microvm)), Value::Null).await;
    assert_eq!(status, 400);
    assert!(message.contains("has been terminated and its state cannot be changed"), "{message}");
    assert!(account.emulation.machines.alive().is_empty());
    account.close().await;
}

#[tokio::test]
async fn idle_microvms_suspend_and_then_end() {
    let account = Account::open().await;
    let image = account.image("idle", json!({})).await;
    // A second takes ten milliseconds: idle for 0.6 s, suspended for 2 s.
    let idle = json!({ "maxIdleDurationSeconds": 60, "suspendedDurationSeconds": 200, "autoResumeEnabled": false });
    let microvm = account.pending(&image, json!({ "idlePolicy": idle })).await;
    account.until(&microvm, "SUSPENDED").await;
    let ended = account.until(&microvm, "TERMINATED").await;
    assert!(ended["stateReason"].as_str().is_some_and(|reason| reason.contains("uspended")), "{ended}");
    account.close().await;
}

#[tokio::test]
async fn traffic_keeps_a_microvm_up_and_wakes_it() {
    let account = Account::open().await;
    let image = account.image("awake", json!({})).await;
    let idle = json!({ "maxIdleDurationSeconds": 200, "suspendedDurationSeconds": 10_000, "autoResumeEnabled": true });
    let microvm = account.microvm(&image, json!({ "idlePolicy": idle })).await;
    let token = account.token(&microvm, json!([{ "port": 8080 }])).await;
    for _ in 0..6 {
        account.ask(&microvm, &token, "/").await;
        assert_eq!(account.get(&microvm).await["state"], "RUNNING");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    account.until(&microvm, "SUSPENDED").await;
    let woken = account.endpoint(&microvm, &token, Method::GET, "/").send().await.unwrap();
    assert_eq!(woken.status(), 200);
    assert_eq!(account.get(&microvm).await["state"], "RUNNING");
    account.close().await;
}

#[tokio::test]
async fn the_maximum_duration_ends_it() {
    let account = Account::open().await;
    let image = account.image("short", json!({})).await;
    let microvm = account.pending(&image, json!({ "maximumDurationInSeconds": 100 })).await;
    let ended = account.until(&microvm, "TERMINATED").await;
    assert!(ended["stateReason"].as_str().is_some_and(|reason| reason.contains("uration")), "{ended}");
    account.close().await;
}

#[tokio::test]
async fn a_run_hook_that_refuses_ends_it() {
    let account = Account::open().await;
    let image = account.image("refuses", json!({ "environmentVariables": { "HOOK_RUN": "409" } })).await;
    let microvm = account.ok("POST", "/2025-09-09/microvms", json!({ "imageIdentifier": image })).await;
    assert_eq!(microvm["state"], "PENDING");
    let ended = account.until(&microvm, "TERMINATED").await;
    assert_eq!(ended["stateReason"], "Run hook returned status 409");
    account.close().await;
}

#[tokio::test]
async fn a_microvm_that_is_pending_can_be_ended() {
    let account = Account::open().await;
    let image = account.image("early", json!({})).await;
    let microvm = account.ok("POST", "/2025-09-09/microvms", json!({ "imageIdentifier": image })).await;
    let (status, name, _) = account.refused("POST", &format!("{}/suspend", path(&microvm)), Value::Null).await;
    assert_eq!((status, name.as_str()), (409, "ConflictException"));
    account.ok("DELETE", &path(&microvm), Value::Null).await;
    account.until(&microvm, "TERMINATED").await;
    assert!(account.emulation.machines.alive().is_empty());
    account.close().await;
}

#[tokio::test]
async fn shutdown_leaves_no_process_and_no_file_of_busy_microvms() {
    let account = Account::open().await;
    let image = account.image("busy", json!({})).await;
    account.microvm(&image, json!({})).await;
    account.ok("POST", "/2025-09-09/microvms", json!({ "imageIdentifier": image })).await;
    account.upload("long.zip", super::archive(&[("Dockerfile", "FROM x\nRUN sleep 1000\n")])).await;
    account.ok("POST", "/2025-09-09/microvm-images", super::image_request("long")).await;
    let emulation = account.emulation.clone();
    account.close().await;
    assert!(emulation.machines.alive().is_empty());
}
