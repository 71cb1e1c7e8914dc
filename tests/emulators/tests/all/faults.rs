//! Fault scripts on the wire, around a router that is nobody's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::routing::{get, post};
use futures_util::StreamExt;
use sandbox_bench_emulators::faults::{Effect, Ending, Rule};
use sandbox_bench_emulators::{Flags, Listener, Server};
use serde_json::{Value, json};

struct Site {
    server: Server,
    done: Arc<AtomicU32>,
}

async fn site() -> Site {
    let done = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&done);
    let make = move || {
        let counter = Arc::clone(&counter);
        async move { counter.fetch_add(1, Ordering::Relaxed).to_string() }
    };
    let frames = |upgrade: WebSocketUpgrade| async {
        upgrade.on_upgrade(|mut socket| async move {
            for _ in 0..10 {
                let _ = socket.send(Message::Binary(vec![7; 100].into())).await;
            }
            let _ = socket.send(Message::Close(None)).await;
        })
    };
    let router = Router::new()
        .route("/make", post(make))
        .route("/text", get(|| async { "0123456789".repeat(100) }))
        .route(
            "/flag",
            get(|Extension(flags): Extension<Flags>| async move { flags.value("stale").is_some().to_string() }),
        )
        .route("/slow", get(std::future::pending::<()>))
        .route("/frames", get(frames));
    let listener = Listener::bind(0).await.unwrap();
    let server = listener.serve(crate::common::emulation().await, router, || json!({"things": 1}));
    Site { server, done }
}

impl Site {
    fn fault(&self, rule: Rule) {
        self.server.emulation().faults.add(rule).unwrap();
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server.base_url())
    }

    async fn post(&self) -> reqwest::Result<reqwest::Response> {
        reqwest::Client::new().post(self.url("/make")).send().await
    }

    async fn close(self) {
        self.server.shutdown(crate::common::LIMIT).await.unwrap();
    }
}

#[tokio::test]
async fn an_answer_of_the_script_keeps_the_request_from_the_emulator() {
    let site = site().await;
    let headers = [("Retry-After".to_owned(), "3".to_owned())].into();
    let limit = Effect::Answer { status: 429, headers, body: "<html>slow down</html>".into() };
    site.fault(Rule::new("POST", "/make", limit).times(1));
    let answer = site.post().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()["retry-after"].as_bytes()), (429, &b"3"[..]));
    assert_eq!(answer.text().await.unwrap(), "<html>slow down</html>");
    assert_eq!(site.done.load(Ordering::Relaxed), 0);
    assert_eq!(site.post().await.unwrap().text().await.unwrap(), "0");
    site.close().await;
}

#[tokio::test]
async fn a_lost_response_has_its_effect_and_a_reset_request_has_none() {
    let site = site().await;
    site.fault(Rule::new("POST", "/make", Effect::LoseResponse).times(1));
    assert!(site.post().await.is_err());
    assert_eq!(site.done.load(Ordering::Relaxed), 1);
    site.fault(Rule::new("POST", "/make", Effect::Reset).skip(0).times(1));
    let error = site.post().await.unwrap_err();
    assert!(format!("{error:?}").contains("ConnectionReset"), "{error:?}");
    assert_eq!(site.done.load(Ordering::Relaxed), 1);
    let statuses: Vec<_> = site.server.emulation().requests.all().iter().map(|request| request.status).collect();
    assert_eq!(statuses, [None, None]);
    site.close().await;
}

#[tokio::test]
async fn a_late_response_has_its_effect_before_it_comes() {
    let site = site().await;
    site.fault(Rule::new("POST", "/make", Effect::LateResponse { ms: 600_000 }).times(1));
    let waiting = reqwest::Client::new().post(site.url("/make")).timeout(Duration::from_millis(500)).send();
    assert!(waiting.await.unwrap_err().is_timeout());
    assert_eq!(site.done.load(Ordering::Relaxed), 1);
    site.fault(Rule::new("POST", "/make", Effect::LateResponse { ms: 10 }).times(1));
    assert_eq!(site.post().await.unwrap().text().await.unwrap(), "1");
    site.close().await;
}

