//! The routes of the API, and what all answers have in common.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Path, Query, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::boot::Boot;
use crate::jobs::{Job, Jobs, Position};
use crate::refusal::{Answer, Refusal};
use crate::{archive, files, receive};

/// Every answer has this header: without it, the vendor's proxy speaks, not the runner.
const OURS: &str = "x-sandbox-runner";
/// Most bytes of a job's request.
const JOB_LIMIT: u64 = 4 << 20;
const KILL_LIMIT: u64 = 4 << 10;
const MAX_WAIT_MS: u64 = 20_000;
const DEFAULT_PIECE: u64 = 256 << 10;
const MAX_PIECE: u64 = 1 << 20;
/// Most bytes of one event.
const EVENT_PIECE: u64 = 64 << 10;
/// A comment is sent so often, so that no proxy takes the connection for dead.
const BEAT: Duration = Duration::from_secs(10);
/// How long one look at a job for events waits before it looks again.
const EVENT_WAIT: Duration = Duration::from_secs(60);

/// What the routes share.
pub(crate) struct Runner {
    pub(crate) boot: Arc<Boot>,
    pub(crate) jobs: Arc<Jobs>,
    /// Where bodies are received.
    pub(crate) spool: PathBuf,
}

type Shared = State<Arc<Runner>>;

pub(crate) fn router(runner: Arc<Runner>) -> Router {
    let guarded = Router::new()
        .route("/v1/jobs", post(submit).get(list))
        .route("/v1/jobs/{id}", get(look).delete(forget))
        .route("/v1/jobs/{id}/kill", post(kill))
        .route("/v1/jobs/{id}/events", get(events))
        .route("/v1/files", put(put_file).get(get_file).delete(delete_file))
        .route("/v1/tar", put(put_tar).get(get_tar))
        .route("/v1/changes", get(changes))
        .route("/v1/stat", get(stat))
        .fallback(async || Refusal::not_found("no such route"))
        .layer(middleware::from_fn_with_state(runner.clone(), admit))
        .with_state(runner.clone());
    let open = Router::new().route("/v1/health", get(health)).with_state(runner);
    common(open.merge(guarded))
}

/// What all answers of both listeners have in common.
pub(crate) fn common(router: Router) -> Router {
    router.method_not_allowed_fallback(async || Refusal::method()).layer(middleware::map_response(sign))
}

async fn sign(mut response: Response) -> Response {
    response.headers_mut().insert(OURS, HeaderValue::from_static("1"));
    response
}

async fn admit(State(runner): Shared, request: Request, next: Next) -> Answer {
    runner.boot.admit(request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes))?;
    Ok(next.run(request).await)
}

/// The query of a request; what is wrong with it is told as all refusals are.
struct Asked<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|e: QueryRejection| Refusal::bad(e.body_text()))
    }
}

/// Does what blocks on a thread that may.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Answer<T> + Send + 'static) -> Answer<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(Refusal::internal(e.to_string())))
}

async fn health(State(runner): Shared) -> Answer {
    Ok(Json(runner.boot.health(runner.jobs.running())?).into_response())
}

async fn submit(State(runner): Shared, body: Body) -> Answer {
    let body = receive::small(body, JOB_LIMIT).await?;
    let handle = tokio::runtime::Handle::current();
    let (job, new) = blocking(move || {
        let _entered = handle.enter();
        runner.jobs.submit(&body)
    })
    .await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(job.summary())).into_response())
}

async fn list(State(runner): Shared) -> Response {
    let all: Vec<Value> = runner.jobs.all().iter().map(|job| job.summary()).collect();
    Json(json!({ "jobs": all })).into_response()
}

#[derive(Debug, Deserialize)]
struct Look {
    #[serde(default)]
    wait_ms: u64,
    #[serde(default)]
    stdout_offset: u64,
    #[serde(default)]
    stderr_offset: u64,
    max_bytes: Option<u64>,
}

