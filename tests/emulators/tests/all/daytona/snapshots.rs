//! Snapshots, builds, build contexts.

use serde_json::{Value, json};

use super::Daytona;

async fn snapshot_until(daytona: &Daytona, name: &str, wanted: &str) -> Value {
    for _ in 0..4000 {
        let snapshot = daytona.ok("GET", &format!("/api/snapshots/{name}"), Value::Null).await;
        if snapshot["state"] == wanted {
            return snapshot;
        }
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
    panic!("{name} never became {wanted}");
}

#[tokio::test]
async fn inactive_and_missing_snapshots_are_refused_until_activated() {
    let daytona = Daytona::new().await;
    for image in ["debian", "debian:latest", "debian@sha256:12"] {
        assert_eq!(daytona.refused("POST", "/api/snapshots", json!({"name": "s", "imageName": image})).await.0, 400);
    }
    let body = json!({"name": "s", "imageName": "debian:12.1", "cpu": 2, "regionId": "us"});
    assert_eq!(daytona.ok("POST", "/api/snapshots", body.clone()).await["state"], "pending");
    assert_eq!(daytona.refused("POST", "/api/snapshots", body).await.0, 409);
    assert_eq!(
        daytona.refused("POST", "/api/sandbox", json!({"snapshot": "s"})).await,
        (400, "Snapshot s is pending".into())
    );
    let snapshot = snapshot_until(&daytona, "s", "active").await;
    let id = snapshot["id"].as_str().unwrap();
    assert_eq!((&snapshot["cpu"], &snapshot["mem"]), (&json!(2), &json!(1)));
    let elsewhere = daytona.refused("POST", "/api/sandbox", json!({"snapshot": "s", "target": "eu"})).await;
    assert_eq!(elsewhere, (400, "Snapshot s is not available in region eu".into()));
    daytona.ok("POST", &format!("/api/snapshots/{id}/deactivate"), Value::Null).await;
    assert_eq!(
        daytona.refused("POST", "/api/sandbox", json!({"snapshot": "s"})).await,
        (400, "Snapshot s is inactive".into())
    );
    daytona.ok("POST", &format!("/api/snapshots/{id}/activate"), Value::Null).await;
    snapshot_until(&daytona, "s", "active").await;
    let sandbox = daytona.sandbox(json!({"snapshot": id})).await;
    assert_eq!(daytona.ok("GET", &format!("/api/sandbox/{sandbox}"), Value::Null).await["cpu"], 2);
    let missing = daytona.refused("POST", "/api/sandbox", json!({"snapshot": "no"})).await;
    assert!(missing.0 == 400 && missing.1.starts_with("Snapshot no not found"), "{missing:?}");
    let gone = json!({"name": "gone", "imageName": "missing:1"});
    daytona.ok("POST", "/api/snapshots", gone).await;
    assert!(snapshot_until(&daytona, "gone", "error").await["errorReason"].as_str().unwrap().contains("missing:1"));
    assert_eq!(daytona.refused("DELETE", "/api/snapshots/s", Value::Null).await.0, 404, "delete takes ids");
    daytona.ok("DELETE", &format!("/api/snapshots/{id}"), Value::Null).await;
    daytona.close().await;
}

#[tokio::test]
async fn a_build_with_a_context_executes_once_and_shows_its_log() {
    let daytona = Daytona::new().await;
    let access = daytona.ok("GET", "/api/object-storage/push-access", Value::Null).await;
    let text = |name: &str| access[name].as_str().unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o644);
    tar.append_data(&mut header, "src/hello", &b"hello"[..]).unwrap();
    let url = format!("{}/{}/{}/abc/context.tar", text("storageUrl"), text("bucket"), text("organizationId"));
    let put = || daytona.client.put(&url).body(tar.get_ref().clone());
    assert_eq!(put().send().await.unwrap().status(), 403);
    assert_eq!(daytona.violations().len(), 1, "an unsigned upload");
    daytona.server.emulation().violations.clear();
    let credential =
        format!("AWS4-HMAC-SHA256 Credential={}/20260101/us/s3/aws4_request, Signature=00", text("accessKey"));
    let signed = put()
        .header("authorization", credential)
        .header("x-amz-security-token", text("sessionToken"))
        .header("x-amz-date", "20260101T000000Z")
        .header("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
    assert_eq!(signed.send().await.unwrap().status(), 200);

    let dockerfile = "FROM debian:12\nCOPY src/hello /made/\nRUN cat /made/hello; echo; date +%N > /stamp\n";
    let build = json!({"buildInfo": {"dockerfileContent": dockerfile, "contextHashes": ["abc"]}, "cpu": 1});
    let created = daytona.ok("POST", "/api/sandbox", build.clone()).await;
    assert_eq!(created["state"], "pending_build");
    let first = created["id"].as_str().unwrap();
    let seen = daytona.until(first, "started").await;
    assert!(seen.contains(&"building_snapshot".to_owned()), "{seen:?}");
    let url = daytona.ok("GET", &format!("/api/sandbox/{first}/build-logs-url"), Value::Null).await;
    let path = url["url"].as_str().unwrap().strip_prefix(daytona.server.base_url()).unwrap();
    let log = daytona.request("GET", &format!("{path}?follow=true")).send().await.unwrap().text().await.unwrap();
    assert!(log.contains("\nhello\n"), "{log}");
    let second = daytona.sandbox(build).await;
    let stamps = [daytona.execute(first, "cat /stamp").await, daytona.execute(&second, "cat /stamp").await];
    assert_eq!(stamps[0], stamps[1], "the second comes from the build cache");

    let broken = json!({"buildInfo": {"dockerfileContent": "FROM missing:1\n"}});
    let id = daytona.ok("POST", "/api/sandbox", broken).await["id"].as_str().unwrap().to_owned();
    daytona.until(&id, "build_failed").await;
    let reason = daytona.ok("GET", &format!("/api/sandbox/{id}"), Value::Null).await["errorReason"].clone();
    assert!(reason.as_str().unwrap().contains("missing:1"), "{reason}");
    daytona.close().await;
}

#[tokio::test]
async fn a_captured_sandbox_is_a_snapshot_that_outlives_it() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({})).await;
    daytona.execute(&id, "echo kept > /kept").await;
    let captured = daytona.ok("POST", &format!("/api/sandbox/{id}/snapshot"), json!({"name": "c"})).await;
    assert_eq!(captured["state"], "snapshotting");
    daytona.until(&id, "started").await;
    let snapshot = snapshot_until(&daytona, "c", "active").await;
    assert_eq!(snapshot["sourceSandboxId"], id.as_str());
    daytona.ok("DELETE", &format!("/api/sandbox/{id}"), Value::Null).await;
    daytona.until(&id, "gone").await;
    let copy = daytona.sandbox(json!({"snapshot": "c"})).await;
    assert_eq!(daytona.execute(&copy, "cat /kept").await["result"], "kept\n");
    daytona.close().await;
}