#[tokio::test]
async fn bodies_end_early_in_three_ways() {
    let site = site().await;
    let cut = |ending| Rule::new("GET", "/text", Effect::Cut { after: 25, ending }).times(1);
    site.fault(cut(Ending::Clean));
    let answer = reqwest::get(site.url("/text")).await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "0123456789012345678901234");
    for ending in [Ending::Close, Ending::Reset] {
        site.server.emulation().faults.set(Default::default()).unwrap();
        site.fault(cut(ending));
        let answer = reqwest::get(site.url("/text")).await;
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 200);
        let error = answer.text().await.unwrap_err();
        assert_eq!(format!("{error:?}").contains("ConnectionReset"), ending == Ending::Reset, "{error:?}");
    }
    site.close().await;
}

#[tokio::test]
async fn a_client_that_begins_with_http2_meets_the_same() {
    let site = site().await;
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    site.fault(Rule::new("POST", "/make", Effect::LoseResponse).times(1));
    assert!(client.post(site.url("/make")).send().await.is_err());
    assert_eq!(site.done.load(Ordering::Relaxed), 1);
    let answer = client.post(site.url("/make")).send().await.unwrap();
    assert_eq!((answer.version(), answer.text().await.unwrap().as_str()), (reqwest::Version::HTTP_2, "1"));
    site.fault(Rule::new("GET", "/text", Effect::Cut { after: 25, ending: Ending::Clean }).times(1));
    let answer = client.get(site.url("/text")).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "0123456789012345678901234");
    site.fault(Rule::new("GET", "/text", Effect::Cut { after: 25, ending: Ending::Close }).times(1));
    // The connection that the script breaks is another request's too.
    let (broken, other) = tokio::join!(client.get(site.url("/text")).send(), client.get(site.url("/slow")).send());
    assert!(broken.unwrap().text().await.is_err() && other.is_err());
    assert_eq!(client.get(site.url("/text")).send().await.unwrap().text().await.unwrap().len(), 1000);
    site.close().await;
}

#[tokio::test]
async fn a_websocket_is_cut_without_a_close_frame() {
    let site = site().await;
    site.fault(Rule::new("GET", "/frames", Effect::Cut { after: 250, ending: Ending::Close }).times(1));
    let url = site.url("/frames").replace("http", "ws");
    let mut totals = Vec::new();
    for _ in 0..2 {
        let stream = tokio::net::TcpStream::connect(url.trim_start_matches("ws://").trim_end_matches("/frames")).await;
        let (mut socket, _) = tokio_tungstenite::client_async(&url, stream.unwrap()).await.unwrap();
        let (mut bytes, mut closed) = (0, false);
        while let Some(Ok(message)) = socket.next().await {
            closed |= message.is_close();
            bytes += if message.is_binary() { message.len() } else { 0 };
        }
        totals.push((bytes, closed));
    }
    assert_eq!(totals, [(200, false), (1000, true)]);
    site.close().await;
}

#[tokio::test]
async fn handlers_see_flags_and_admin_routes_are_beside_the_vendor() {
    let site = site().await;
    let client = reqwest::Client::new();
    let faults = site.url("/__emulator/faults");
    let script = json!({"rule": [{"path": "/**", "effect": {"kind": "flag", "name": "stale"}, "times": 1}]});
    assert_eq!(client.put(&faults).json(&script).send().await.unwrap().status(), 200);
    assert_eq!(reqwest::get(site.url("/flag")).await.unwrap().text().await.unwrap(), "true");
    assert_eq!(reqwest::get(site.url("/flag")).await.unwrap().text().await.unwrap(), "false");
    let matched: Vec<u64> = reqwest::get(&faults).await.unwrap().json().await.unwrap();
    assert_eq!(matched, [2]);
    let wrong = json!({"rule": [{"path": "/", "effect": {"kind": "explode"}}]});
    assert_eq!(client.post(&faults).json(&wrong).send().await.unwrap().status(), 422);
    site.server.emulation().violations.record("GET /x", "no such route");
    let violations: Value = reqwest::get(site.url("/__emulator/violations")).await.unwrap().json().await.unwrap();
    assert_eq!(violations, json!([{"request": "GET /x", "what": "no such route"}]));
    client.delete(site.url("/__emulator/violations")).send().await.unwrap();
    assert!(site.server.emulation().violations.all().is_empty());
    let state: Value = reqwest::get(site.url("/__emulator/state")).await.unwrap().json().await.unwrap();
    assert_eq!(state, json!({"things": 1, "machines": []}));
    let requests: Value = reqwest::get(site.url("/__emulator/requests")).await.unwrap().json().await.unwrap();
    assert_eq!(requests.as_array().unwrap().len(), 2, "{requests}");
    site.close().await;
}
