//! Sandboxes and sessions pass through their states.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use sandbox_bench_emulators::faults::Effect;
use serde_json::{Value, json};

use super::{Account, action, code};

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_session_is_gone_and_says_what_it_used() {
    let account = Account::open().await;
    let session = account.create("stops").await;
    account.run(&session, "i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done").await;
    let (status, stopped) = account.post(&action(&session, "stop"), json!({})).await;
    assert_eq!((status, &stopped["session"]["status"]), (200, &json!("stopped")));
    assert!(stopped["session"]["activeCpuDurationMs"].as_u64().unwrap() > 0);
    assert_eq!(stopped["session"]["networkTransfer"], json!({ "ingress": 0, "egress": 0 }));
    assert_eq!(stopped["snapshot"], Value::Null, "it was not persistent");
    assert!(account.emulation.machines.alive().is_empty());
    for (what, body) in [("cmd", json!({ "command": "true" })), ("extend-timeout", json!({ "duration": 1000 }))] {
        let (status, refused) = account.post(&action(&session, what), body).await;
        assert_eq!((status, code(&refused)), (410, "sandbox_stopped"));
    }
    assert_eq!(account.post(&action(&session, "stop"), json!({})).await.0, 200);
    account.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn states_are_passed_through_and_refuse_commands_meanwhile() {
    let account = Account::open().await;
    account.script(Method::POST, "/api/v3/sandboxes", Effect::Flag { name: "pending".into(), value: 300 });
    let session = account.create("slow").await;
    let command = json!({ "command": "true" });
    let (status, refused) = account.post(&action(&session, "cmd"), command.clone()).await;
    assert_eq!((status, code(&refused)), (422, "sandbox_pending"));
    reach(&account, &session, "running").await;
    assert_eq!(account.post(&action(&session, "cmd"), command.clone()).await.0, 200);
    account.script(Method::POST, "/api/**/stop", Effect::flag("stop-lags"));
    let (_, stopping) = account.post(&action(&session, "stop"), json!({})).await;
    assert_eq!(stopping["session"]["status"], "stopping");
    let (status, refused) = account.post(&action(&session, "cmd"), command).await;
    assert_eq!((status, code(&refused)), (422, "sandbox_stopping"));
    reach(&account, &session, "stopped").await;
    account.close().await;
}

async fn reach(account: &Account, session: &str, wanted: &str) {
    let path = format!("/v2/sandboxes/sessions/{session}");
    until(async || account.get(&path).await.1["session"]["status"] == wanted).await;
}

async fn until(reached: impl AsyncFn() -> bool) {
    let wait = async {
        while !reached().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(crate::common::LIMIT, wait).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_by_itself_when_its_time_is_over() {
    let account = Account::open().await;
    let mut body = account.body("short");
    body["timeout"] = json!(600);
    let (_, made) = account.post("/v3/sandboxes", body).await;
    let session = made["session"]["id"].as_str().unwrap().to_owned();
    let lines = account.run(&session, "echo begun; sleep 60").await;
    assert_eq!(lines[1], json!({ "stream": "stdout", "data": "begun\n" }));
    assert_eq!(lines.last().unwrap()["data"]["code"], "sandbox_stream_closed");
    reach(&account, &session, "stopped").await;
    assert!(account.emulation.machines.alive().is_empty());
    account.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_whose_answer_was_lost_is_found_by_its_name_and_taken_once() {
    let account = Account::open().await;
    account.script(Method::POST, "/api/v3/sandboxes", Effect::LoseResponse);
    let request = account.request(Method::POST, "/v3/sandboxes").body(account.body("lost").to_string());
    assert!(request.send().await.is_err());
    account.emulation.faults.set(Default::default()).unwrap();
    let (status, found) = account.get("/v2/sandboxes/lost?projectId=prj_emulator").await;
    assert_eq!((status, &found["session"]["status"]), (200, &json!("running")));
    let again = join_all((0..4).map(|_| account.post("/v3/sandboxes", account.body("twice")))).await;
    let mut statuses: Vec<u16> = again.iter().map(|(status, _)| *status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409]);
    assert_eq!(account.emulation.machines.alive().len(), 2);
    account.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_does_not_undo_a_creation() {
    let account = Account::open().await;
    let request = account.request(Method::POST, "/v3/sandboxes").body(account.body("hasty").to_string());
    let hasty = tokio::spawn(request.send());
    let machines = &account.emulation.machines;
    until(async || !machines.alive().is_empty()).await;
    hasty.abort();
    until(async || account.get("/v2/sandboxes/hasty?projectId=bench").await.0 == 200).await;
    assert_eq!(machines.alive().len(), 1);
    account.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_that_is_ignored_leaves_the_sandbox() {
    let account = Account::open().await;
    account.create("stays").await;
    account.script(Method::DELETE, "/api/v2/sandboxes/stays", Effect::flag("delete-ignored"));
    assert_eq!(account.delete("stays").await.0, 200);
    let listed = "/v2/sandboxes?project=bench";
    assert_eq!(account.get(listed).await.1["sandboxes"][0]["name"], "stays");
    account.script(Method::GET, "/api/v2/sandboxes", Effect::Flag { name: "stale-list".into(), value: 60_000 });
    assert_eq!(account.get(listed).await.1["sandboxes"], json!([]));
    account.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_snapshots_that_are_to_be_kept_are_kept() {
    let account = Account::open().await;
    let mut body = account.body("keeps");
    body["keepLastSnapshots"] = json!({ "count": 1 });
    let (_, made) = account.post("/v3/sandboxes", body).await;
    let first = made["session"]["id"].as_str().unwrap().to_owned();
    let (status, taken) = account.post(&action(&first, "snapshot"), json!({ "expiration": 0 })).await;
    assert_eq!((status, &taken["session"]["status"]), (201, &json!("stopped")));
    assert_eq!(taken["snapshot"]["expiresAt"], Value::Null);
    let old = taken["snapshot"]["id"].as_str().unwrap();
    let (_, resumed) = account.get("/v2/sandboxes/keeps?projectId=prj_emulator&resume=true").await;
    assert_eq!((&resumed["resumed"], &resumed["session"]["sourceSnapshotId"]), (&json!(true), &json!(old)));
    let second = resumed["session"]["id"].as_str().unwrap();
    let (_, taken) = account.post(&action(second, "snapshot"), json!({})).await;
    let (_, listed) = account.get("/v2/sandboxes/snapshots?project=bench&name=keeps").await;
    assert_eq!(listed["snapshots"].as_array().unwrap().len(), 1);
    assert_eq!(listed["snapshots"][0]["id"], taken["snapshot"]["id"]);
    assert_eq!(account.get(&format!("/v2/sandboxes/snapshots/{old}")).await.0, 404);
    let mut elsewhere = account.body("elsewhere");
    elsewhere["source"] = json!({ "type": "snapshot", "snapshotId": taken["snapshot"]["id"] });
    elsewhere["region"] = json!("fra1");
    let (status, refused) = account.post("/v3/sandboxes", elsewhere).await;
    assert_eq!((status, code(&refused)), (422, "snapshot_region_mismatch"));
    account.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sandboxes_at_once_leave_nothing() {
    let account = Account::open().await;
    let names: Vec<String> = (0..12).map(|at| format!("many-{at}")).collect();
    join_all(names.iter().map(async |name| {
        let session = account.create(name).await;
        let lines = account.run(&session, "pwd").await;
        assert_eq!(lines[1]["data"], "/vercel\n");
        assert_eq!(account.delete(name).await.0, 200);
    }))
    .await;
    assert!(account.emulation.machines.alive().is_empty());
    account.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_with_everything_in_use_leaves_nothing() {
    let account = Account::open().await;
    let session = account.create("busy").await;
    let snapshotted = account.create("saved").await;
    account.post(&action(&snapshotted, "snapshot"), json!({})).await;
    account.post(&action(&session, "cmd"), json!({ "command": "sleep", "args": ["600"] })).await;
    let logs = account.request(Method::POST, &action(&session, "cmd"));
    let open =
        logs.body(json!({ "command": "sleep", "args": ["600"], "wait": true }).to_string()).send().await.unwrap();
    let emulation = Arc::clone(&account.emulation);
    assert_eq!(emulation.machines.alive().len(), 1);
    account.close().await;
    let finished = open.text().await.is_ok_and(|text| text.lines().count() > 1);
    assert!(!finished, "nobody said that the command had ended");
    assert!(emulation.machines.alive().is_empty());
}
