//! The files of a run: where its artifacts are, and sending one there.

use std::path::Path;

use reqwest::multipart::{Form, Part};
use reqwest::{Body, Method, RequestBuilder, Url};
use sandbox_bench_core::{Call, Error, Result};
use sandbox_bench_kit::http::Effect;
use tokio::fs::File;

use super::wire::{TrackedSettings, Upload};
use crate::api::{Api, accepted};

/// Where the artifacts of a run are.
#[derive(Debug, Clone)]
pub(super) struct Store {
    namespace: String,
    /// The address of its agent, where it has one of its own.
    agent: Option<Url>,
    connection: Option<String>,
}

impl Store {
    /// As the run's settings have it.
    ///
    /// # Errors
    /// `InvalidRequest` if the token would go over an open network.
    pub(super) fn new(namespace: String, settings: Option<TrackedSettings>) -> Result<Self> {
        let TrackedSettings { agent, artifacts_store, .. } = settings.unwrap_or_default();
        let named = agent.and_then(|agent| agent.url).filter(|url| !url.is_empty());
        let agent = named.map(|url| address(&url)).transpose()?;
        Ok(Self { namespace, agent, connection: artifacts_store.and_then(|store| store.name) })
    }

    /// Keeps a file in `directory` under `name`.
    ///
    /// # Errors
    /// What it was refused with.
    pub(super) async fn keep(
        &self,
        api: &Api,
        call: &Call,
        (run, directory, name): (&str, &str, &str),
        (body, size): (Body, u64),
    ) -> Result<()> {
        let upload = Upload { untar: false, path: directory, overwrite: true, connection: self.connection.as_deref() };
        let how = serde_json::to_string(&upload).map_err(|e| Error::invalid(format!("upload of {name}")).because(e))?;
        let part = Part::stream_with_length(body, size).file_name(name.to_owned());
        let form = Form::new().text("json", how).part("upload_file", part);
        let what = format!("run {}: upload of {directory}/{name}", crate::error::short(run));
        let request = self.request(api, run, "artifact").multipart(form);
        accepted(call, &what, Effect::Idempotent, request).await?;
        call.meter.sent(size);
        Ok(())
    }

    fn request(&self, api: &Api, run: &str, last: &str) -> RequestBuilder {
        match &self.agent {
            Some(agent) => api.of_store_at(agent.clone(), (&self.namespace, run), &[last]),
            None => api.of_store(Method::POST, (&self.namespace, run), &[last]),
        }
    }
}

/// The address of an agent, to which the token is sent too: the installation itself gives it out.
fn address(url: &str) -> Result<Url> {
    let odd = |why: &str| Error::invalid(format!("the run's agent is at an address that cannot be used: {why}"));
    let url = Url::parse(url).map_err(|e| odd(&e.to_string()))?;
    match url.scheme() {
        "https" if url.has_host() => Ok(url),
        "http" if matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")) => Ok(url),
        _ => Err(odd("it is not https://")),
    }
}

/// The content of a file, streamed.
///
/// # Errors
/// It cannot be read.
pub(super) async fn content(path: &Path) -> Result<(Body, u64)> {
    let unread = |e: std::io::Error| Error::invalid(format!("{} cannot be read", path.display())).because(e);
    let file = File::open(path).await.map_err(unread)?;
    let size = file.metadata().await.map_err(unread)?.len();
    Ok((Body::from(file), size))
}
