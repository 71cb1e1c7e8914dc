//! The example service: what `adapters/template` speaks to until its author has replaced it by a vendor's. It is
//! nobody's product, so no client of a vendor judges it.
//!
//! JSON over HTTP below `/v1`, with `Authorization: Bearer KEY`. A refusal is `{"error": {"code", "message"}}`.
//!
//! | route | |
//! |---|---|
//! | `GET /account` | `{name, sandboxes, limit}` |
//! | `POST /sandboxes` | `{name, snapshot?, labels, lifetime_seconds, offline}` → 201, the sandbox; 409: the name is taken |
//! | `GET /sandboxes?prefix=` | `{items}`, by name |
//! | `GET`, `DELETE /sandboxes/{name}` | `{name, state, source, labels, created_at}`; `DELETE` answers 202 and takes a moment; 409 while it starts |
//! | `PUT /sandboxes/{name}/files` | unpacks a tar stream below `/`; everything belongs to root |
//! | `GET /sandboxes/{name}/files?path=` | a tar stream of the path |
//! | `POST /sandboxes/{name}/commands` | `{argv, env, stdin?}` (stdin in base64) → 201 `{id}`; as root, in `/` |
//! | `GET /sandboxes/{name}/commands/{id}/output` | lines `{stream, data}` in base64 from the beginning, then `{exit}` |
//! | `POST /sandboxes/{name}/snapshots` | `{name}` → 201 `{name, created_at, size_bytes}`; ends all processes |
//! | `GET /snapshots?prefix=`; `GET`, `DELETE /snapshots/{name}` | as above |
//!
//! A sandbox is `starting`, `running`, `ending`, or `ended` (its lifetime is over; it stays listed, and answers 410).

mod commands;
mod files;
mod sandboxes;
mod snapshots;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use self::sandboxes::Sandbox;
use self::snapshots::Snapshot;
use crate::{Emulation, Listener, Server};

/// Sandboxes at one time.
const LIMIT: usize = 100;

struct Service {
    emulation: Arc<Emulation>,
    key: String,
    world: Mutex<World>,
}

#[derive(Default)]
struct World {
    sandboxes: BTreeMap<String, Arc<Sandbox>>,
    snapshots: BTreeMap<String, Snapshot>,
}

/// What a list is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prefix {
    #[serde(default)]
    prefix: String,
}

/// Serves the service on the listener's port; `key` is accepted.
pub fn start(listener: Listener, emulation: Arc<Emulation>, key: &str) -> Server {
    let service = Arc::new(Service { emulation: Arc::clone(&emulation), key: key.to_owned(), world: Mutex::default() });
    let sandbox = Router::new()
        .route("/", get(sandboxes::one).delete(sandboxes::delete))
        .route("/files", put(files::unpack).get(files::pack))
        .route("/commands", post(commands::start))
        .route("/commands/{id}/output", get(commands::output))
        .route("/snapshots", post(snapshots::take));
    let router = Router::new()
        .route("/v1/account", get(account))
        .route("/v1/sandboxes", get(sandboxes::list).post(sandboxes::create))
        .nest("/v1/sandboxes/{name}", sandbox)
        .route("/v1/snapshots", get(snapshots::list))
        .route("/v1/snapshots/{name}", get(snapshots::one).delete(snapshots::delete))
        .fallback(unknown)
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(Arc::clone(&service), authorized))
        .with_state(Arc::clone(&service));
    listener.serve(emulation, router, move || service.view())
}

impl Service {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sandbox(&self, name: &str) -> Result<Arc<Sandbox>, Refusal> {
        self.world().sandboxes.get(name).cloned().ok_or_else(|| Refusal::missing("sandbox", name))
    }

    /// The body, or a violation.
    fn parse<T: DeserializeOwned>(&self, route: &str, body: &[u8]) -> Result<T, Refusal> {
        serde_json::from_slice(body).map_err(|error| {
            self.emulation.violations.record(route, error.to_string());
            Refusal(StatusCode::BAD_REQUEST, "invalid_request", error.to_string())
        })
    }

    /// Does the work to its end even if the client goes away, as a service does.
    async fn to_the_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (done, result) = oneshot::channel();
        self.emulation.tasks.spawn(async move {
            // Nobody may be waiting any more.
            let _ = done.send(work.await);
        });
        result.await.map_err(|_| Refusal::internal("shutting down"))
    }

    fn view(&self) -> Value {
        let world = self.world();
        let sandboxes: Vec<Value> = world.sandboxes.values().map(|sandbox| sandbox.view()).collect();
        json!({ "vendor": "template", "sandboxes": sandboxes, "snapshots": world.snapshots.keys().collect::<Vec<_>>() })
    }
}

/// A refusal: status, code, message.
struct Refusal(StatusCode, &'static str, String);

impl Refusal {
    fn missing(kind: &str, name: &str) -> Refusal {
        Refusal(StatusCode::NOT_FOUND, "not_found", format!("there is no {kind} {name}"))
    }

    fn taken(name: &str) -> Refusal {
        Refusal(StatusCode::CONFLICT, "name_taken", format!("{name} exists already"))
    }

    fn internal(error: impl ToString) -> Refusal {
        Refusal(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Refusal(status, code, message) = self;
        (status, Json(json!({ "error": { "code": code, "message": message } }))).into_response()
    }
}

async fn authorized(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let sent = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if sent == Some(format!("Bearer {}", service.key).as_str()) {
        return next.run(request).await;
    }
    Refusal(StatusCode::UNAUTHORIZED, "unauthorized", "the key is missing or wrong".into()).into_response()
}

async fn account(State(service): State<Arc<Service>>) -> Json<Value> {
    Json(json!({ "name": "example", "sandboxes": service.world().sandboxes.len(), "limit": LIMIT }))
}

async fn unknown(State(service): State<Arc<Service>>, method: Method, uri: Uri) -> Refusal {
    service.emulation.violations.record(format!("{method} {}", uri.path()), "there is no such route");
    Refusal(StatusCode::NOT_FOUND, "no_such_route", format!("there is no route {}", uri.path()))
}
