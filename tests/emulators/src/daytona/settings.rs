//! What can be changed about a sandbox, or asked about it, beside its lifecycle.

use std::sync::{Arc, PoisonError};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bytes::Bytes;
use serde_json::{Value, json};
use uuid::Uuid;

use super::extract::Strict;
use super::failure::{Answer, Failure};
use super::lifecycle::{self, Origin};
use super::model::{Fork, Labels, NetworkSettings, Resize, SnapshotSandbox};
use super::quota;
use super::record::{Record, State as SandboxState};
use super::routes::{admit, url};
use super::sandbox::Sandbox;
use super::snapshots::{Made, Snapshot, SnapshotState};
use super::state::Daytona;
use crate::faults::Flags;
use crate::machine::Source;

type App = State<Arc<Daytona>>;

pub(super) fn router() -> Router<Arc<Daytona>> {
    Router::new()
        .route("/api/sandbox/{id}/labels", put(labels))
        .route("/api/sandbox/{id}/autostop/{minutes}", post(auto_stop))
        .route("/api/sandbox/{id}/autoarchive/{minutes}", post(auto_archive))
        .route("/api/sandbox/{id}/autodelete/{minutes}", post(auto_delete))
        .route("/api/sandbox/{id}/ttl/{minutes}", post(ttl))
        .route("/api/sandbox/{id}/pause", post(pause))
        .route("/api/sandbox/{id}/last-activity", post(last_activity))
        .route("/api/sandbox/{id}/network-settings", post(network))
        .route("/api/sandbox/{id}/resize", post(resize))
        .route("/api/sandbox/{id}/backup", post(backup))
        .route("/api/sandbox/{id}/snapshot", post(snapshot))
        .route("/api/sandbox/{id}/fork", post(fork))
        .route("/api/sandbox/{id}/build-logs-url", get(build_logs_url))
        .route("/api/sandbox/{id}/toolbox-proxy-url", get(toolbox_url))
        .route("/api/sandbox/{id}/ports/{port}/preview-url", get(preview_url))
        .route("/api/sandbox/{id}/signing-key", get(signing_key))
        .route("/api/sandbox/{id}/signing-key/rotate", post(rotate_signing_key))
}

async fn labels(State(daytona): App, Path(id): Path<String>, Strict(body): Strict<Labels>) -> Answer<Json<Labels>> {
    let sandbox = daytona.sandbox(&id)?;
    daytona.change(&sandbox, |record| record.labels.clone_from(&body.labels));
    Ok(Json(body))
}

fn set(daytona: &Daytona, id: &str, change: impl FnOnce(&mut Record)) -> Answer<Json<Value>> {
    let sandbox = daytona.sandbox(id)?;
    daytona.change(&sandbox, change);
    Ok(Json(daytona.json(&sandbox.record())))
}

fn not_negative(minutes: i64) -> Answer<()> {
    let refused = || Failure::bad("Interval must be a non-negative integer").violation();
    if minutes < 0 { Err(refused()) } else { Ok(()) }
}

async fn auto_stop(State(daytona): App, Path((id, minutes)): Path<(String, i64)>) -> Answer<Json<Value>> {
    not_negative(minutes)?;
    set(&daytona, &id, |record| record.auto_stop = minutes)
}

async fn auto_archive(State(daytona): App, Path((id, minutes)): Path<(String, i64)>) -> Answer<Json<Value>> {
    not_negative(minutes)?;
    set(&daytona, &id, |record| record.auto_archive = minutes)
}

async fn auto_delete(State(daytona): App, Path((id, minutes)): Path<(String, i64)>) -> Answer<Json<Value>> {
    set(&daytona, &id, |record| record.auto_delete = minutes)
}

async fn ttl(State(daytona): App, Path((id, minutes)): Path<(String, i64)>) -> Answer<Json<Value>> {
    not_negative(minutes)?;
    set(&daytona, &id, |record| record.ttl = minutes)
}

