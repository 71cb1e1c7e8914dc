//! From a request to its handler, and what holds for all of them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;

use super::auth::Caller;
use super::create::Version;
use super::error::{ApiError, Result};
use super::query::Query;
use super::quirks::spoil;
use super::{Vercel, request};
use crate::Flags;

/// Bytes of a JSON body at most: the limit that the Python client 0.10.0 keeps its requests below.
const JSON_LIMIT: usize = 1 << 20;

/// A request by a known caller.
pub(super) struct Ask {
    pub(super) caller: Caller,
    pub(super) query: Query,
    pub(super) flags: Flags,
    pub(super) headers: HeaderMap,
    body: Body,
}

/// What a handler answers.
pub(super) enum Answer {
    Json(StatusCode, Value),
    Raw(Response),
}

impl Answer {
    pub(super) fn ok(value: Value) -> Result<Answer> {
        Ok(Answer::Json(StatusCode::OK, value))
    }
}

impl Ask {
    /// The body, read strictly; `foreign` fields belong to other operations.
    pub(super) async fn json<T: serde::de::DeserializeOwned>(self, foreign: &[&str]) -> Result<T> {
        request::parse(&self.bytes().await?, foreign)
    }

    async fn bytes(self) -> Result<Bytes> {
        let type_of = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if type_of.split(';').next().map(str::trim) != Some("application/json") {
            return Err(ApiError::violation("Invalid request: `content-type` should be `application/json`."));
        }
        axum::body::to_bytes(self.body, JSON_LIMIT).await.map_err(|error| {
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_entity_too_large", format!("Body: {error}."))
        })
    }

    pub(super) fn into_body(self) -> Body {
        self.body
    }
}

pub(super) async fn answer(State(vercel): State<Arc<Vercel>>, request: Request<Body>) -> Response {
    let label = format!("{} {}", request.method(), request.uri().path());
    let flags = request.extensions().get::<Flags>().cloned().unwrap_or_default();
    match vercel.route(request, flags.clone()).await {
        Ok(Answer::Json(status, mut value)) => {
            spoil(&flags, &mut value);
            (status, axum::Json(value)).into_response()
        }
        Ok(Answer::Raw(response)) => response,
        Err(error) => {
            if error.violation {
                vercel.emulation.violations.record(label, error.message.clone());
            }
            error.into_response()
        }
    }
}

/// Headers of the vendor's own that no route takes.
fn check_headers(headers: &HeaderMap, path: &[&str]) -> Result<()> {
    let upload = path.ends_with(&["fs", "write"]);
    let strange = headers.keys().map(|name| name.as_str()).find(|name| match *name {
        "x-cwd" => !upload,
        "x-vercel-id" | "x-request-id" => false,
        other => other.starts_with("x-"),
    });
    match strange {
        Some(name) => Err(ApiError::violation(format!("Invalid request: should NOT have header `{name}`."))),
        None => Ok(()),
    }
}

impl Vercel {
    async fn route(self: &Arc<Self>, request: Request<Body>, flags: Flags) -> Result<Answer> {
        let (head, body) = request.into_parts();
        let query = Query::of(&head.uri)?;
        let caller = self.options.authenticate(&head.headers, &query)?;
        self.requests.take(1)?;
        let path = head.uri.path();
        let path: Vec<&str> = path.strip_prefix("/api/").unwrap_or(path).trim_start_matches('/').split('/').collect();
        check_headers(&head.headers, &path)?;
        let ask = Ask { caller, query, flags, headers: head.headers, body };
        match path.as_slice() {
            ["v1", "vcr", "repository", repository, "images", rest @ ..] => {
                self.image_route(&head.method, repository, rest, &ask)
            }
            [version, "sandboxes", rest @ ..] => match (*version, rest) {
                (_, ["sessions", session, action @ ..]) if !action.is_empty() => {
                    self.session_action(version, &head.method, session, action, ask).await
                }
                ("v2", ["sessions" | "snapshots", ..]) => self.listing(&head.method, rest, ask).await,
                _ => self.sandbox_route(version, &head.method, rest, ask).await,
            },
            _ => Err(no_route()),
        }
    }

    async fn sandbox_route(
        self: &Arc<Self>,
        version: &str,
        method: &Method,
        rest: &[&str],
        ask: Ask,
    ) -> Result<Answer> {
        match (version, method.as_str(), rest) {
            ("v2", "POST", []) => self.create(Version::V2, ask).await,
            ("v3", "POST", []) => self.create(Version::V3, ask).await,
            ("v4", "POST", []) => self.create(Version::V4, ask).await,
            ("v2", "GET", []) => self.list_sandboxes(&ask),
            // Not emulated, and never the name of a sandbox.
            (_, _, ["drives", ..]) => Err(no_route()),
            ("v2", "GET", [name]) => self.get_sandbox(name, ask).await,
            ("v2", "PATCH", [name]) => self.update_sandbox(name, ask).await,
            ("v2", "DELETE", [name]) => self.delete_sandbox(name, ask).await,
            ("v2" | "v3", "POST", [name, "fork"]) => self.fork(name, ask).await,
            _ => Err(no_route()),
        }
    }

    async fn listing(self: &Arc<Self>, method: &Method, rest: &[&str], ask: Ask) -> Result<Answer> {
        match (method.as_str(), rest) {
            ("GET", ["sessions"]) => self.list_sessions(&ask),
            ("GET", ["sessions", id]) => self.get_session(id, &ask),
            ("GET", ["snapshots"]) => self.list_snapshots(&ask),
            ("GET", ["snapshots", "tree"]) => self.snapshot_tree(&ask),
            ("GET", ["snapshots", id]) => self.get_snapshot(id, &ask),
            ("DELETE", ["snapshots", id]) => self.delete_snapshot(id, ask).await,
            _ => Err(no_route()),
        }
    }

    async fn session_action(
        self: &Arc<Self>,
        version: &str,
        method: &Method,
        session: &str,
        action: &[&str],
        ask: Ask,
    ) -> Result<Answer> {
        match (version, method.as_str(), action) {
            ("v2", "POST", ["stop"]) => self.stop_session(session, ask).await,
            ("v2", "POST", ["extend-timeout"]) => self.extend_timeout(session, ask).await,
            ("v2", "POST", ["network-policy"]) => self.change_policy(session, ask).await,
            ("v2" | "v3", "POST", ["snapshot"]) => self.take_snapshot(version, session, ask).await,
            ("v2", "POST", ["cmd"]) => self.exec(session, ask).await,
            ("v2", "GET", ["cmd"]) => self.list_commands(session, &ask),
            ("v2", "GET", ["cmd", id]) => self.get_command(session, id, ask).await,
            ("v2", "GET", ["cmd", id, "logs"]) => self.logs(session, id, &ask),
            ("v2", "POST", ["cmd", id, "kill"]) => self.kill(session, id, ask).await,
            ("v2", "POST", ["cmd", id, "stdin"]) => self.stdin(session, id, ask).await,
            ("v2", "POST", ["fs", "write"]) => self.write_files(session, ask).await,
            ("v2", "POST", ["fs", "read"]) => self.read_file(session, ask).await,
            ("v2", "POST", ["fs", "mkdir"]) => self.make_directory(session, ask).await,
            _ => Err(no_route()),
        }
    }
}

fn no_route() -> ApiError {
    let error = ApiError::not_found("The requested route");
    ApiError { violation: true, ..error }
}
