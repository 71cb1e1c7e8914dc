//! The connection to one engine: how it was found, what it is, and requests that are bounded and counted.

use std::future::Future;
use std::time::Duration;

use bollard::errors::Error as EngineError;
use bollard::models::SystemInfo;
use bollard::{API_DEFAULT_VERSION, Docker};
use sandbox_bench_core::{Call, Error, ErrorKind, Result};
use sandbox_bench_kit::wait::bounded;

use crate::config::DockerConfig;
use crate::error;

/// The client's own limit for an answer to begin. Every call has its own, shorter deadline; this one must not cut it.
const ANSWER_LIMIT_SECONDS: u64 = 7 * 24 * 3600;
/// Time for one engine to say who it is when several places are tried.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// One engine.
pub(crate) struct Engine {
    /// The client. Each request has a connection of its own: over a local socket that costs less than 0.1 ms, and no
    /// request is ever lost to a kept connection that the engine has just closed.
    pub(crate) docker: Docker,
    /// Where it is.
    pub(crate) endpoint: String,
    /// What it said about itself when we connected.
    pub(crate) system: SystemInfo,
    /// Its settings.
    pub(crate) config: DockerConfig,
}

impl Engine {
    /// Finds and asks the engine.
    ///
    /// # Errors
    /// `Unavailable` or `Credentials`, with what was tried.
    pub(crate) async fn connect(config: &DockerConfig, call: &Call) -> Result<Self> {
        let hosts = config.hosts(|name| std::env::var(name).ok());
        let mut last = Error::new(ErrorKind::Unavailable, "no Docker engine found")
            .hint("start Docker or Podman, or say where it is with DOCKER_HOST");
        for host in hosts {
            match Self::open(&host, config, &call.within(PROBE_LIMIT)).await {
                Ok(engine) => return Ok(engine),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn open(host: &str, config: &DockerConfig, call: &Call) -> Result<Self> {
        let what = format!("asking the engine at {host}{}", config.named_by(|name| std::env::var(name).ok()));
        let docker = client(host, &what)?;
        let docker = request(call, &what, docker.negotiate_version()).await?;
        let system = request(call, &what, docker.info()).await?;
        Ok(Self { docker, endpoint: host.to_owned(), system, config: config.clone() })
    }
}

fn client(host: &str, what: &str) -> Result<Docker> {
    let hint = match host.split_once("://").map(|(scheme, _)| scheme) {
        Some("tcp" | "http") => {
            let client = Docker::connect_with_http(host, ANSWER_LIMIT_SECONDS, API_DEFAULT_VERSION);
            return client.map_err(|e| error::map(what, e));
        }
        Some("unix") => {
            let client = Docker::connect_with_unix(host, ANSWER_LIMIT_SECONDS, API_DEFAULT_VERSION);
            return client.map_err(|e| error::map(what, e));
        }
        Some("ssh") => {
            "SSH is not spoken here: forward the socket with `ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST`, \
             and set DOCKER_HOST=unix:///tmp/docker.sock"
        }
        Some("https") => "TLS is not spoken here: forward the engine's socket by SSH, and name it as unix:///path",
        _ => "write unix:///path/to/docker.sock or tcp://host:port",
    };
    Err(Error::invalid(format!("{what}: an address of this kind is not supported")).hint(hint))
}

/// Sends one request: counted, and given up at the call's deadline or cancellation.
pub(crate) async fn request<T>(
    call: &Call,
    what: &str,
    request: impl Future<Output = Result<T, EngineError>>,
) -> Result<T> {
    raw_request(call, what, request).await?.map_err(|e| error::map(what, e))
}

/// As [`request`], for callers that look at the engine's answer themselves.
pub(crate) async fn raw_request<T>(
    call: &Call,
    what: &str,
    request: impl Future<Output = Result<T, EngineError>>,
) -> Result<Result<T, EngineError>> {
    call.meter.api_call();
    bounded(call, what, request).await
}

/// Checks that `id` can stand in a request path.
///
/// # Errors
/// `InvalidRequest`.
pub(crate) fn checked<'a>(what: &str, id: &'a str) -> Result<&'a str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._/:@-".contains(&b);
    let named = id.split('/').all(|part| part.bytes().any(|b| b.is_ascii_alphanumeric()));
    let ok = named && id.len() <= 512 && id.bytes().all(plain) && !id.contains("..");
    if ok { Ok(id) } else { Err(Error::invalid(format!("{id:?} cannot be the name of {what}"))) }
}

/// The first characters of a container or image id, as the engine's own tools show it.
pub(crate) fn short(id: &str) -> &str {
    let id = id.strip_prefix("sha256:").unwrap_or(id);
    id.get(..12).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_that_cannot_be_used_are_refused_with_the_way_out() {
        for (host, says) in [
            ("ssh://me@host", "ssh -nNT -L"),
            ("https://host:2376", "TLS is not spoken"),
            ("npipe:////./pipe/docker_engine", "unix:///path"),
            ("docker.sock", "tcp://host:port"),
        ] {
            let error = client(host, "x").map(drop).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::InvalidRequest) && error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn names_that_would_change_the_request_are_refused() {
        for good in ["debian:bookworm-slim", "ghcr.io/a/b@sha256:00", "localhost:5000/x", "sha256:0f"] {
            assert!(checked("an image", good).is_ok(), "{good}");
        }
        for bad in ["", "a?force=1", "a b", "../x", "/x", ".", "a/.", "a//b", "_", "a#b", "ä"] {
            assert!(checked("an image", bad).is_err(), "{bad}");
        }
    }
}
