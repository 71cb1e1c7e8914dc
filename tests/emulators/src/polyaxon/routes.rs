//! Which part of the installation a request is for.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, Request, StatusCode, header};
use axum::routing::any;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::reply::{self, Reply};
use super::world::{Api, RunKey, World};
use super::{agent, gateway, platform, streams};
use crate::faults::Flags;

/// Most bytes of an answer that the emulator looks into.
const LOOKED_AT: usize = 16 << 20;

pub(super) fn router(world: &Arc<World>) -> Router {
    Router::new()
        .route("/sandbox/v1/{*path}", any(gateway::answer))
        .route("/streams/v1/{*path}", any(streams::answer))
        .route("/healthz/", any(|| async { "{}" }))
        .fallback(rest)
        .layer(DefaultBodyLimit::max(streams::UPLOAD_LIMIT))
        .with_state(Arc::clone(world))
}

/// The API, and with a real server whatever else it has.
pub(super) async fn rest(State(world): State<Arc<World>>, request: Request<Body>) -> Reply {
    if !authorized(&world, &request) {
        return reply::api(StatusCode::UNAUTHORIZED, &json!({ "detail": "Invalid token." }));
    }
    let flags = request.extensions().get::<Flags>().cloned().unwrap_or_default();
    let created = (request.method() == Method::POST).then(|| project_of(request.uri().path())).flatten();
    let Some(project) = created else { return api(&world, request, &flags).await };
    // In a task of its own: a client that goes away takes back neither the run nor its agent.
    let (sender, receiver) = oneshot::channel();
    let creating = Arc::clone(&world);
    world.emulation.tasks.spawn(async move {
        let answer = api(&creating, request, &flags).await;
        let answer = match answer.status() {
            StatusCode::CREATED => noticed(&creating, project, flags, answer).await,
            _ => answer,
        };
        // The client may have gone away.
        let _ = sender.send(answer);
    });
    receiver.await.unwrap_or_else(|_| reply::bad_gateway())
}

async fn api(world: &World, request: Request<Body>, flags: &Flags) -> Reply {
    match &world.api {
        Api::Memory(store) => platform::answer(world, store, request, flags).await,
        Api::Real(upstream) => upstream.forward(request).await,
    }
}

/// The token of the official client's header.
pub(super) fn authorized(world: &World, request: &Request<Body>) -> bool {
    let sent = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    sent == Some(&format!("Token {}", world.options.token))
}

/// Owner and project, if this is where runs are created.
fn project_of(path: &str) -> Option<(String, String)> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["", "api", "v1", owner, project, "runs"] => Some(((*owner).to_owned(), (*project).to_owned())),
        _ => None,
    }
}

/// Gives a new run to the agent.
async fn noticed(world: &Arc<World>, (owner, project): (String, String), flags: Flags, answer: Reply) -> Reply {
    let (head, body) = answer.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, LOOKED_AT).await else { return reply::bad_gateway() };
    let packed = head.headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
    let run: Option<Value> = if packed {
        serde_json::from_reader(flate2::read::GzDecoder::new(bytes.as_ref())).ok()
    } else {
        serde_json::from_slice(&bytes).ok()
    };
    if let Some(uuid) = run.as_ref().and_then(|run| run["uuid"].as_str()) {
        agent::take(world, RunKey { owner, project, uuid: uuid.to_owned() }, flags);
    }
    Reply::from_parts(head, Body::from(bytes))
}