async fn look(State(runner): Shared, Path(id): Path<String>, Asked(query): Asked<Look>) -> Answer {
    let job = runner.jobs.get(&id)?;
    let position = Position { stdout: query.stdout_offset, stderr: query.stderr_offset };
    job.news(position, Duration::from_millis(query.wait_ms.min(MAX_WAIT_MS))).await;
    let limit = query.max_bytes.unwrap_or(DEFAULT_PIECE).min(MAX_PIECE);
    blocking(move || {
        // First how it stands: what is written afterwards is asked for again, and nothing is missed.
        let mut answer = job.summary();
        let [stdout, stderr] = job.output(position, limit).map_err(|e| Refusal::internal(e.to_string()))?;
        answer["stdout"] = json!(stdout);
        answer["stderr"] = json!(stderr);
        Ok(Json(answer).into_response())
    })
    .await
}

async fn forget(State(runner): Shared, Path(id): Path<String>) -> Answer<StatusCode> {
    blocking(move || runner.jobs.delete(&id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
struct Kill {
    #[serde(default = "sigterm")]
    signal: i32,
}

fn sigterm() -> i32 {
    libc::SIGTERM
}

async fn kill(State(runner): Shared, Path(id): Path<String>, body: Body) -> Answer<StatusCode> {
    let job = runner.jobs.get(&id)?;
    let body = receive::small(body, KILL_LIMIT).await?;
    let body: &[u8] = if body.is_empty() { b"{}" } else { &body };
    let Kill { signal } = serde_json::from_slice(body).map_err(|e| Refusal::bad(e.to_string()))?;
    if !(1..=64).contains(&signal) {
        return Err(Refusal::bad(format!("{signal} is not a signal")));
    }
    job.kill(signal);
    Ok(StatusCode::ACCEPTED)
}

async fn events(State(runner): Shared, Path(id): Path<String>, Asked(query): Asked<Look>) -> Answer {
    let job = runner.jobs.get(&id)?;
    let position = Position { stdout: query.stdout_offset, stderr: query.stderr_offset };
    Ok(Sse::new(told(job, position)).keep_alive(KeepAlive::new().interval(BEAT)).into_response())
}

/// What happens to a job from `position` on; the stream ends with its end, or without one if its output cannot be read.
fn told(job: Arc<Job>, position: Position) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    stream::unfold(Some((job, position)), |state| async move {
        let (job, mut position) = state?;
        loop {
            job.news(position, EVENT_WAIT).await;
            let asked = job.clone();
            let (summary, pieces) =
                tokio::task::spawn_blocking(move || (asked.summary(), asked.output(position, EVENT_PIECE)))
                    .await
                    .ok()?;
            let [stdout, stderr] = pieces.ok()?;
            for (name, piece) in [("stdout", &stdout), ("stderr", &stderr)] {
                if !piece.data_b64.is_empty() {
                    match name {
                        "stdout" => position.stdout = piece.next,
                        _ => position.stderr = piece.next,
                    }
                    let data = json!({ "stream": name, "offset": piece.offset, "data_b64": piece.data_b64 });
                    let event = Event::default().event("output").data(data.to_string());
                    return Some((Ok(event), Some((job, position))));
                }
            }
            if summary["state"] != "running" && stdout.eof && stderr.eof {
                let event = Event::default().event("exit").data(summary.to_string());
                return Some((Ok(event), None));
            }
        }
    })
}

async fn put_file(State(runner): Shared, Asked(query): Asked<files::Put>, headers: HeaderMap, body: Body) -> Answer {
    files::put(query, headers, body, &runner.spool).await
}

async fn get_file(Asked(query): Asked<files::Get>) -> Answer {
    blocking(move || files::get(&query)).await
}

async fn delete_file(Asked(query): Asked<files::Named>) -> Answer<StatusCode> {
    blocking(move || files::delete(&query)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn stat(Asked(query): Asked<files::Named>) -> Answer {
    blocking(move || files::stat(&query)).await.map(|stat| Json(stat).into_response())
}

async fn put_tar(State(runner): Shared, Asked(query): Asked<archive::Put>, headers: HeaderMap, body: Body) -> Answer {
    archive::put(query, headers, body, &runner.spool).await
}

async fn get_tar(Asked(pairs): Asked<Vec<(String, String)>>, headers: HeaderMap) -> Answer {
    archive::get(archive::Get::read(pairs)?, &headers)
}

async fn changes(State(runner): Shared) -> Answer {
    let since =
        runner.boot.since().ok_or_else(|| Refusal::conflict("this MicroVM was not asked for its health yet"))?;
    blocking(move || archive::changes(since)).await
}
