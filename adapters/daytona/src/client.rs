//! The API: one method for each request that we make.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url};
use sandbox_bench_core::{Call, Error, ErrorKind, Result};
use sandbox_bench_kit::http::{Effect, Service, body, json, refused, secret_header, send};
use serde::de::DeserializeOwned;

use crate::account::{Account, Credential};
use crate::config::DaytonaConfig;
use crate::error::No;
use crate::wire::{
    CLIENT_VERSION, CreateSandbox, CreateSnapshot, Located, SandboxObject, SnapshotObject, SnapshotSandbox,
};

/// Most bytes of an answer. Lists have 100 entries, each with labels.
const ANSWER_LIMIT: usize = 32 << 20;
/// Time for a request that asks for something small.
pub(crate) const ASK_LIMIT: Duration = Duration::from_secs(30);

/// The platform, as one account sees it.
pub(crate) struct Client {
    api: Service,
    /// Requests into sandboxes, by HTTP/1.1 alone, whose connections can become WebSockets.
    pub(crate) toolbox: Service,
    pub(crate) target: Option<String>,
    pub(crate) config: DaytonaConfig,
    /// Ids of sandboxes that this process created and has not seen to be gone: lists lag behind.
    journal: Mutex<BTreeSet<String>>,
}

/// A refusal is an answer too.
pub(crate) type Answer<T> = std::result::Result<T, No>;

impl Client {
    /// # Errors
    /// `InvalidRequest` for an address that is none, `Credentials` for a credential that no header can hold.
    pub(crate) fn new(account: &Account, config: &DaytonaConfig) -> Result<Self> {
        let headers = headers(&account.credential)?;
        Ok(Self {
            api: Service::new(&account.api_url, headers.clone())?,
            toolbox: Service::http1(&account.api_url, headers)?,
            target: account.target.clone(),
            config: config.clone(),
            journal: Mutex::default(),
        })
    }

    /// The base address of the API.
    pub(crate) fn base(&self) -> &str {
        self.api.base()
    }

