//! A chat-completions server for tests: strict about what it is asked, scripted in what it answers, and faulty where a test
//! wants it to be. The official client (`sdk/openai_client.py`) is the judge of its form.

mod answer;
mod model;
mod strict;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::post;
use serde_json::Value;
use tokio::runtime::Runtime;

pub use answer::{Reply, call};
pub use model::{SOLVED, scripted};

/// The key that a gateway of [`Gateway::start`] wants.
pub const KEY: &str = "sk-canary-5f0c1f9d2b7e4a86";

/// A request that passed all checks.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Number of the request, from 1, over all conversations; refused ones are not counted.
    pub number: usize,
    /// Its body.
    pub body: Value,
}

impl Asked {
    /// The task, as the model was told.
    #[must_use]
    pub fn task(&self) -> &str {
        self.messages().iter().find(|message| message["role"] == "user").unwrap()["content"].as_str().unwrap()
    }

    /// The conversation.
    #[must_use]
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().unwrap()
    }

    /// Number of the answer that is wanted, from 0.
    #[must_use]
    pub fn turn(&self) -> usize {
        self.messages().iter().filter(|message| message["role"] == "assistant").count()
    }

    /// What the last tool call came to.
    #[must_use]
    pub fn result(&self) -> &str {
        self.messages().last().unwrap()["content"].as_str().unwrap()
    }
}

type Script = Arc<dyn Fn(&Asked) -> Reply + Send + Sync>;

struct Shared {
    script: Script,
    asked: Mutex<Vec<Asked>>,
    refused: Mutex<Vec<String>>,
}

/// A running server. Ends when dropped.
pub struct Gateway {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl Gateway {
    /// Starts a server that answers what `script` says.
    ///
    /// # Panics
    /// There is no free port.
    #[must_use]
    pub fn start(script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared { script: Arc::new(script), asked: Mutex::default(), refused: Mutex::default() });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/v1/chat/completions", post(serve)).with_state(shared.clone());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { address, shared, runtime: Some(runtime) }
    }

    /// Its base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// What it was asked.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Why it refused requests as wrong. A correct client gives no reason.
    #[must_use]
    pub fn refused(&self) -> Vec<String> {
        self.shared.refused.lock().unwrap().clone()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let body = match strict::check(&headers, &body) {
        Ok(body) => body,
        Err(refusal) => {
            shared.refused.lock().unwrap().push(refusal.message.clone());
            return answer::error(refusal.status, &refusal.message, &refusal.code, &[]);
        }
    };
    let streamed = body["stream"] == true;
    let asked = {
        let mut all = shared.asked.lock().unwrap();
        let asked = Asked { number: all.len() + 1, body };
        all.push(asked.clone());
        asked
    };
    (shared.script)(&asked).respond(&asked, streamed)
}