async fn pause(State(daytona): App, Path(id): Path<String>) -> Answer<Json<Value>> {
    daytona.sandbox(&id)?;
    Err(Failure::bad("Pause is not supported for container sandboxes"))
}

async fn last_activity(State(daytona): App, Path(id): Path<String>, body: Bytes) -> Answer<StatusCode> {
    let sandbox = daytona.sandbox(&id)?;
    let typed = || serde_json::from_slice::<Value>(&body).is_ok_and(|body| body.get("activityType").is_some());
    if !body.is_empty() && !typed() {
        return Err(Failure::bad("activityType must be given").violation());
    }
    sandbox.touch();
    Ok(StatusCode::CREATED)
}

async fn network(
    State(daytona): App,
    Path(id): Path<String>,
    Strict(body): Strict<NetworkSettings>,
) -> Answer<Json<Value>> {
    set(&daytona, &id, |record| {
        record.network_block_all = body.network_block_all.unwrap_or(record.network_block_all);
        record.network_allow_list = body.network_allow_list.or(record.network_allow_list.take());
        record.domain_allow_list = body.domain_allow_list.or(record.domain_allow_list.take());
    })
}

async fn resize(State(daytona): App, Path(id): Path<String>, Strict(body): Strict<Resize>) -> Answer<Json<Value>> {
    let sandbox = daytona.sandbox(&id)?;
    let record = sandbox.record();
    let (old, mut new) = (record.size, record.size);
    (new.cpu, new.memory) = (body.cpu.unwrap_or(old.cpu), body.memory.unwrap_or(old.memory));
    new.disk = body.disk.unwrap_or(old.disk);
    if [body.cpu, body.memory, body.disk].contains(&Some(0)) {
        return Err(Failure::bad("Resources must not be less than 1").violation());
    }
    if record.state == SandboxState::Started && (new.cpu < old.cpu || new.memory < old.memory) {
        return Err(Failure::bad("CPU and memory can only be increased while the Sandbox is started"));
    }
    if new.disk < old.disk || (new.disk > old.disk && record.state != SandboxState::Stopped) {
        return Err(Failure::bad("Disk can only be increased, and only while the Sandbox is stopped"));
    }
    quota::check_size(&daytona.options.quota, new)?;
    let both = [SandboxState::Started, SandboxState::Stopped];
    let before = daytona.begin(&sandbox, &both, SandboxState::Resizing, "Sandbox is not in valid state")?;
    let answer = daytona.json(&sandbox.record());
    let app = Arc::clone(&daytona);
    daytona.emulation.tasks.spawn(async move {
        app.pass(&sandbox, SandboxState::Resizing).await;
        app.change(&sandbox, |record| (record.size, record.state) = (new, before));
    });
    Ok(Json(answer))
}

async fn backup(State(daytona): App, Path(id): Path<String>) -> Answer<Json<Value>> {
    Ok(Json(daytona.json(&daytona.sandbox(&id)?.record())))
}

/// Captures the files. That the state returns does not say that it worked.
async fn snapshot(
    State(daytona): App,
    Path(id): Path<String>,
    Strict(body): Strict<SnapshotSandbox>,
) -> Answer<Json<Value>> {
    let sandbox = daytona.sandbox(&id)?;
    if body.include_memory {
        return Err(Failure::bad("Memory snapshots are not supported for container sandboxes"));
    }
    let both = [SandboxState::Started, SandboxState::Stopped];
    let otherwise = "Sandbox must be in started or stopped state to create a snapshot";
    let before = daytona.begin(&sandbox, &both, SandboxState::Snapshotting, otherwise)?;
    let record = sandbox.record();
    let mut snapshot = Snapshot::new(body.name, Made::Sandbox(sandbox.id.clone()), record.size);
    (snapshot.state, snapshot.region) = (SnapshotState::Snapshotting, Some(record.target.clone()));
    let added = daytona.add_snapshot(snapshot);
    let id = match added {
        Ok(snapshot) => snapshot.id,
        Err(failure) => {
            daytona.change(&sandbox, |record| record.state = before);
            return Err(failure);
        }
    };
    let app = Arc::clone(&daytona);
    daytona.emulation.tasks.spawn(async move {
        app.pass(&sandbox, SandboxState::Snapshotting).await;
        let saved = capture(&app, &sandbox).await;
        // The snapshot is processed on after the sandbox has returned to its state.
        app.change(&sandbox, |record| record.state = before);
        tokio::time::sleep(app.emulation.timing.transition).await;
        app.change_snapshot(&id, |snapshot| match saved {
            Ok(source) => (snapshot.saved, snapshot.state) = (Some(source), SnapshotState::Active),
            Err(why) => (snapshot.error_reason, snapshot.state) = (Some(why), SnapshotState::Error),
        });
    });
    Ok(Json(daytona.json(&record)))
}

