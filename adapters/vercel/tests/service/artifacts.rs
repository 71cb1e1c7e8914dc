//! Snapshots on bad days.

use std::sync::Arc;

use sandbox_bench_core::{Artifact, Destruction, Digest, ErrorKind, Result, Sandbox, SnapshotSpec, Tag, TagQuery};
use serde_json::{Value, json};

use crate::script::{NAMED, Reply, SESSION, Scripted, always, call, ok, opened, reference, refusal, sandbox, session};

const SNAPSHOT: &str = "POST /v2/sandboxes/sessions/sbx_1/snapshot";
const LIST: &str = "GET /v2/sandboxes/snapshots";

fn snapshot(status: &str) -> Value {
    json!({ "id": "snap_1", "sourceSessionId": "sbx_1", "region": "iad1", "status": status, "sizeBytes": 5,
        "createdAt": 1_790_000_000_000u64, "updatedAt": 1_790_000_000_000u64 })
}

fn taken(status: &str) -> Value {
    json!({ "snapshot": snapshot(status), "session": session("stopped") })
}

async fn take(replies: Vec<(&str, Reply)>) -> (Scripted, Result<Artifact>) {
    let (get, cmd, patch) = (format!("GET {NAMED}"), format!("POST {SESSION}/cmd"), format!("PATCH {NAMED}"));
    let synced = json!({ "command": { "id": "cmd_1", "args": [], "exitCode": 0 } });
    let labelled = json!({ "sandbox": sandbox("stopped", &[]) });
    let mut all = vec![
        (get.as_str(), always(ok(opened("running")))),
        (&cmd, always(Reply::Lines(vec![synced]))),
        (&patch, always(ok(labelled))),
    ];
    all.extend(replies);
    let service = Scripted::new(all).await;
    let sandbox: Arc<dyn Sandbox> = service.backend.attach(&call(), &reference()).await.unwrap();
    let spec = SnapshotSpec { tag: Tag::new("run", "warm"), fingerprint: Digest::of(b"x"), keep_for: None };
    let taken = sandbox.snapshot(&call(), &spec).await;
    (service, taken)
}

#[tokio::test]
async fn a_snapshot_is_recorded_before_and_after_it_is_taken() {
    let get = "GET /v2/sandboxes/snapshots/snap_1";
    let (service, artifact) = take(vec![
        (SNAPSHOT, Reply::Json(201, taken("creating"))),
        (get, ok(json!({ "snapshot": snapshot("created") }))),
    ])
    .await;
    let artifact = artifact.unwrap();
    assert_eq!((artifact.id.as_str(), artifact.ready, artifact.size_bytes), ("snap_1", true, Some(5)));
    let days = 14 * 86_400_000u64;
    assert_eq!(
        service.bodies(SNAPSHOT),
        [json!({ "expiration": days })],
        "always said: the default has changed before"
    );
    let records = service.bodies(&format!("PATCH {NAMED}"));
    assert_eq!(records[0]["tags"]["sandbox-bench-artifact"], "sbx-run--warm");
    assert_eq!(records[0]["tags"]["sandbox-bench-fingerprint"], Digest::of(b"x").hex());
    assert_eq!(records[0]["tags"].get("sandbox-bench-snapshot"), None);
    assert_eq!(records[1]["tags"]["sandbox-bench-snapshot"], "snap_1");
    assert_eq!(records[1]["tags"]["sandbox-bench"], "sbx-run--unit", "it is still to be destroyed");
}

#[tokio::test]
async fn a_snapshot_whose_answer_is_lost_is_found_or_uncertain() {
    let listed = json!({ "snapshots": [snapshot("created")], "pagination": { "count": 1, "next": null } });
    let (service, artifact) = take(vec![(SNAPSHOT, Reply::Lost), (LIST, ok(listed))]).await;
    assert_eq!(artifact.unwrap().id, "snap_1");
    assert!(service.asked().iter().any(|asked| asked.starts_with(LIST) && asked.contains("name=sbx-run--unit")));
    let nothing = json!({ "snapshots": [], "pagination": { "count": 0, "next": null } });
    let (service, artifact) = take(vec![(SNAPSHOT, Reply::Lost), (LIST, ok(nothing))]).await;
    assert_eq!(*artifact.unwrap_err().kind(), ErrorKind::UncertainSubmission { tag: Tag::new("run", "warm") });
    assert_eq!(service.count(SNAPSHOT), 1);
    let (_, failed) = take(vec![(SNAPSHOT, Reply::Json(201, taken("failed")))]).await;
    assert_eq!(*failed.unwrap_err().kind(), ErrorKind::Failed);
    let (_, refused) = take(vec![(SNAPSHOT, refusal(402, "payment_required"))]).await;
    assert_eq!(*refused.unwrap_err().kind(), ErrorKind::Capacity);
}

#[tokio::test]
async fn a_snapshot_that_is_not_recorded_as_ours_is_not_deleted() {
    let get = "GET /v2/sandboxes/snapshots/snap_1";
    let empty = json!({ "sandboxes": [], "pagination": { "count": 0, "next": null } });
    let service = Scripted::new(vec![
        ("GET /v2/sandboxes", always(ok(empty))),
        (get, ok(json!({ "snapshot": snapshot("created") }))),
    ])
    .await;
    let refused = service.backend.delete_artifact(&call(), "snap_1").await;
    assert_eq!(*refused.unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert!(!service.asked().iter().any(|asked| asked.starts_with("DELETE")));
    assert_eq!(service.backend.delete_artifact(&call(), "snap_1").await.unwrap(), Destruction::Confirmed, "it is gone");
}

#[tokio::test]
async fn a_delete_that_deletes_nothing_is_not_confirmed() {
    let digest = Digest::of(b"x").hex();
    let tags = [
        ("sandbox-bench-artifact", "sbx-run--warm"),
        ("sandbox-bench-fingerprint", digest.as_str()),
        ("sandbox-bench-snapshot", "snap_1"),
    ];
    let listed = json!({ "sandboxes": [sandbox("stopped", &tags)], "pagination": { "count": 1, "next": null } });
    let service = Scripted::new(vec![
        ("GET /v2/sandboxes", always(ok(listed))),
        ("GET /v2/sandboxes/snapshots/snap_1", always(ok(json!({ "snapshot": snapshot("created") })))),
        ("DELETE /v2/sandboxes/snapshots/snap_1", always(ok(json!({ "snapshot": snapshot("deleted") })))),
    ])
    .await;
    let deleted = service.backend.delete_artifact(&call(), "snap_1").await.unwrap();
    assert!(matches!(deleted, Destruction::Unconfirmed { .. }));
    let found = service.backend.artifacts(&call(), &TagQuery::All).await.unwrap();
    assert_eq!(found.iter().map(|artifact| artifact.id.as_str()).collect::<Vec<_>>(), ["snap_1"]);
    assert_eq!(found[0].fingerprint, Some(Digest::of(b"x")));
}
