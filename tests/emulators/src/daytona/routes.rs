//! All routes, and the lifecycle of sandboxes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Extension, Path, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::extract::{NoQuery, Strict, StrictQuery};
use super::failure::{Answer, Failure, no_route, render};
use super::lifecycle::{self, Origin};
use super::model::CreateSandbox;
use super::record::{BuildInfo, Record, Size, State as SandboxState};
use super::sandbox::Sandbox;
use super::snapshots::{self, DEFAULT};
use super::state::{Daytona, REGIONS};
use super::{auth, listing, organization, quota, settings, storage, toolbox};
use crate::faults::Flags;
use crate::log::Log;

type App = State<Arc<Daytona>>;

pub(super) fn router(daytona: &Arc<Daytona>) -> Router {
    let api = Router::new()
        .route("/api/sandbox", post(create).get(listing::list))
        .route("/api/sandbox/{id}", get(one).delete(delete))
        .route("/api/sandbox/{id}/start", post(start))
        .route("/api/sandbox/{id}/stop", post(stop))
        .route("/api/sandbox/{id}/archive", post(archive))
        .route("/api/sandbox/{id}/recover", post(recover))
        .merge(settings::router())
        .merge(snapshots::router())
        .merge(organization::router())
        .route("/build-logs/{kind}/{id}", get(build_logs))
        .layer(from_fn_with_state(Arc::clone(daytona), auth::api));
    let toolbox = toolbox::router().layer(from_fn_with_state(Arc::clone(daytona), auth::toolbox));
    Router::new()
        .merge(api)
        .merge(toolbox)
        .merge(storage::router())
        .route("/api/config", get(organization::config))
        // The client opens it without credentials and goes on without it.
        .route("/api/socket.io/", get(|| async { StatusCode::NOT_FOUND }))
        .fallback(no_route)
        .method_not_allowed_fallback(no_route)
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(daytona), render))
        .with_state(Arc::clone(daytona))
}

async fn create(
    State(daytona): App,
    Extension(flags): Extension<Flags>,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    Strict(mut body): Strict<CreateSandbox>,
) -> Answer<Json<Value>> {
    let target = body.target.clone().unwrap_or_else(|| REGIONS[0].into());
    check(&body, &target)?;
    let build = body.build_info.take().map(BuildInfo::new);
    let (origin, size, state) = match &build {
        Some(build) => {
            let size =
                Size { cpu: body.cpu.unwrap_or(1), memory: body.memory.unwrap_or(1), disk: body.disk.unwrap_or(3) };
            (Origin::Build(Box::new(build.clone())), size, SandboxState::PendingBuild)
        }
        None => {
            let snapshot = body.snapshot.get_or_insert_with(|| DEFAULT.into());
            let (origin, size) = daytona.origin(snapshot, &target)?;
            (origin, size, SandboxState::Creating)
        }
    };
    let mut record = Record::new(Uuid::new_v4().to_string(), body, size, target, state);
    record.build = build;
    let sandbox = admit(&daytona, record)?;
    // The answer shows the state before the wait.
    let answer = daytona.json(&sandbox.record());
    let waits = matches!(origin, Origin::Source { .. });
    lifecycle::bring_up(&daytona, &sandbox, origin, &flags);
    if waits {
        wait_started(&daytona, &sandbox).await?;
    }
    Ok(Json(answer))
}

/// There are neither volumes, secrets nor GPUs here, so asking for one is asking for one that does not exist.
fn check(body: &CreateSandbox, target: &str) -> Answer<()> {
    let sized = body.cpu.or(body.memory).or(body.disk).or(body.gpu).is_some();
    let lists = body.network_allow_list.as_deref().unwrap_or_default();
    if body.build_info.is_some() && body.snapshot.is_some() {
        Err(Failure::bad("Cannot specify a snapshot when using a build info entry").violation())
    } else if body.build_info.is_none() && sized {
        Err(Failure::bad("Cannot specify Sandbox resources when using a snapshot").violation())
    } else if body.auto_stop_interval.is_some_and(|minutes| minutes < 0) {
        Err(Failure::bad("Auto-stop interval must be a non-negative integer").violation())
    } else if lists.split(',').filter(|cidr| !cidr.is_empty()).any(|cidr| !cidr.contains('/')) {
        Err(Failure::bad("networkAllowList must hold CIDR blocks with a prefix length").violation())
    } else if lists.split(',').count() > 10 {
        Err(Failure::bad("networkAllowList cannot hold more than 10 CIDR blocks").violation())
    } else if let Some(volume) = body.volumes.iter().flatten().next() {
        Err(Failure::bad(format!("Volume {} not found", volume.volume_id)))
    } else if body.secrets.iter().flatten().any(|secret| !secret.is_empty()) {
        Err(Failure::bad("Secret not found"))
    } else if body.auto_pause_interval.is_some_and(|minutes| minutes > 0) {
        Err(Failure::bad("Auto-pause is not supported for container sandboxes"))
    } else if body.gpu.is_some_and(|count| count > 0) {
        Err(Failure::bad("Total GPU limit exceeded. Maximum allowed: 0."))
    } else if !REGIONS.contains(&target) {
        Err(Failure::api(StatusCode::NOT_FOUND, format!("Region {target} not found")))
    } else {
        Ok(())
    }
}

