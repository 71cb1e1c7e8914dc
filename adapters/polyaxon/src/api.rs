//! Requests to the API of one project.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, Url};
use sandbox_bench_core::{Call, Result};
use sandbox_bench_kit::http::{self, Effect, Service};
use serde::de::DeserializeOwned;

use crate::config::PolyaxonConfig;
use crate::error;
use crate::settings::Settings;
use crate::wire::{Namespace, Run, Statuses};

/// Most bytes of an answer that is JSON, unpacked: lists are compressed whenever that makes them smaller.
const ANSWER_LIMIT: usize = 16 << 20;

/// One project of an installation.
#[derive(Debug)]
pub(crate) struct Api {
    service: Service,
    pub(crate) owner: String,
    pub(crate) project: String,
    pub(crate) config: PolyaxonConfig,
}

impl Api {
    /// The project that `settings` names. Sends nothing.
    ///
    /// # Errors
    /// `InvalidRequest` if the host is no HTTP address.
    pub(crate) fn new(settings: &Settings, config: &PolyaxonConfig) -> Result<Self> {
        let service = Service::new(&settings.host, settings.headers.clone())?;
        let (owner, project) = (settings.owner.clone(), settings.project.clone());
        Ok(Self { service, owner, project, config: config.clone() })
    }

    /// The address of the installation.
    pub(crate) fn host(&self) -> &str {
        self.service.base()
    }

    /// Longest pause between two looks at a status.
    pub(crate) fn poll(&self) -> Duration {
        Duration::from_millis(self.config.poll_ms.clamp(10, 60_000))
    }

    /// A request for `/api/v1/{segments}`.
    pub(crate) fn request(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        self.service.request(method, &[&["api", "v1"], segments].concat())
    }

    /// A request for something of the project.
    pub(crate) fn of_project(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        self.request(method, &[&[self.owner.as_str(), &self.project], segments].concat())
    }

    /// A request for something of a run.
    pub(crate) fn of_run(&self, method: Method, run: &str, segments: &[&str]) -> RequestBuilder {
        self.of_project(method, &[&["runs", run], segments].concat())
    }

    /// A request to the daemon in a run's main container, through the gateway.
    pub(crate) fn of_sandbox(
        &self,
        method: Method,
        (namespace, run): (&str, &str),
        segments: &[&str],
    ) -> RequestBuilder {
        let base = ["sandbox", "v1", namespace, &self.owner, &self.project, "runs", run];
        self.service.request(method, &[&base, segments].concat())
    }

    /// A request to the store of a run's artifacts.
    pub(crate) fn of_store(&self, method: Method, run: (&str, &str), segments: &[&str]) -> RequestBuilder {
        self.service.request(method, &[&self.in_store(run)[..], segments].concat())
    }

    /// As [`Api::of_store`], with a POST to the agent at `base`.
    pub(crate) fn of_store_at(&self, mut base: Url, run: (&str, &str), segments: &[&str]) -> RequestBuilder {
        if let Ok(mut path) = base.path_segments_mut() {
            path.pop_if_empty().extend(self.in_store(run)).extend(segments);
        }
        self.service.request_at(Method::POST, base)
    }

    fn in_store<'a>(&'a self, (namespace, run): (&'a str, &'a str)) -> [&'a str; 7] {
        ["streams", "v1", namespace, &self.owner, &self.project, "runs", run]
    }

    /// The run as the API sees it now.
    ///
    /// # Errors
    /// `NotFound`, also for an id that no run can have.
    pub(crate) async fn run(&self, call: &Call, run: &str) -> Result<Run> {
        let what = format!("run {}", error::short(run));
        if !is_run(run) {
            let message = format!("{what:?} is not a run: no run has such an id");
            return Err(sandbox_bench_core::Error::new(sandbox_bench_core::ErrorKind::NotFound, message));
        }
        ask(call, &what, Effect::Idempotent, self.of_run(Method::GET, run, &[])).await
    }

    /// The history of a run's statuses.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) async fn statuses(&self, call: &Call, run: &str) -> Result<Statuses> {
        let what = format!("run {}: statuses", error::short(run));
        ask(call, &what, Effect::Idempotent, self.of_run(Method::GET, run, &["statuses"])).await
    }

    /// The Kubernetes namespace of a run, which is part of its gateway's path.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) async fn namespace(&self, call: &Call, run: &Run) -> Result<String> {
        if let Some(namespace) = run.settings.as_ref().and_then(|settings| settings.namespace.clone()) {
            return Ok(namespace);
        }
        let what = format!("run {}: namespace", error::short(&run.uuid));
        let answer: Namespace =
            ask(call, &what, Effect::Idempotent, self.of_run(Method::GET, &run.uuid, &["namespace"])).await?;
        Ok(answer.namespace)
    }

    /// Asks for something that is the same done once or twice, and whose answer says nothing more.
    ///
    /// # Errors
    /// What it was refused with.
    pub(crate) async fn tell(&self, call: &Call, run: &str, verb: &str) -> Result<()> {
        let what = format!("run {}: {verb}", error::short(run));
        accepted(call, &what, Effect::Idempotent, self.of_run(Method::POST, run, &[verb])).await.map(drop)
    }
}

/// Whether an id can be that of a run: 32 hexadecimal digits.
pub(crate) fn is_run(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Sends a request; its answer says yes.
///
/// # Errors
/// As [`http::send`]; what it was refused with.
pub(crate) async fn accepted(call: &Call, what: &str, effect: Effect, request: RequestBuilder) -> Result<Response> {
    let answer = http::send(call, what, effect, request).await?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    Err(error::refused(what, effect, &http::refused(call, what, answer).await))
}

/// As [`accepted`], and reads the answer as JSON.
///
/// # Errors
/// As [`accepted`] and [`http::json`].
pub(crate) async fn ask<T: DeserializeOwned>(
    call: &Call,
    what: &str,
    effect: Effect,
    request: RequestBuilder,
) -> Result<T> {
    let answer = accepted(call, what, effect, request).await?;
    http::json(call, what, effect, answer, ANSWER_LIMIT).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_32_hexadecimal_digits_name_a_run() {
        assert!(is_run("cf3ef5624eb1458fafc1f869f4441c6c"));
        for odd in
            ["", "..", "cf3ef562-4eb1-458f-afc1-f869f4441c6c", "cf3ef5624eb1458fafc1f869f4441c6/", &"0".repeat(64)]
        {
            assert!(!is_run(odd), "{odd}");
        }
    }
}