async fn capture(daytona: &Daytona, sandbox: &Sandbox) -> Result<Arc<crate::machine::Saved>, String> {
    let machine = sandbox.machine().ok_or("the sandbox has no machine")?;
    // Processes do not survive a capture here, so neither do sessions.
    sandbox.forget_sessions();
    daytona.emulation.machines.save(&machine).await.map_err(|error| error.to_string())
}

async fn fork(State(daytona): App, Path(id): Path<String>, Strict(body): Strict<Fork>) -> Answer<Json<Value>> {
    let sandbox = daytona.sandbox(&id)?;
    let both = [SandboxState::Started, SandboxState::Stopped];
    let before = daytona.begin(&sandbox, &both, SandboxState::Forking, "Sandbox is not in valid state")?;
    let saved = capture(&daytona, &sandbox).await;
    daytona.change(&sandbox, |record| record.state = before);
    let saved = saved.map_err(Failure::bad)?;
    let mut record = sandbox.record();
    record.id = Uuid::new_v4().to_string();
    record.name = body.name.unwrap_or_else(|| record.id.clone());
    record.state = SandboxState::Forking;
    let fork = admit(&daytona, record)?;
    let answer = daytona.json(&fork.record());
    let origin = Origin::Source { source: Source::Saved(saved), pull: false };
    lifecycle::bring_up(&daytona, &fork, origin, &Flags::default());
    Ok(Json(answer))
}

async fn build_logs_url(State(daytona): App, Path(id): Path<String>) -> Answer<Json<Value>> {
    let id = &daytona.sandbox(&id)?.id;
    Ok(url(format!("{}/build-logs/sandboxes/{id}", daytona.base_url)))
}

async fn toolbox_url(State(daytona): App, Path(id): Path<String>) -> Answer<Json<Value>> {
    let found = daytona.sandbox_by_id(&id).is_some();
    let missing = || Failure::api(StatusCode::NOT_FOUND, format!("Sandbox with ID {id} not found"));
    if found { Ok(url(daytona.proxy_url())) } else { Err(missing()) }
}

async fn preview_url(State(daytona): App, Path((id, port)): Path<(String, u16)>) -> Answer<Json<Value>> {
    let id = &daytona.sandbox(&id)?.id;
    let preview = format!("{}/preview/{port}/{id}", daytona.base_url);
    Ok(Json(json!({"sandboxId": id, "url": preview, "token": Uuid::new_v4().simple().to_string()})))
}

async fn signing_key(State(daytona): App, Path(id): Path<String>) -> Answer<Json<String>> {
    let sandbox = daytona.sandbox(&id)?;
    Ok(Json(sandbox.signing_key.lock().unwrap_or_else(PoisonError::into_inner).clone()))
}

async fn rotate_signing_key(State(daytona): App, Path(id): Path<String>) -> Answer<Json<String>> {
    let sandbox = daytona.sandbox(&id)?;
    *sandbox.signing_key.lock().unwrap_or_else(PoisonError::into_inner) = Uuid::new_v4().to_string();
    signing_key(State(daytona), Path(id)).await
}
