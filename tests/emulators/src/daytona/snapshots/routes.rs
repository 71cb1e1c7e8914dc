//! `/api/snapshots`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Made, Snapshot, SnapshotState};
use crate::daytona::extract::{NoQuery, Strict, StrictQuery};
use crate::daytona::failure::{Answer, Failure};
use crate::daytona::model::CreateSnapshot;
use crate::daytona::quota;
use crate::daytona::record::{BuildInfo, Size};
use crate::daytona::state::{Daytona, REGIONS};

/// Tags that say nothing about what is behind them; refused.
const MOVING_TAGS: [&str; 3] = ["latest", "lts", "stable"];

type App = State<Arc<Daytona>>;

pub(crate) fn router() -> Router<Arc<Daytona>> {
    Router::new()
        .route("/api/snapshots", post(create).get(list))
        .route("/api/snapshots/{id}", get(one).delete(remove))
        .route("/api/snapshots/{id}/activate", post(activate))
        .route("/api/snapshots/{id}/deactivate", post(deactivate))
        .route("/api/snapshots/{id}/build-logs-url", get(build_logs_url))
}

async fn create(
    State(daytona): App,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    Strict(body): Strict<CreateSnapshot>,
) -> Answer<Json<Value>> {
    let size = Size { cpu: body.cpu.unwrap_or(1), memory: body.memory.unwrap_or(1), disk: body.disk.unwrap_or(3) };
    quota::check_size(&daytona.options.quota, size)?;
    let made = match (body.build_info, body.image_name) {
        (Some(build), None) => Made::Build(BuildInfo::new(build)),
        (None, Some(image)) => {
            check_image(&image)?;
            Made::Image(image)
        }
        _ => return Err(Failure::bad("Must specify either an image name or build info").violation()),
    };
    if let Some(region) = body.region_id.as_deref().filter(|region| !REGIONS.contains(region)) {
        return Err(Failure::api(StatusCode::NOT_FOUND, format!("Region {region} not found")));
    }
    let mut snapshot = Snapshot::new(body.name, made, size);
    (snapshot.entrypoint, snapshot.region) = (body.entrypoint, body.region_id);
    if let Some(class) = body.sandbox_class {
        snapshot.class = class;
    }
    let snapshot = daytona.add_snapshot(snapshot)?;
    process(&daytona, snapshot.id.clone());
    Ok(Json(snapshot.json(daytona.organization_id())))
}

impl Daytona {
    /// Adds a snapshot whose name is free, if the quota allows it.
    pub(crate) fn add_snapshot(&self, snapshot: Snapshot) -> Answer<Snapshot> {
        let mut holdings = self.holdings();
        if holdings.snapshots.values().any(|other| other.name == snapshot.name) {
            let message = format!("Snapshot with name {:?} already exists for this organization", snapshot.name);
            return Err(Failure::api(StatusCode::CONFLICT, message));
        }
        quota::check_snapshots(&self.options.quota, &holdings)?;
        holdings.snapshots.insert(snapshot.id.clone(), snapshot.clone());
        Ok(snapshot)
    }
}

fn check_image(image: &str) -> Answer<()> {
    if let Some((_, digest)) = image.split_once("@sha256:") {
        let hex = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        return if hex { Ok(()) } else { Err(Failure::bad(format!("Image {image} has an invalid digest"))) };
    }
    let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    match tag {
        None | Some("") => Err(Failure::bad("Image name must include a tag or digest (e.g., ubuntu:22.04)")),
        Some(tag) if MOVING_TAGS.contains(&tag) => {
            Err(Failure::bad(format!("Images with tag \":{tag}\" are not allowed")))
        }
        Some(_) => Ok(()),
    }
}

/// Makes a new or reactivated snapshot active.
fn process(daytona: &Arc<Daytona>, id: String) {
    let daytona = Arc::clone(daytona);
    Arc::clone(&daytona).emulation.tasks.spawn(async move {
        let made =
            daytona.holdings().snapshots.get(&id).map(|snapshot| (snapshot.made.clone(), Arc::clone(&snapshot.log)));
        let Some((made, log)) = made else { return };
        daytona.pass_snapshot(&id, SnapshotState::Pending).await;
        let failed = match made {
            Made::Build(info) => {
                daytona.pass_snapshot(&id, SnapshotState::Building).await;
                match daytona.build(&info, &log).await {
                    Ok(saved) => {
                        daytona.change_snapshot(&id, |snapshot| snapshot.saved = Some(saved));
                        None
                    }
                    Err(why) => Some((SnapshotState::BuildFailed, why)),
                }
            }
            Made::Image(image) => {
                daytona.pass_snapshot(&id, SnapshotState::Pulling).await;
                let exists = daytona.emulation.machines.images().exists(&image);
                (!exists).then(|| (SnapshotState::Error, format!("failed to pull image {image}: not found")))
            }
            Made::Sandbox(_) => None,
        };
        daytona.change_snapshot(&id, |snapshot| match failed {
            Some((state, why)) => (snapshot.state, snapshot.error_reason) = (state, Some(why)),
            None => snapshot.state = SnapshotState::Active,
        });
    });
}

