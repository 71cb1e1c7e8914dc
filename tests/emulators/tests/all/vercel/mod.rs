//! The Vercel emulator over its wire.

mod commands;
mod lifecycle;
mod strict;

use std::sync::Arc;

use axum::http::StatusCode;
use reqwest::{Method, RequestBuilder, Response};
use sandbox_bench_emulators::faults::{Effect, Rule};
use sandbox_bench_emulators::vercel::{self, VercelOptions};
use sandbox_bench_emulators::{Emulation, Listener, Server};
use serde_json::{Value, json};

use crate::common::{LIMIT, emulation};

/// An emulator and a client of it.
struct Account {
    server: Server,
    emulation: Arc<Emulation>,
    http: reqwest::Client,
    options: VercelOptions,
}

impl Account {
    async fn open() -> Account {
        Account::with(VercelOptions::default()).await
    }

    async fn with(options: VercelOptions) -> Account {
        let listener = Listener::bind(0).await.unwrap();
        let emulation = emulation().await;
        let server = vercel::start(listener, Arc::clone(&emulation), options.clone());
        Account { server, emulation, http: reqwest::Client::new(), options }
    }

    /// A request with credentials and team.
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let joint = if path.contains('?') { '&' } else { '?' };
        let url = format!("{}/api{path}{joint}teamId={}", self.server.base_url(), self.options.team_id);
        let token = self.options.tokens.first().unwrap();
        self.http.request(method, url).bearer_auth(token).header("content-type", "application/json")
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        answer(self.request(method, path).body(body.to_string()).send().await.unwrap()).await
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.request(Method::GET, path).send().await.unwrap()).await
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::POST, path, body).await
    }

    /// A sandbox that is not persistent. Returns its session's id.
    async fn create(&self, name: &str) -> String {
        let (status, made) = self.post("/v3/sandboxes", self.body(name)).await;
        assert_eq!(status, 200, "{made}");
        made["session"]["id"].as_str().unwrap().to_owned()
    }

    fn body(&self, name: &str) -> Value {
        json!({ "projectId": self.options.project_id, "name": name, "ports": [], "persistent": false })
    }

    async fn delete(&self, name: &str) -> (u16, Value) {
        self.call(Method::DELETE, &format!("/v2/sandboxes/{name}?projectId={}", self.options.project_id), json!({}))
            .await
    }

    /// A command to its end, as its stream shows it.
    async fn run(&self, session: &str, script: &str) -> Vec<Value> {
        let body = json!({ "command": "sh", "args": ["-c", script], "wait": true, "logs": true });
        let request = self.request(Method::POST, &action(session, "cmd")).body(body.to_string());
        lines(request.send().await.unwrap()).await
    }

    fn script(&self, method: Method, path: &str, effect: Effect) {
        self.emulation.faults.add(Rule::new(method.as_str(), path, effect)).unwrap();
    }

    fn violations(&self) -> usize {
        self.emulation.violations.all().len()
    }

    /// Nothing was against the protocol, and nothing is left.
    async fn close(self) {
        assert_eq!(self.emulation.violations.all(), []);
        self.server.shutdown(LIMIT).await.unwrap();
    }
}

fn action(session: &str, action: &str) -> String {
    format!("/v2/sandboxes/sessions/{session}/{action}")
}

async fn answer(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default())
}

async fn lines(response: Response) -> Vec<Value> {
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    response.text().await.unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn code(body: &Value) -> &str {
    body["error"]["code"].as_str().unwrap_or_default()
}