    /// Ids of sandboxes that this process created and has not seen to be gone.
    pub(crate) fn journal(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `GET` of the path of these segments.
    pub(crate) async fn get<T: DeserializeOwned>(&self, call: &Call, what: &str, path: &[&str]) -> Result<T> {
        self.query(call, what, path, &[]).await
    }

    /// `GET` with a query.
    pub(crate) async fn query<T: DeserializeOwned>(
        &self,
        call: &Call,
        what: &str,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T> {
        let request = self.api.request(Method::GET, path).query(query);
        let answer = ask(call, what, Effect::Idempotent, request).await?;
        answer.map_err(|no| no.error(what, Effect::Idempotent))
    }

    /// `GET`, with the head of the answer: for the clock.
    pub(crate) async fn head(
        &self,
        call: &Call,
        what: &str,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Response> {
        let answer = send(call, what, Effect::Idempotent, self.api.request(Method::GET, path).query(query)).await?;
        accepted(call, what, answer).await?.map_err(|no| no.error(what, Effect::Idempotent))
    }

    /// The sandbox of this id or name.
    pub(crate) async fn sandbox(&self, call: &Call, id: &str) -> Result<SandboxObject> {
        self.get(call, &format!("sandbox {id}"), &["sandbox", id]).await
    }

    /// `POST /sandbox`. From a snapshot the server answers when the sandbox has started, but after 30 s at the latest.
    pub(crate) async fn create(&self, call: &Call, what: &str, body: &CreateSandbox) -> Result<Answer<SandboxObject>> {
        ask(call, what, Effect::Once, self.api.request(Method::POST, &["sandbox"]).json(body)).await
    }

    /// `DELETE /sandbox/{id}`; the sandbox goes later.
    pub(crate) async fn delete(&self, call: &Call, what: &str, id: &str) -> Result<Answer<()>> {
        acknowledged(call, what, Effect::Idempotent, self.api.request(Method::DELETE, &["sandbox", id])).await
    }

    /// Kills everything in a sandbox; one that is deleted when it stops is deleted.
    pub(crate) async fn stop(&self, call: &Call, what: &str, id: &str) -> Result<Answer<()>> {
        let request = self.api.request(Method::POST, &["sandbox", id, "stop"]).query(&[("force", "true")]);
        acknowledged(call, what, Effect::Idempotent, request).await
    }

    /// Where the build log of a sandbox or of a snapshot (`kind`: `sandbox`, `snapshots`) is.
    pub(crate) async fn build_log_url(&self, call: &Call, kind: &str, id: &str) -> Result<Url> {
        let what = format!("build log of {id}");
        let located: Located = self.get(call, &what, &[kind, id, "build-logs-url"]).await?;
        Url::parse(&located.url)
            .map_err(|e| Error::new(ErrorKind::Failed, format!("{what}: not an address")).because(e))
    }

    /// A `GET` of an address that the API gave out.
    pub(crate) fn follow(&self, url: Url) -> RequestBuilder {
        self.api.request_at(Method::GET, url).query(&[("follow", "true")])
    }

    /// The snapshot of this id or name.
    pub(crate) async fn snapshot(&self, call: &Call, id: &str) -> Result<SnapshotObject> {
        self.get(call, &format!("artifact {id}"), &["snapshots", id]).await
    }

    /// `POST /snapshots`
    pub(crate) async fn build_snapshot(
        &self,
        call: &Call,
        what: &str,
        body: &CreateSnapshot,
    ) -> Result<Answer<SnapshotObject>> {
        ask(call, what, Effect::Once, self.api.request(Method::POST, &["snapshots"]).json(body)).await
    }

    /// `POST /sandbox/{id}/snapshot`
    pub(crate) async fn save(
        &self,
        call: &Call,
        what: &str,
        id: &str,
        body: &SnapshotSandbox<'_>,
    ) -> Result<Answer<()>> {
        let request = self.api.request(Method::POST, &["sandbox", id, "snapshot"]).json(body);
        acknowledged(call, what, Effect::Once, request).await
    }

    /// Makes a snapshot that nobody used for long usable again.
    pub(crate) async fn activate(&self, call: &Call, what: &str, id: &str) -> Result<Answer<()>> {
        let request = self.api.request(Method::POST, &["snapshots", id, "activate"]);
        acknowledged(call, what, Effect::Idempotent, request).await
    }

    /// `DELETE /snapshots/{id}`, by id only.
    pub(crate) async fn delete_snapshot(&self, call: &Call, what: &str, id: &str) -> Result<Answer<()>> {
        acknowledged(call, what, Effect::Idempotent, self.api.request(Method::DELETE, &["snapshots", id])).await
    }
}

fn headers(credential: &Credential) -> Result<HeaderMap> {
    let bearer = match credential {
        Credential::Key(secret) | Credential::Token { token: secret, .. } => secret,
    };
    let mut headers = HeaderMap::from_iter([
        secret_header(AUTHORIZATION, "Bearer ", bearer)?,
        (HeaderName::from_static("x-daytona-source"), HeaderValue::from_static("sandbox-bench")),
        (HeaderName::from_static("x-daytona-sdk-version"), HeaderValue::from_static(CLIENT_VERSION)),
    ]);
    if let Credential::Token { organization, .. } = credential {
        let value = HeaderValue::from_str(organization.trim())
            .map_err(|_| Error::new(ErrorKind::Credentials, "DAYTONA_ORGANIZATION_ID is not an id"))?;
        headers.insert("x-daytona-organization-id", value);
    }
    Ok(headers)
}

/// Sends a request and reads the answer.
pub(crate) async fn ask<T: DeserializeOwned>(
    call: &Call,
    what: &str,
    effect: Effect,
    request: RequestBuilder,
) -> Result<Answer<T>> {
    match accepted(call, what, send(call, what, effect, request).await?).await? {
        Ok(answer) => Ok(Ok(json(call, what, effect, answer, ANSWER_LIMIT).await?)),
        Err(no) => Ok(Err(no)),
    }
}

/// Sends a request whose answer says no more than that it was accepted.
pub(crate) async fn acknowledged(
    call: &Call,
    what: &str,
    effect: Effect,
    request: RequestBuilder,
) -> Result<Answer<()>> {
    match accepted(call, what, send(call, what, effect, request).await?).await? {
        Ok(answer) => {
            // Read to its end, so that the connection can be used again. What it says does not matter.
            let _ = body(call, what, effect, answer, ANSWER_LIMIT).await;
            Ok(Ok(()))
        }
        Err(no) => Ok(Err(no)),
    }
}

/// Tells a refusal from an answer.
pub(crate) async fn accepted(call: &Call, what: &str, answer: Response) -> Result<Answer<Response>> {
    if answer.status().is_success() || answer.status().as_u16() == 101 {
        return Ok(Ok(answer));
    }
    Ok(Err(No::new(refused(call, what, answer).await)))
}

/// An id or name that can be part of an address; the platform's own, and names of snapshots.
///
/// # Errors
/// `InvalidRequest`.
pub(crate) fn checked<'a>(kind: &str, id: &'a str) -> Result<&'a str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+".contains(c);
    if !id.is_empty()
        && id.len() <= 255
        && id.chars().all(legal)
        && !id.starts_with(['.', '/', '-'])
        && !id.contains("..")
    {
        return Ok(id);
    }
    let shown: String = id.chars().take(80).collect();
    Err(Error::invalid(format!("{shown:?} cannot be the id of {kind}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_could_lead_elsewhere_are_refused() {
        for id in ["8f2b6e0c-1111-4222-8333-944455566677", "sbx-a--b.0f", "daytona-small", "sha256:00", "org/name:1"] {
            assert!(checked("a sandbox", id).is_ok(), "{id}");
        }
        for id in ["", ".", "..", "../x", "a/../b", "/", "a b", "a?b", "a\0", "ü", "-f", "*", "%2e"] {
            assert!(checked("a sandbox", id).is_err(), "{id}");
        }
    }
}
