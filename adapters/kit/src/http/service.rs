//! Where requests go, and sending one.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, ClientBuilder, Method, RequestBuilder, Response, Url};
use sandbox_bench_core::{Call, Error, ErrorKind, Result};
use secrecy::{ExposeSecret, SecretString};

use super::secrets;
use crate::wait::bounded;

/// Kept connections that nobody uses are closed after this: services and their proxies close theirs after a minute, and
/// a request on a connection that was just closed is lost.
const IDLE: Duration = Duration::from_secs(20);
/// Time to reach the service at all.
const CONNECT: Duration = Duration::from_secs(15);

/// One service: a base address and the headers of every request.
#[derive(Clone)]
pub struct Service {
    client: Client,
    base: Url,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

impl Service {
    /// The service at `base`, such as `https://app.example.com/api`. Redirects are not followed: they would carry the
    /// credentials elsewhere.
    ///
    /// # Errors
    /// `InvalidRequest` if `base` is no HTTP address, or has a user, query or fragment.
    pub fn new(base: &str, headers: HeaderMap) -> Result<Self> {
        Self::with_client(base, Client::builder().default_headers(headers))
    }

    /// As [`Service::new`], by HTTP/1.1 alone, whose connections can be upgraded.
    ///
    /// # Errors
    /// As [`Service::new`].
    pub fn http1(base: &str, headers: HeaderMap) -> Result<Self> {
        Self::with_client(base, Client::builder().default_headers(headers).http1_only())
    }

    fn with_client(base: &str, client: ClientBuilder) -> Result<Self> {
        if base.contains(['@', '?', '#']) {
            // It may hold a secret, and is not shown.
            return Err(Error::invalid("the address of a service cannot hold a user, a query or a fragment"));
        }
        let odd = |why: &str| Error::invalid(format!("{base:?} cannot be the address of a service: {why}"));
        let url = Url::parse(base.trim_end_matches('/')).map_err(|e| odd(&e.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(odd("it is not http:// or https://"));
        }
        let client = client
            .user_agent(concat!("sandbox-bench/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .pool_idle_timeout(IDLE)
            .connect_timeout(CONNECT)
            .build()
            .map_err(|e| Error::new(ErrorKind::Failed, "cannot make an HTTP client").because(e.without_url()))?;
        Ok(Self { client, base: url })
    }

    /// The base address.
    #[must_use]
    pub fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// A request for the path below the base that these segments make. Each is escaped: none can become two.
    pub fn request(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        self.client.request(method, url)
    }

    /// As [`Service::request`], with an address that the service itself gave out. It gets the same headers.
    pub fn request_at(&self, method: Method, url: Url) -> RequestBuilder {
        self.client.request(method, url)
    }
}

/// A header whose value no debug output shows and no [`super::Refusal`] repeats.
///
/// # Errors
/// `Credentials` if the value cannot be in a header.
pub fn secret_header(name: HeaderName, prefix: &str, secret: &SecretString) -> Result<(HeaderName, HeaderValue)> {
    secrets::remember(secret);
    let text = format!("{prefix}{}", secret.expose_secret().trim());
    let mut value = HeaderValue::from_str(&text)
        .map_err(|_| Error::new(ErrorKind::Credentials, "the credential holds characters that no header can hold"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Whether a request changes something at the service, and so whether it may be repeated when its answer is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It asks only, or doing it twice is the same as doing it once.
    Idempotent,
    /// Doing it twice is not the same as doing it once.
    Once,
}

/// Sends a request and waits for the head of the answer, whatever its status.
///
/// # Errors
/// `Cancelled`, `DeadlineExceeded`; `Unavailable` if nothing took effect or doing it again is the same; `Transport` if it
/// may have taken effect.
pub async fn send(call: &Call, what: &str, effect: Effect, request: RequestBuilder) -> Result<Response> {
    call.meter.api_call();
    bounded(call, what, request.send()).await?.map_err(|e| failed(what, effect, e))
}

/// What a failure of the connection means.
pub(super) fn failed(what: &str, effect: Effect, error: reqwest::Error) -> Error {
    let unsent = error.is_connect() || error.is_builder();
    let kind = match effect {
        Effect::Once if !unsent => ErrorKind::Transport,
        _ => ErrorKind::Unavailable,
    };
    // Of an address only this is shown: the rest may hold signatures.
    let service = error.url().filter(|_| unsent).and_then(|url| {
        let port = url.port_or_known_default()?;
        Some(format!("cannot connect to {}:{port}", url.host_str()?))
    });
    let error = error.without_url();
    let cause = root(&error).to_string();
    let out =
        Error::new(kind, format!("{what}: {}", service.as_deref().unwrap_or("the connection failed"))).because(cause);
    if unsent { out.hint("is the address right, and does the service answer from here?") } else { out }
}

fn root(error: &dyn StdError) -> &dyn StdError {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last
}
