//! Daytona over raw HTTP.

mod api;
mod commands;
mod faults;
mod files;
mod limits;
mod snapshots;

use std::time::Duration;

use reqwest::{Method, RequestBuilder, StatusCode};
use sandbox_bench_emulators::daytona::{DaytonaOptions, start};
use sandbox_bench_emulators::faults::{Effect, Rule};
use sandbox_bench_emulators::{Listener, Server};
use serde_json::{Value, json};

const VERSION: &str = "0.226.1";

pub(crate) struct Daytona {
    server: Server,
    client: reqwest::Client,
}

impl Daytona {
    async fn new() -> Daytona {
        Daytona::with(DaytonaOptions::default()).await
    }

    async fn with(options: DaytonaOptions) -> Daytona {
        let listener = Listener::bind(0).await.unwrap();
        let server = start(listener, crate::common::emulation().await, options);
        Daytona { server, client: reqwest::Client::new() }
    }

    fn bare(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("{}{path}", self.server.base_url()))
    }

    fn request(&self, method: &str, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth("dtn_emulator").header("x-daytona-sdk-version", VERSION)
    }

    /// Status and body; `null` for one that is no JSON.
    async fn call(&self, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
        let request = self.request(method, path);
        let request = if body.is_null() { request } else { request.json(&body) };
        let answer = request.send().await.unwrap();
        (answer.status(), serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default())
    }

    async fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, path, body).await;
        assert!(status.is_success(), "{method} {path}: {status} {answer}");
        answer
    }

    /// The status and message of what must be refused.
    async fn refused(&self, method: &str, path: &str, body: Value) -> (u16, String) {
        let (status, answer) = self.call(method, path, body).await;
        assert!(!status.is_success(), "{method} {path}: {status} {answer}");
        (status.as_u16(), answer["message"].as_str().unwrap_or_default().to_owned())
    }

    /// The id of a started sandbox.
    async fn sandbox(&self, body: Value) -> String {
        let id = self.ok("POST", "/api/sandbox", body).await["id"].as_str().unwrap().to_owned();
        self.until(&id, "started").await;
        id
    }

    async fn state(&self, id: &str) -> String {
        let (status, sandbox) = self.call("GET", &format!("/api/sandbox/{id}"), Value::Null).await;
        if status == StatusCode::NOT_FOUND { "gone".into() } else { sandbox["state"].as_str().unwrap().to_owned() }
    }

    /// Polls until the sandbox is in this state; returns the states on the way.
    async fn until(&self, id: &str, wanted: &str) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        for _ in 0..4000 {
            let state = self.state(id).await;
            if seen.last() != Some(&state) {
                seen.push(state);
            }
            if seen.last().is_some_and(|state| state == wanted) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        panic!("{wanted} never came: {seen:?}");
    }

    async fn execute(&self, id: &str, command: &str) -> Value {
        self.ok("POST", &format!("/toolbox/{id}/process/execute"), json!({"command": command, "timeout": 30})).await
    }

    fn fault(&self, method: &str, path: &str, effect: Effect) {
        self.server.emulation().faults.add(Rule::new(method, path, effect).times(1)).unwrap();
    }

    fn violations(&self) -> Vec<String> {
        self.server.emulation().violations.all().into_iter().map(|violation| violation.what).collect()
    }

    /// Ends it; nothing may be left.
    async fn close(self) {
        let emulation = self.server.emulation();
        assert_eq!(emulation.violations.all(), [], "violations");
        self.server.shutdown(crate::common::LIMIT).await.unwrap();
    }
}

#[tokio::test]
async fn shutdown_leaves_no_process_and_no_file_of_busy_sandboxes() {
    let state = crate::common::scratch();
    let emulation = crate::common::emulation_in(state.path()).await;
    let server = start(Listener::bind(0).await.unwrap(), emulation, DaytonaOptions::default());
    let daytona = Daytona { server, client: reqwest::Client::new() };
    let id = daytona.sandbox(json!({})).await;
    let session = format!("/toolbox/{id}/process/session");
    daytona.ok("POST", &session, json!({"sessionId": "s"})).await;
    let exec = json!({"command": "setsid sleep 3000 & sleep 3000", "runAsync": true});
    daytona.ok("POST", &format!("{session}/s/exec"), exec).await;
    daytona.ok("POST", &format!("/api/sandbox/{id}/snapshot"), json!({"name": "kept"})).await;
    // One that is being built, one that is being created.
    let build = json!({"buildInfo": {"dockerfileContent": "FROM a:1\nRUN sleep 3000\n"}});
    daytona.ok("POST", "/api/sandbox", build).await;
    assert!(!daytona.server.emulation().machines.alive().is_empty());
    daytona.close().await;
    for part in ["sandboxes", "snapshots", "layers"] {
        let left: Vec<_> = std::fs::read_dir(state.path().join(part)).unwrap().collect();
        assert!(left.is_empty(), "{part}: {left:?}");
    }
}
