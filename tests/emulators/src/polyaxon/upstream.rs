//! The real open-source server behind us.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use reqwest::Client;
use serde_json::{Value, json};

use super::reply::{self, Reply};
use super::world::RunKey;

/// Limit for a request of the agent's own, and how often it is repeated.
const LIMIT: Duration = Duration::from_secs(20);
const ATTEMPTS: usize = 5;
/// Most bytes of a request that are passed on.
const BODY_LIMIT: usize = 512 << 20;
/// Asks for runs that have an agent.
const UNFINISHED: &str = "managed_by:agent,status:queued|scheduled|starting|running|warning|unschedulable|stopping";
const PAUSE: Duration = Duration::from_millis(300);

/// A client of the server.
pub(super) struct Upstream {
    client: Client,
    address: String,
}

impl Upstream {
    pub(super) fn new(address: &str) -> Upstream {
        // What comes back is passed on as it is.
        let client = Client::builder().no_gzip().build().unwrap_or_default();
        Upstream { client, address: address.trim_end_matches('/').to_owned() }
    }

    /// Passes a request on, and its answer back as it is.
    pub(super) async fn forward(&self, request: Request<Body>) -> Reply {
        let (head, body) = request.into_parts();
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut forwarded = self.client.request(head.method, format!("{}{target}", self.address));
        for (name, value) in head.headers.iter().filter(|(name, _)| *name != header::HOST) {
            forwarded = forwarded.header(name, value);
        }
        let Ok(body) = axum::body::to_bytes(body, BODY_LIMIT).await else { return reply::bad_gateway() };
        match forwarded.body(body).send().await {
            Ok(answer) => {
                let mut reply = Response::builder().status(answer.status());
                for (name, value) in answer.headers() {
                    if !matches!(name.as_str(), "transfer-encoding" | "connection") {
                        reply = reply.header(name, value);
                    }
                }
                let reply = reply.body(Body::from_stream(answer.bytes_stream()));
                reply.unwrap_or_else(|error| (StatusCode::BAD_GATEWAY, error.to_string()).into_response())
            }
            Err(_) => reply::bad_gateway(),
        }
    }

    fn of_run(&self, key: &RunKey, rest: &str) -> String {
        let RunKey { owner, project, uuid } = key;
        format!("{}/api/v1/{owner}/{project}/runs/{uuid}{rest}", self.address)
    }

    /// The run as it is now; none if it cannot be had.
    pub(super) async fn run(&self, key: &RunKey) -> Option<Value> {
        let answer = self.client.get(self.of_run(key, "")).timeout(LIMIT).send().await.ok()?;
        read(answer).await
    }

    /// The runs of a project that an agent has taken or is to take, and that are not over; none if they cannot be had.
    pub(super) async fn unfinished(&self, owner: &str, project: &str) -> Vec<Value> {
        let url = format!("{}/api/v1/{owner}/{project}/runs?no_page=true&query={UNFINISHED}", self.address);
        let Ok(answer) = self.client.get(url).timeout(LIMIT).send().await else { return Vec::new() };
        match read(answer).await {
            Some(mut list) => serde_json::from_value(list["results"].take()).unwrap_or_default(),
            None => Vec::new(),
        }
    }

    /// Posts a status until it is taken.
    pub(super) async fn report(&self, key: &RunKey, (status, reason, message): (&str, &str, &str)) {
        let condition = json!({ "type": status, "status": true, "reason": reason, "message": message });
        for _ in 0..ATTEMPTS {
            let post = self.client.post(self.of_run(key, "/statuses")).json(&json!({ "condition": condition }));
            if post.timeout(LIMIT).send().await.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// JSON that may be compressed.
async fn read(answer: reqwest::Response) -> Option<Value> {
    if !answer.status().is_success() {
        return None;
    }
    let packed = answer.headers().get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
    let bytes = answer.bytes().await.ok()?;
    if packed {
        serde_json::from_reader(flate2::read::GzDecoder::new(bytes.as_ref())).ok()
    } else {
        serde_json::from_slice(&bytes).ok()
    }
}
