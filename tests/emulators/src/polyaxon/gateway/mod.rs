//! The sandbox gateway and the daemon behind it.

mod background;
mod exec;
mod files;
mod request;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use serde_json::json;

pub(super) use self::background::Background;
use super::platform::parameters;
use super::pods::Pod;
use super::reply::{self, Reply};
use super::routes::authorized;
use super::world::{NAMESPACE, World};
use crate::faults::Flags;

/// Most bytes of a request. A guess.
const BODY_LIMIT: usize = 64 << 20;

/// A request that has reached the daemon.
pub(super) struct Asked<'a> {
    world: &'a World,
    pod: Arc<Pod>,
    /// Method and path, for violations.
    line: String,
    query: Vec<(String, String)>,
    flags: Flags,
}

impl Asked<'_> {
    /// A parameter of the query.
    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A refusal for a mistake of the client, which is recorded.
    fn mistake(&self, why: impl Into<String>) -> Reply {
        let why = why.into();
        self.world.violation(&self.line, &why);
        reply::refused(StatusCode::BAD_REQUEST, "invalid_request", why)
    }
}

/// Answers a request to `/sandbox/v1/{namespace}/{owner}/{project}/runs/{uuid}/{rest}`.
pub(super) async fn answer(State(world): State<Arc<World>>, request: Request<Body>) -> Reply {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_start_matches("/sandbox/v1/").split('/').collect();
    let [namespace, _owner, _project, "runs", uuid, rest @ ..] = parts.as_slice() else {
        world.violation(&path, "no path of the gateway");
        return reply::plain(StatusCode::BAD_REQUEST, "Bad Request");
    };
    if !authorized(&world, &request) {
        return reply::plain(StatusCode::FORBIDDEN, "Forbidden");
    }
    let Some(pod) = world.pods.get(uuid).filter(|_| *namespace == NAMESPACE) else { return reply::bad_gateway() };
    if pod.machine.ended() {
        return reply::bad_gateway();
    }
    let (head, body) = request.into_parts();
    let flags = head.extensions.get::<Flags>().cloned().unwrap_or_default();
    let line = format!("{} {path}", head.method);
    let query = parameters(head.uri.query().unwrap_or_default());
    let asked = Asked { world: &world, pod, line, query, flags };
    let Ok(body) = axum::body::to_bytes(body, BODY_LIMIT).await else {
        return reply::refused(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "request body is too large");
    };
    match (head.method.as_str(), rest) {
        ("GET", ["ping"]) => ping(&asked.pod),
        ("POST", ["exec"]) => exec::blocking(&asked, &body).await,
        ("POST", ["exec", "stream"]) => exec::stream(&asked, &body).await,
        ("POST", ["exec", "bg"]) => background::start(&asked, &body).await,
        ("GET", ["exec", "bg"]) => background::list(&asked),
        ("GET", ["exec", "bg", id]) => background::status(&asked, id),
        ("GET", ["exec", "bg", id, "logs"]) => background::logs(&asked, id),
        ("POST", ["exec", "bg", id, "signal"]) => background::signal(&asked, id, &body).await,
        ("DELETE", ["exec", "bg", id]) => background::delete(&asked, id),
        ("GET", ["fs", "read"]) => files::read(&asked).await,
        ("POST", ["fs", "write"]) => files::write(&asked, &head.headers, &body).await,
        ("POST", ["fs", "mkdir"]) => files::mkdir(&asked, &body).await,
        ("DELETE", ["fs", "rm"]) => files::rm(&asked).await,
        ("GET", ["fs", "stat"]) => files::stat(&asked).await,
        ("GET", ["fs", "ls"]) => files::ls(&asked).await,
        _ => {
            world.violation(&asked.line, "the daemon has no such path");
            reply::refused(StatusCode::NOT_FOUND, "not_found", "no such path")
        }
    }
}

fn ping(pod: &Pod) -> Reply {
    let body = json!({
        "status": "ok", "version": "emulated", "uptime_ms": u64::try_from(pod.started.elapsed().as_millis()).unwrap_or(0),
        "last_activity": pod.last_activity().to_string(), "execs_running": pod.running(), "ptys_running": 0,
        "ptys_attached": 0,
    });
    reply::daemon(StatusCode::OK, &body)
}
