//! Strictness, states, lists.

use std::time::Duration;

use sandbox_bench_emulators::daytona::{DaytonaOptions, Permission};
use sandbox_bench_emulators::faults::Effect;
use serde_json::{Value, json};

use super::Daytona;

#[tokio::test]
async fn what_no_correct_client_sends_gets_the_vendors_error_and_is_recorded() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({})).await;
    let create = "/api/sandbox";
    let cases = [
        ("GET", "/api/nothing".to_owned(), Value::Null, 404),
        ("PATCH", create.into(), json!({}), 404),
        ("POST", create.into(), json!({"image": "debian:12"}), 400),
        ("POST", create.into(), json!({"snapshot": 5}), 400),
        ("POST", create.into(), json!({"networkAllowList": ["10.0.0.0/8"]}), 400),
        ("POST", create.into(), json!({"networkAllowList": "10.0.0.1"}), 400),
        ("POST", create.into(), json!({"buildInfo": {"dockerfileContent": "FROM a:1"}, "cpu": 1.5}), 400),
        ("POST", create.into(), json!({"snapshot": "daytona-small", "cpu": 2}), 400),
        ("GET", "/api/sandbox?label=x".into(), Value::Null, 400),
        ("GET", "/api/sandbox?labels=x".into(), Value::Null, 400),
        ("GET", "/api/sandbox?limit=201".into(), Value::Null, 400),
        ("POST", format!("/toolbox/{id}/process/execute"), json!({"command": "x", "env": {}}), 400),
        ("POST", format!("/toolbox/{id}/process/execute"), json!({"command": "x", "envs": {"a-b": "c"}}), 400),
        ("POST", format!("/toolbox/{id}/files/folder?path=/x&mode=9"), Value::Null, 400),
        ("POST", format!("/toolbox/{id}/process/session"), json!({"sessionId": "entrypoint"}), 400),
    ];
    let count = cases.len();
    for (at, (method, path, body, expected)) in cases.into_iter().enumerate() {
        let (status, message) = daytona.refused(method, &path, body).await;
        assert_eq!(status, expected, "{method} {path}: {message}");
        assert!(!message.is_empty(), "{method} {path}");
        assert_eq!(daytona.violations().len(), at + 1, "{method} {path}: {:?}", daytona.violations());
    }
    let unauthorized = daytona.bare("GET", "/api/sandbox").send().await.unwrap();
    assert_eq!((unauthorized.status().as_u16(), daytona.violations().len()), (401, count + 1));
    let body: Value = unauthorized.json().await.unwrap();
    assert_eq!(
        (&body["statusCode"], &body["error"], &body["path"]),
        (&json!(401), &json!("Unauthorized"), &json!(create))
    );
    // A wrong key is a user's mistake, not the client's.
    let wrong = daytona.bare("GET", "/api/sandbox").bearer_auth("dtn_other").send().await.unwrap();
    assert_eq!((wrong.status().as_u16(), daytona.violations().len()), (401, count + 1));
    daytona.server.emulation().violations.clear();
    daytona.close().await;
}

#[tokio::test]
async fn create_answers_with_the_old_state_and_states_follow_each_other() {
    let daytona = Daytona::new().await;
    let created = daytona.ok("POST", "/api/sandbox", json!({"name": "n", "labels": {"a": "b"}})).await;
    assert_eq!((&created["state"], &created["snapshot"]), (&json!("creating"), &json!("daytona-small")));
    let id = created["id"].as_str().unwrap();
    assert_eq!(daytona.ok("GET", "/api/sandbox/n", Value::Null).await["id"], created["id"]);
    let (status, message) = daytona.refused("POST", "/api/sandbox", json!({"name": "n"})).await;
    assert_eq!((status, message.as_str()), (409, "Sandbox with name n already exists"));
    assert_eq!(daytona.ok("POST", "/api/sandbox/n/stop", Value::Null).await["state"], "stopping");
    let (status, message) = daytona.refused("DELETE", &format!("/api/sandbox/{id}"), Value::Null).await;
    assert_eq!((status, message.as_str()), (409, "Sandbox state change in progress"));
    daytona.until(id, "stopped").await;
    assert_eq!(daytona.refused("POST", "/api/sandbox/n/stop", Value::Null).await.0, 400);
    assert_eq!(
        daytona.refused("POST", &format!("/toolbox/{id}/process/execute"), json!({"command": "x"})).await.0,
        400
    );
    assert_eq!(daytona.ok("POST", "/api/sandbox/n/start", Value::Null).await["state"], "started");
    assert_eq!(daytona.ok("DELETE", "/api/sandbox/n", Value::Null).await["state"], "destroying");
    assert_eq!(daytona.until(id, "gone").await, ["destroying", "gone"]);
    assert_eq!(daytona.refused("DELETE", "/api/sandbox/n", Value::Null).await.0, 404);
    assert!(daytona.server.emulation().machines.alive().is_empty());
    daytona.close().await;
}