fn find(daytona: &Daytona, id_or_name: &str) -> Answer<Snapshot> {
    let holdings = daytona.holdings();
    let mut snapshots = holdings.snapshots.values();
    let found = snapshots.find(|snapshot| snapshot.id == id_or_name || snapshot.name == id_or_name);
    found.cloned().ok_or_else(|| missing(id_or_name))
}

/// Where the vendor takes no name.
fn by_id(daytona: &Daytona, id: &str) -> Answer<Snapshot> {
    daytona.holdings().snapshots.get(id).cloned().ok_or_else(|| missing(id))
}

fn missing(id: &str) -> Failure {
    Failure::api(StatusCode::NOT_FOUND, format!("Snapshot with ID or name {id} not found"))
}

async fn one(State(daytona): App, Path(id): Path<String>) -> Answer<Json<Value>> {
    Ok(Json(find(&daytona, &id)?.json(daytona.organization_id())))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ListQuery {
    #[serde(default = "first_page")]
    page: usize,
    #[serde(default = "page_size")]
    limit: usize,
    name: Option<String>,
    source_sandbox_id: Option<String>,
    sort: Option<String>,
    order: Option<String>,
}

fn first_page() -> usize {
    1
}

fn page_size() -> usize {
    100
}

async fn list(State(daytona): App, StrictQuery(query): StrictQuery<ListQuery>) -> Answer<Json<Value>> {
    if query.page == 0 || !(1..=200).contains(&query.limit) {
        return Err(Failure::bad("page must not be less than 1, limit must be from 1 to 200").violation());
    }
    let mut found: Vec<Snapshot> = daytona.holdings().snapshots.values().cloned().collect();
    found.retain(|snapshot| {
        let named = query.name.as_ref().is_none_or(|part| snapshot.name.contains(part));
        let from = query.source_sandbox_id.as_ref();
        named && from.is_none_or(|id| matches!(&snapshot.made, Made::Sandbox(source) if source == id))
    });
    match query.sort.as_deref() {
        Some("name") => found.sort_by(|a, b| a.name.cmp(&b.name)),
        Some("createdAt") => found.sort_by_key(|snapshot| snapshot.created_at),
        _ => found.sort_by_key(|snapshot| (snapshot.last_used_at, snapshot.created_at)),
    }
    if query.order.as_deref() != Some("asc") {
        found.reverse();
    }
    let (total, pages) = (found.len(), found.len().div_ceil(query.limit));
    let page = found.iter().skip((query.page - 1).saturating_mul(query.limit)).take(query.limit);
    let items: Vec<Value> = page.map(|snapshot| snapshot.json(daytona.organization_id())).collect();
    Ok(Json(json!({"items": items, "total": total, "page": query.page, "totalPages": pages})))
}

async fn activate(State(daytona): App, Path(id): Path<String>) -> Answer<Json<Value>> {
    let snapshot = by_id(&daytona, &id)?;
    match snapshot.state {
        SnapshotState::Inactive => {}
        SnapshotState::Active => return Err(Failure::bad(format!("Snapshot {id} is already active"))),
        _ => return Err(Failure::bad(format!("Snapshot {id} cannot be activated"))),
    }
    daytona.change_snapshot(&id, |snapshot| (snapshot.state, snapshot.pulled) = (SnapshotState::Pending, false));
    process(&daytona, id.clone());
    one(State(daytona), Path(id)).await
}

async fn deactivate(State(daytona): App, Path(id): Path<String>) -> Answer<StatusCode> {
    if by_id(&daytona, &id)?.state != SnapshotState::Active {
        return Err(Failure::bad(format!("Snapshot {id} cannot be deactivated")));
    }
    daytona.change_snapshot(&id, |snapshot| snapshot.state = SnapshotState::Inactive);
    Ok(StatusCode::NO_CONTENT)
}

async fn remove(State(daytona): App, Path(id): Path<String>) -> Answer<StatusCode> {
    let snapshot = by_id(&daytona, &id)?;
    if snapshot.general {
        return Err(Failure::api(StatusCode::FORBIDDEN, "You cannot delete a general snapshot"));
    }
    let app = Arc::clone(&daytona);
    daytona.emulation.tasks.spawn(async move {
        app.pass_snapshot(&id, SnapshotState::Removing).await;
        // What a build made stays in the build cache.
        if let (Made::Sandbox(_), Some(saved)) = (&snapshot.made, &snapshot.saved)
            && let Err(error) = app.emulation.machines.delete_saved(saved).await
        {
            return app.change_snapshot(&id, |snapshot| {
                (snapshot.state, snapshot.error_reason) = (SnapshotState::Error, Some(error.to_string()));
            });
        }
        app.holdings().snapshots.remove(&id);
    });
    Ok(StatusCode::OK)
}

async fn build_logs_url(State(daytona): App, Path(id): Path<String>) -> Answer<Json<Value>> {
    let id = find(&daytona, &id)?.id;
    Ok(Json(json!({"url": format!("{}/build-logs/snapshots/{id}", daytona.base_url)})))
}
