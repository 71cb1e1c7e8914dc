//! Requests to the service: addressed, bounded, counted, and with errors that say what to do. REPLACE the paths.

use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::{Method, RequestBuilder};
use sandbox_bench_core::{Call, Result};
use sandbox_bench_kit::http::{Effect, Service, ask, json, secret_header};
use serde::de::DeserializeOwned;

use crate::config::Access;
use crate::error;
use crate::wire::{Account, Items, Sandbox, Snapshot};

/// The API generation in use, the first part of every path.
pub(crate) const GENERATION: &str = "v1";
/// Most bytes of one JSON answer.
const ANSWER_LIMIT: usize = 16 << 20;

/// The service, as one account sees it.
#[derive(Debug)]
pub(crate) struct Api(Service);

impl Api {
    /// # Errors
    /// `InvalidRequest` for an address that is none, `Credentials` for a key that cannot be sent.
    pub(crate) fn new(access: &Access) -> Result<Self> {
        let headers = HeaderMap::from_iter([secret_header(AUTHORIZATION, "Bearer ", &access.key)?]);
        Service::new(&access.url, headers).map(Self)
    }

    /// Where requests go.
    pub(crate) fn endpoint(&self) -> &str {
        self.0.base()
    }

    /// A request for this path.
    pub(crate) fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        self.0.request(method, &[&[GENERATION], path].concat())
    }

    /// A request about a sandbox.
    pub(crate) fn of(&self, method: Method, name: &str, path: &[&str]) -> RequestBuilder {
        self.request(method, &[&["sandboxes", name], path].concat())
    }

    pub(crate) async fn account(&self, call: &Call) -> Result<Account> {
        answer(call, "account", Effect::Idempotent, self.request(Method::GET, &["account"])).await
    }

    /// The sandbox of this name, in whatever state; none if there is none.
    pub(crate) async fn sandbox(&self, call: &Call, name: &str) -> Result<Option<Sandbox>> {
        self.look(call, &format!("sandbox {name}"), &["sandboxes", name]).await
    }

    /// All sandboxes whose names begin with `prefix`. REPLACE: most lists have pages, and lag behind.
    pub(crate) async fn sandboxes(&self, call: &Call, prefix: &str) -> Result<Vec<Sandbox>> {
        self.list(call, "sandboxes", prefix).await
    }

    /// The snapshot of this name; none if there is none.
    pub(crate) async fn snapshot(&self, call: &Call, name: &str) -> Result<Option<Snapshot>> {
        self.look(call, &format!("snapshot {name}"), &["snapshots", name]).await
    }

    /// All snapshots whose names begin with `prefix`.
    pub(crate) async fn snapshots(&self, call: &Call, prefix: &str) -> Result<Vec<Snapshot>> {
        self.list(call, "snapshots", prefix).await
    }

    async fn look<T: DeserializeOwned>(&self, call: &Call, what: &str, path: &[&str]) -> Result<Option<T>> {
        match ask(call, what, Effect::Idempotent, self.request(Method::GET, path)).await? {
            Ok(answer) => json(call, what, Effect::Idempotent, answer, ANSWER_LIMIT).await.map(Some),
            Err(refusal) if refusal.status == 404 => Ok(None),
            Err(refusal) => Err(error::refused(what, Effect::Idempotent, &refusal)),
        }
    }

    async fn list<T: DeserializeOwned>(&self, call: &Call, kind: &str, prefix: &str) -> Result<Vec<T>> {
        let request = self.request(Method::GET, &[kind]).query(&[("prefix", prefix)]);
        answer::<Items<T>>(call, kind, Effect::Idempotent, request).await.map(|list| list.items)
    }
}

/// The answer as JSON.
///
/// # Errors
/// Those of the connection, and what the service refused with.
pub(crate) async fn answer<T: DeserializeOwned>(
    call: &Call,
    what: &str,
    effect: Effect,
    request: RequestBuilder,
) -> Result<T> {
    match ask(call, what, effect, request).await? {
        Ok(answer) => json(call, what, effect, answer, ANSWER_LIMIT).await,
        Err(refusal) => Err(error::refused(what, effect, &refusal)),
    }
}