#[tokio::test]
async fn an_ephemeral_sandbox_goes_when_it_stops() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({"autoDeleteInterval": 0})).await;
    assert_eq!(daytona.refused("POST", &format!("/api/sandbox/{id}/archive"), Value::Null).await.0, 400);
    daytona.ok("POST", &format!("/api/sandbox/{id}/stop?force=true"), Value::Null).await;
    daytona.until(&id, "gone").await;
    daytona.close().await;
}

async fn listed(daytona: &Daytona, query: &str) -> Vec<String> {
    let list = daytona.ok("GET", &format!("/api/sandbox{query}"), Value::Null).await;
    list["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn lists_filter_page_and_lag() {
    let daytona = Daytona::new().await;
    for (name, run) in [("one", "r1"), ("two", "r1"), ("three", "r2")] {
        daytona.sandbox(json!({"name": name, "labels": {"run": run, "x": "y"}})).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let labels = "?labels=%7B%22run%22%3A%22r1%22%7D&sort=createdAt&order=asc";
    assert_eq!(listed(&daytona, labels).await, ["one", "two"]);
    assert_eq!(listed(&daytona, "?name=T&states=started&states=stopped&sort=name&order=asc").await, ["three", "two"]);
    assert!(listed(&daytona, "?states=stopped").await.is_empty());
    let first = daytona.ok("GET", &format!("/api/sandbox{labels}&limit=1"), Value::Null).await;
    let cursor = first["nextCursor"].as_str().unwrap();
    assert_eq!(listed(&daytona, &format!("{labels}&limit=1&cursor={cursor}")).await, ["two"]);
    assert!(first["items"][0].get("env").is_none(), "list items carry no environment");
    daytona.ok("DELETE", "/api/sandbox/one", Value::Null).await;
    daytona.until("one", "gone").await;
    daytona.fault("GET", "/api/sandbox", Effect::flag("stale-list"));
    assert_eq!(listed(&daytona, labels).await, ["one", "two"]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(listed(&daytona, labels).await, ["two"]);
    daytona.close().await;
}

#[tokio::test]
async fn a_key_without_permission_may_not_and_a_user_may() {
    let permissions = [Permission::WriteSandboxes].into();
    let daytona = Daytona::with(DaytonaOptions { permissions, ..DaytonaOptions::default() }).await;
    let id = daytona.sandbox(json!({})).await;
    let path = format!("/api/sandbox/{id}");
    assert_eq!(daytona.refused("DELETE", &path, Value::Null).await.0, 403);
    assert_eq!(daytona.refused("POST", "/api/snapshots", json!({"name": "s", "imageName": "a:1"})).await.0, 403);
    let organization = daytona.ok("GET", &path, Value::Null).await["organizationId"].as_str().unwrap().to_owned();
    let jwt = || daytona.bare("DELETE", &path).bearer_auth("emulator.jwt");
    assert_eq!(jwt().send().await.unwrap().status(), 401, "a JWT names its organization");
    let named = jwt().header("X-Daytona-Organization-ID", organization).send().await.unwrap();
    assert_eq!(named.status(), 200);
    daytona.until(&id, "gone").await;
    daytona.close().await;
}
