//! The way into a MicroVM: its endpoint, and the tokens that open it.

use std::time::Duration;

use aws_sdk_lambdamicrovms::types::PortSpecification;
use reqwest::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder};
use sandbox_bench_core::{Call, Error, ErrorKind, Result};
use sandbox_bench_kit::http::{Effect, Service, secret_header};
use sandbox_bench_kit::wait::bounded;
use secrecy::SecretString;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::cloud::{Cloud, ask};

/// The port that the proxy speaks to.
const PORT: HeaderName = HeaderName::from_static("x-aws-proxy-port");

/// One MicroVM's endpoint. HTTP/1.1 alone: over HTTP/2 the vendor's proxy takes uploads at a fraction of the speed.
#[derive(Debug)]
pub(crate) struct Proxy {
    service: Service,
    host: Option<HeaderValue>,
    port: HeaderValue,
    token: Mutex<Option<Token>>,
}

#[derive(Debug)]
struct Token {
    headers: HeaderMap,
    /// When it is to be replaced: at four fifths of its life.
    renew: Instant,
}

impl Proxy {
    /// The endpoint that the service named, reached as the settings say.
    ///
    /// # Errors
    /// `InvalidRequest` if it is no address.
    pub(crate) fn new(cloud: &Cloud, endpoint: &str) -> Result<Self> {
        let bare = endpoint.trim_start_matches("https://").trim_start_matches("http://");
        let (base, host) = match &cloud.settings.data_plane_url {
            Some(base) => (base.clone(), Some(bare)),
            None if bare != endpoint => (endpoint.to_owned(), None),
            None => (format!("https://{endpoint}"), None),
        };
        let odd = |_| Error::new(ErrorKind::Failed, format!("{endpoint:?} cannot be an endpoint"));
        Ok(Self {
            service: Service::http1(&base, HeaderMap::new())?,
            host: host.map(HeaderValue::from_str).transpose().map_err(odd)?,
            port: HeaderValue::from(cloud.settings.port),
            token: Mutex::default(),
        })
    }

    /// A request for this path, with a token that is good for a while.
    ///
    /// # Errors
    /// Those of the service when it is asked for a token.
    pub(crate) async fn request(
        &self,
        cloud: &Cloud,
        call: &Call,
        id: &str,
        (method, path): (Method, &[&str]),
    ) -> Result<RequestBuilder> {
        let what = format!("MicroVM {id}: token");
        let mut token = bounded(call, &what, self.token.lock()).await?;
        let headers = match token.as_ref().filter(|token| Instant::now() < token.renew) {
            Some(token) => token.headers.clone(),
            None => token.insert(mint(cloud, call, id, &what).await?).headers.clone(),
        };
        drop(token);
        let mut request = self.service.request(method, path).headers(headers).header(PORT, self.port.clone());
        if let Some(host) = &self.host {
            request = request.header(HOST, host.clone());
        }
        Ok(request)
    }

    /// Forgets the token: the proxy did not take it.
    pub(crate) async fn forget(&self) {
        *self.token.lock().await = None;
    }
}

async fn mint(cloud: &Cloud, call: &Call, id: &str, what: &str) -> Result<Token> {
    let minutes = cloud.settings.token_minutes;
    let request = cloud
        .lambda
        .create_microvm_auth_token()
        .microvm_identifier(id)
        .expiration_in_minutes(i32::try_from(minutes).unwrap_or(60))
        .allowed_ports(PortSpecification::Port(i32::from(cloud.settings.port)));
    let renew = Instant::now() + Duration::from_secs(u64::from(minutes) * 60) * 4 / 5;
    let minted = ask(call, what, Effect::Idempotent, request.send()).await?;
    let mut headers = HeaderMap::new();
    for (name, value) in minted.auth_token {
        let odd = |_| Error::new(ErrorKind::Failed, format!("{what}: it is to be sent in a header that cannot be one"));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(odd)?;
        let (name, value) = secret_header(name, "", &SecretString::from(value))?;
        headers.insert(name, value);
    }
    if headers.is_empty() {
        return Err(Error::new(ErrorKind::Failed, format!("{what}: the service gave none")));
    }
    Ok(Token { headers, renew })
}
