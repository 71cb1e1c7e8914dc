//! A service that answers from a script, and remembers what it was asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use sandbox_bench_core::{Backend, Call, Grants, SandboxRef, Tag};
use sandbox_bench_vercel::{VercelConfig, connect_with};
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub(crate) const TOKEN: &str = "s3cret-token-of-the-tests";

/// One answer.
pub(crate) enum Reply {
    /// JSON with this status.
    Json(u16, Value),
    /// Text with this status.
    Text(u16, &'static str),
    /// Lines of JSON, and then the end of the answer.
    Lines(Vec<Value>),
    /// Lines of JSON, and then the end of the connection.
    Cut(Vec<Value>),
    /// These bytes as a file.
    File(&'static [u8]),
    /// No answer: the connection ends.
    Lost,
    /// The one before, for the last time; then this one again and again.
    Always(Box<Reply>),
}

/// The script, and what it was asked.
#[derive(Default)]
struct Stage {
    /// By method and path, without the API's base: what comes next.
    replies: HashMap<String, Vec<Reply>>,
    /// Method, path and query, and body of every request.
    asked: Vec<(String, String, Bytes)>,
    /// What stands for `FRAME` in lines: the random text of the last command's wrapper.
    frame: String,
}

/// A service with a script, and a backend connected to it.
pub(crate) struct Scripted {
    stage: Arc<Mutex<Stage>>,
    pub(crate) backend: Arc<dyn Backend>,
}

impl Scripted {
    /// A service that answers each of `replies` in turn: `METHOD /path` → answer. What is not in the script is 404.
    pub(crate) async fn new(replies: Vec<(&str, Reply)>) -> Self {
        let stage = Arc::new(Mutex::new(Stage::default()));
        for (request, reply) in replies {
            stage.lock().unwrap().replies.entry(request.to_owned()).or_default().push(reply);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/api", listener.local_addr().unwrap());
        let router = Router::new().fallback(serve).with_state(stage.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let ids = [("VERCEL_TOKEN", TOKEN), ("VERCEL_TEAM_ID", "team_t"), ("VERCEL_PROJECT_ID", "prj_p")];
        let variable = |name: &str| ids.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let config = VercelConfig { api_url: Some(url), ..VercelConfig::default() };
        Self { stage, backend: connect_with(&config, variable).unwrap() }
    }

    /// How often this was asked.
    pub(crate) fn count(&self, request: &str) -> usize {
        self.stage.lock().unwrap().asked.iter().filter(|(asked, _, _)| asked == request).count()
    }

    /// Everything that was asked, with its query.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.stage.lock().unwrap().asked.iter().map(|(request, query, _)| format!("{request}?{query}")).collect()
    }

    /// The bodies of these requests.
    pub(crate) fn bodies(&self, request: &str) -> Vec<Value> {
        let stage = self.stage.lock().unwrap();
        let of = stage.asked.iter().filter(|(asked, _, _)| asked == request);
        of.map(|(_, _, body)| serde_json::from_slice(body).unwrap_or(Value::Null)).collect()
    }
}

async fn serve(State(stage): State<Arc<Mutex<Stage>>>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, 64 << 20).await.unwrap();
    let path = head.uri.path().strip_prefix("/api").unwrap().to_owned();
    let key = format!("{} {path}", head.method);
    let query = head.uri.query().unwrap_or_default().to_owned();
    assert_eq!(head.headers["authorization"], format!("Bearer {TOKEN}"));
    assert!(query.contains("teamId=team_t"), "{key}?{query}");
    let mut stage = stage.lock().unwrap();
    if path.ends_with("/cmd") && head.method == "POST" {
        let body: Value = serde_json::from_slice(&body).unwrap();
        let frame = body["args"].as_array().unwrap().iter().filter_map(Value::as_str);
        let mut frame = frame.filter(|text| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()));
        if let Some(frame) = frame.next_back() {
            stage.frame = frame.to_owned();
        }
    }
    stage.asked.push((key.clone(), query, body));
    let frame = stage.frame.clone();
    let replies = stage.replies.entry(key).or_default();
    match replies.first() {
        Some(Reply::Always(reply)) => response(reply, &frame),
        Some(_) => response(&replies.remove(0), &frame),
        None => response(&refusal(404, "not_found"), &frame),
    }
}

fn response(reply: &Reply, frame: &str) -> Response<Body> {
    let build = |status: u16, kind: &str, body: Body| {
        Response::builder()
            .status(StatusCode::from_u16(status).unwrap())
            .header("content-type", kind)
            .body(body)
            .unwrap()
    };
    let text = |lines: &[Value]| {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        text.replace("FRAME", frame)
    };
    let broken = || std::io::Error::other("cut");
    match reply {
        Reply::Json(status, value) => {
            let body = value.to_string().replace("FRAME", frame);
            build(*status, "application/json", Body::from(body))
        }
        Reply::Text(status, text) => build(*status, "text/html", Body::from(*text)),
        Reply::Lines(lines) => build(200, "application/x-ndjson", Body::from(text(lines))),
        Reply::Cut(lines) => {
            let pieces = [Ok(Bytes::from(text(lines))), Err(broken())];
            // In two pieces with a pause between, so that the first is sent before the connection ends.
            let pieces = futures_util::StreamExt::then(futures_util::stream::iter(pieces), |piece| async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                piece
            });
            build(200, "application/x-ndjson", Body::from_stream(pieces))
        }
        Reply::File(bytes) => build(200, "application/octet-stream", Body::from(*bytes)),
        Reply::Lost => {
            let nothing = futures_util::stream::iter([Err::<Bytes, _>(broken())]);
            build(200, "application/json", Body::from_stream(nothing))
        }
        Reply::Always(reply) => response(reply, frame),
    }
}

/// A refusal in the service's words.
pub(crate) fn refusal(status: u16, code: &str) -> Reply {
    Reply::Json(status, json!({ "error": { "code": code, "message": "words of the service" } }))
}

pub(crate) fn ok(value: Value) -> Reply {
    Reply::Json(200, value)
}

pub(crate) fn always(reply: Reply) -> Reply {
    Reply::Always(Box::new(reply))
}

pub(crate) fn tag() -> Tag {
    Tag::new("run", "unit")
}

pub(crate) fn reference() -> SandboxRef {
    SandboxRef { backend: "vercel".into(), id: tag().to_string(), tag: tag() }
}

pub(crate) fn call() -> Call {
    Call::new(tag(), Duration::from_secs(20), Arc::new(Grants::default()))
}

pub(crate) fn session(status: &str) -> Value {
    json!({ "id": "sbx_1", "status": status, "vcpus": 2, "memory": 4096, "cwd": "/vercel", "region": "iad1" })
}

/// A sandbox of ours in this state, with further tags.
pub(crate) fn sandbox(status: &str, tags: &[(&str, &str)]) -> Value {
    let mut all = json!({ "sandbox-bench": tag().as_str() });
    for (key, value) in tags {
        all[*key] = json!(value);
    }
    json!({ "name": tag().as_str(), "status": status, "currentSessionId": "sbx_1", "persistent": false, "tags": all })
}

/// The answer to create and get.
pub(crate) fn opened(status: &str) -> Value {
    json!({ "sandbox": sandbox(status, &[]), "session": session(status), "routes": [] })
}

pub(crate) const NAMED: &str = "/v2/sandboxes/sbx-run--unit";
pub(crate) const SESSION: &str = "/v2/sandboxes/sessions/sbx_1";