/// Takes a sandbox in, if its name is free and the quota allows it.
pub(super) fn admit(daytona: &Daytona, record: Record) -> Answer<Arc<Sandbox>> {
    quota::check_size(&daytona.options.quota, record.size)?;
    let mut holdings = daytona.holdings();
    if holdings.sandboxes.values().any(|other| other.record().name == record.name) {
        let message = format!("Sandbox with name {} already exists", record.name);
        return Err(Failure::api(StatusCode::CONFLICT, message));
    }
    quota::check_total(&daytona.options.quota, &holdings, record.size)?;
    let sandbox = Arc::new(Sandbox::new(record));
    holdings.sandboxes.insert(sandbox.id.clone(), Arc::clone(&sandbox));
    daytona.index.push(sandbox.record());
    Ok(sandbox)
}

async fn wait_started(daytona: &Daytona, sandbox: &Sandbox) -> Answer<()> {
    match sandbox.settled(daytona.options.start_wait).await {
        SandboxState::Error | SandboxState::BuildFailed => {
            let reason = sandbox.record().error_reason.unwrap_or_default();
            Err(Failure::bad(format!("Sandbox failed to start: {reason}")))
        }
        _ => Ok(()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneQuery {
    #[allow(dead_code, reason = "there to be checked")]
    verbose: Option<bool>,
}

async fn one(
    State(daytona): App,
    Path(id): Path<String>,
    StrictQuery(_): StrictQuery<OneQuery>,
) -> Answer<Json<Value>> {
    Ok(Json(daytona.json(&daytona.sandbox(&id)?.record())))
}

async fn delete(
    State(daytona): App,
    Extension(flags): Extension<Flags>,
    Path(id): Path<String>,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
) -> Answer<Json<Value>> {
    let sandbox = daytona.sandbox(&id)?;
    if flags.has("delete-ignored") {
        let mut record = sandbox.record();
        record.state = SandboxState::Destroying;
        return Ok(Json(daytona.json(&record)));
    }
    lifecycle::delete(&daytona, &sandbox, flags.has("state-stuck"))?;
    Ok(Json(daytona.json(&sandbox.record())))
}

async fn start(
    State(daytona): App,
    Extension(flags): Extension<Flags>,
    Path(id): Path<String>,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
) -> Answer<Json<Value>> {
    let sandbox = daytona.sandbox(&id)?;
    let archived = sandbox.record().state == SandboxState::Archived;
    lifecycle::start(&daytona, &sandbox, &flags)?;
    if !archived {
        wait_started(&daytona, &sandbox).await?;
    }
    Ok(Json(daytona.json(&sandbox.record())))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StopQuery {
    #[allow(dead_code, reason = "processes are always killed here")]
    force: Option<bool>,
}

async fn stop(
    State(daytona): App,
    Extension(flags): Extension<Flags>,
    Path(id): Path<String>,
    StrictQuery(_): StrictQuery<StopQuery>,
) -> Answer<Json<Value>> {
    let sandbox = daytona.sandbox(&id)?;
    lifecycle::stop(&daytona, &sandbox, flags.has("state-stuck"))?;
    Ok(Json(daytona.json(&sandbox.record())))
}

async fn archive(State(daytona): App, Path(id): Path<String>) -> Answer<Json<Value>> {
    let sandbox = daytona.sandbox(&id)?;
    lifecycle::archive(&daytona, &sandbox)?;
    Ok(Json(daytona.json(&sandbox.record())))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RecoverQuery {
    #[serde(default)]
    skip_start: bool,
}

async fn recover(
    State(daytona): App,
    Path(id): Path<String>,
    StrictQuery(query): StrictQuery<RecoverQuery>,
) -> Answer<Json<Value>> {
    let sandbox = daytona.sandbox(&id)?;
    lifecycle::recover(&daytona, &sandbox)?;
    if query.skip_start {
        daytona.change(&sandbox, |record| record.state = SandboxState::Stopped);
    } else {
        daytona.started(&sandbox).await;
    }
    Ok(Json(daytona.json(&sandbox.record())))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogQuery {
    #[serde(default)]
    follow: bool,
}

/// Where `build-logs-url` points to.
async fn build_logs(
    State(daytona): App,
    Path((kind, id)): Path<(String, String)>,
    StrictQuery(query): StrictQuery<LogQuery>,
) -> Answer {
    let missing = || Failure::api(StatusCode::NOT_FOUND, format!("No build logs of {id}"));
    let log: Option<Arc<Log>> = match kind.as_str() {
        "sandboxes" => daytona.sandbox_by_id(&id).map(|sandbox| Arc::clone(&sandbox.build_log)),
        "snapshots" => daytona.holdings().snapshots.get(&id).map(|snapshot| Arc::clone(&snapshot.log)),
        _ => None,
    };
    let log = log.ok_or_else(missing)?;
    let body = if query.follow {
        Body::from_stream(log.follow().map(Ok::<_, std::convert::Infallible>))
    } else {
        Body::from(log.text())
    };
    Ok(([(axum::http::header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

/// For routes that point somewhere.
pub(super) fn url(url: String) -> Json<Value> {
    Json(json!({"url": url}))
}
