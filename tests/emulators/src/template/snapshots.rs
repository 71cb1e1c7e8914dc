//! Snapshots: the files of a sandbox under a name.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Prefix, Refusal, Service};
use crate::machine::Saved;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Take {
    name: String,
}

/// The files of a sandbox.
pub(super) struct Snapshot {
    pub(super) saved: Arc<Saved>,
    created_at: Timestamp,
}

fn view(name: &str, snapshot: &Snapshot) -> Value {
    json!({ "name": name, "created_at": snapshot.created_at, "size_bytes": snapshot.saved.size })
}

pub(super) async fn take(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let Take { name: to } = service.parse("POST /v1/sandboxes/{name}/snapshots", &body)?;
    let sandbox = service.sandbox(&name)?;
    let work = {
        let service = Arc::clone(&service);
        async move {
            if service.world().snapshots.contains_key(&to) {
                return Err(Refusal::taken(&to));
            }
            let saved = service.emulation.machines.save(sandbox.machine()?).await.map_err(Refusal::internal)?;
            let snapshot = Snapshot { saved, created_at: Timestamp::now() };
            let view = view(&to, &snapshot);
            service.world().snapshots.insert(to, snapshot);
            Ok((StatusCode::CREATED, Json(view)))
        }
    };
    service.to_the_end(work).await?
}

pub(super) async fn list(State(service): State<Arc<Service>>, Query(asked): Query<Prefix>) -> Json<Value> {
    let world = service.world();
    let items = world.snapshots.iter().filter(|(name, _)| name.starts_with(&asked.prefix));
    Json(json!({ "items": items.map(|(name, snapshot)| view(name, snapshot)).collect::<Vec<_>>() }))
}

pub(super) async fn one(State(service): State<Arc<Service>>, Path(name): Path<String>) -> Result<Json<Value>, Refusal> {
    let world = service.world();
    let snapshot = world.snapshots.get(&name).ok_or_else(|| Refusal::missing("snapshot", &name))?;
    Ok(Json(view(&name, snapshot)))
}

pub(super) async fn delete(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    let snapshot = service.world().snapshots.remove(&name).ok_or_else(|| Refusal::missing("snapshot", &name))?;
    service.emulation.machines.delete_saved(&snapshot.saved).await.map_err(Refusal::internal)?;
    Ok(StatusCode::NO_CONTENT)
}
