//! Requests to the hub: addresses, credentials, redirects, statuses.

use std::future::Future;
use std::time::Duration;

use reqwest::header::{
    AUTHORIZATION, CONTENT_LENGTH, ETAG, HeaderMap, HeaderValue, LINK, LOCATION, RANGE, RETRY_AFTER,
};
use reqwest::{Client, Method, Response, StatusCode, Url, redirect};
use sandbox_bench_core::Digest;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use tokio::time::Instant;

use super::error::{Failure, FetchError};
use super::{FetchSpec, endpoint};

/// Redirects that are followed for one request.
const MAX_REDIRECTS: u32 = 5;

/// Pages of a listing that are read; the hub puts 1000 entries on one.
const MAX_PAGES: u32 = 200;

/// The largest page of a listing in bytes.
const MAX_PAGE_BYTES: usize = 16 << 20;

/// Tries in a row that may bring nothing.
pub(super) const MAX_TRIES: u32 = 5;

/// The longest wait that the hub may ask for.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// One data set on a hub.
pub(super) struct Hub {
    client: Client,
    endpoint: Url,
    dataset: Vec<String>,
    revision: String,
    authorization: Option<HeaderValue>,
    deadline: Instant,
}

/// What the hub says of a file before it is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileFacts {
    /// Changes when the content changes.
    pub(super) etag: String,
    pub(super) size: Option<u64>,
    pub(super) commit: Option<String>,
}

impl FileFacts {
    /// The SHA-256 of the content: files in large-file storage have it as their tag.
    pub(super) fn digest(&self) -> Option<Digest> {
        (self.etag.len() == 64).then(|| self.etag.parse().ok()).flatten()
    }
}

#[derive(Deserialize)]
struct ListedFile {
    r#type: String,
    path: String,
}

impl Hub {
    pub(super) fn new(spec: &FetchSpec, deadline: Instant) -> Result<Self, FetchError> {
        let plain = |part: &str| {
            !part.is_empty()
                && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
                && !part.starts_with('.')
        };
        let dataset: Vec<String> = spec.dataset.split('/').map(str::to_owned).collect();
        if dataset.len() > 2 || !dataset.iter().all(|part| plain(part)) {
            let what = format!("{:?} is no data set of the form owner/name", spec.dataset);
            return Err(FetchError::InvalidSpec(what));
        }
        let authorization = spec.token.as_ref().map(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
                .map_err(|_| FetchError::InvalidSpec("HF_TOKEN is no token: it has odd characters".to_owned()))?;
            value.set_sensitive(true);
            Ok(value)
        });
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(Duration::from_secs(20))
            .read_timeout(Duration::from_secs(60))
            .user_agent(concat!("sandbox-bench/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| FetchError::InvalidSpec(format!("no HTTP client can be made: {}", error.without_url())))?;
        Ok(Self {
            client,
            endpoint: endpoint(&spec.endpoint, spec.token.is_some())?,
            dataset,
            revision: spec.revision.clone(),
            authorization: authorization.transpose()?,
            deadline,
        })
    }

    /// Waits for something, but not past the deadline.
    pub(super) async fn within<T>(&self, path: &str, future: impl Future<Output = T>) -> Result<T, FetchError> {
        let late = |_| FetchError::Deadline { path: path.to_owned() };
        tokio::time::timeout_at(self.deadline, future).await.map_err(late)
    }

    /// What the hub says of a file.
    pub(super) async fn facts(&self, path: &str) -> Result<FileFacts, Failure> {
        let response = self.request(Method::HEAD, self.file_url(path)?, path, None).await?;
        let header = |name: &str| text(response.headers(), name);
        let etag = header("x-linked-etag").or_else(|| header(ETAG.as_str())).unwrap_or_default();
        let etag = etag.trim_start_matches("W/").trim_matches('"').to_owned();
        let size = header("x-linked-size").or_else(|| header(CONTENT_LENGTH.as_str()));
        Ok(FileFacts { etag, size: size.and_then(|size| size.parse().ok()), commit: header("x-repo-commit") })
    }

    /// Asks for a file from this byte on.
    pub(super) async fn file(&self, path: &str, from: u64) -> Result<Response, Failure> {
        self.request(Method::GET, self.file_url(path)?, path, (from > 0).then_some(from)).await
    }

    /// The paths of all files.
    pub(super) async fn list(&self, backoff: Duration) -> Result<Vec<String>, FetchError> {
        let what = "the listing";
        let mut url = self.url(&["api", "datasets"], &["tree", &self.revision])?;
        url.query_pairs_mut().append_pair("recursive", "true");
        let mut paths = Vec::new();
        for _ in 0..MAX_PAGES {
            let (files, next) = self.persistently(what, backoff, || self.page(url.clone())).await?;
            paths.extend(files.into_iter().filter(|file| file.r#type == "file").map(|file| file.path));
            match next {
                Some(next) => url = next,
                None => return Ok(paths),
            }
        }
        Err(FetchError::Protocol { path: what.to_owned(), what: format!("has more than {MAX_PAGES} pages") })
    }

    async fn page(&self, url: Url) -> Result<(Vec<ListedFile>, Option<Url>), Failure> {
        let what = "the listing";
        let protocol = |why: &str| FetchError::Protocol { path: what.to_owned(), what: why.to_owned() };
        let mut response = self.request(Method::GET, url, what, None).await?;
        let next = text(response.headers(), LINK.as_str()).and_then(|link| next_page(&link));
        let next =
            next.map(|next| Url::parse(&next)).transpose().map_err(|_| protocol("its next page has no address"))?;
        if next.as_ref().is_some_and(|next| next.origin() != self.endpoint.origin()) {
            return Err(protocol("its next page is on another host").into());
        }
        let mut body = Vec::new();
        while let Some(chunk) = self.within(what, response.chunk()).await?.map_err(passing)? {
            if body.len() + chunk.len() > MAX_PAGE_BYTES {
                return Err(protocol("a page is larger than 16 MiB").into());
            }
            body.extend_from_slice(&chunk);
        }
        let files = serde_json::from_slice(&body).map_err(|_| protocol("it is not the expected JSON"))?;
        Ok((files, next))
    }

    /// Repeats what fails in passing, with growing waits.
    pub(super) async fn persistently<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        path: &str,
        backoff: Duration,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, FetchError> {
        let mut tries = 0;
        loop {
            match attempt().await {
                Ok(value) => return Ok(value),
                Err(failure) => {
                    tries += 1;
                    self.wait(path, failure, tries, backoff).await?;
                }
            }
        }
    }

    /// Waits before try number `tries + 1`.
    ///
    /// # Errors
    /// When there must be no further try.
    pub(super) async fn wait(
        &self,
        path: &str,
        failure: Failure,
        tries: u32,
        backoff: Duration,
    ) -> Result<(), FetchError> {
        let (what, asked) = match failure {
            Failure::Final(error) => return Err(error),
            Failure::Passing { what, wait } => (what, wait),
        };
        if tries >= MAX_TRIES || asked.is_some_and(|asked| asked > MAX_WAIT) {
            return Err(FetchError::Unavailable { path: path.to_owned(), what, tries });
        }
        let wait = asked.unwrap_or_else(|| backoff * 2u32.saturating_pow(tries.saturating_sub(1)));
        tracing::warn!(path, what, wait_ms = wait.as_millis(), "trying again");
        self.within(path, tokio::time::sleep(wait.min(MAX_WAIT))).await
    }

    fn file_url(&self, path: &str) -> Result<Url, FetchError> {
        let parts: Vec<&str> = ["resolve", self.revision.as_str()].into_iter().chain(path.split('/')).collect();
        self.url(&["datasets"], &parts)
    }

    /// `{endpoint}/{before…}/{data set}/{after…}`; a `/` inside of a part is escaped, as the hub wants it for revisions.
    fn url(&self, before: &[&str], after: &[&str]) -> Result<Url, FetchError> {
        let mut url = self.endpoint.clone();
        let wrong = || FetchError::InvalidSpec("the endpoint cannot have paths".to_owned());
        url.path_segments_mut()
            .map_err(|()| wrong())?
            .pop_if_empty()
            .extend(before)
            .extend(&self.dataset)
            .extend(after);
        Ok(url)
    }

    /// Sends a request and follows redirects: `HEAD` inside the hub only (its last answer has the facts), `GET`
    /// anywhere. The token is sent to the hub only.
    async fn request(&self, method: Method, url: Url, path: &str, from: Option<u64>) -> Result<Response, Failure> {
        let protocol = |what: &str| FetchError::Protocol { path: path.to_owned(), what: what.to_owned() };
        let mut url = url;
        for _ in 0..=MAX_REDIRECTS {
            let at_hub = url.origin() == self.endpoint.origin();
            let mut request = self.client.request(method.clone(), url.clone());
            if let Some(from) = from {
                request = request.header(RANGE, format!("bytes={from}-"));
            }
            if let Some(authorization) = self.authorization.as_ref().filter(|_| at_hub) {
                request = request.header(AUTHORIZATION, authorization.clone());
            }
            let response = self.within(path, request.send()).await?.map_err(passing)?;
            if !response.status().is_redirection() {
                return accepted(response, path);
            }
            let location =
                text(response.headers(), LOCATION.as_str()).ok_or_else(|| protocol("a redirect leads nowhere"))?;
            let next = url.join(&location).map_err(|_| protocol("a redirect leads nowhere"))?;
            if url.scheme() == "https" && next.scheme() != "https" {
                return Err(protocol("a redirect leads from https to http").into());
            }
            if method == Method::HEAD && next.origin() != self.endpoint.origin() {
                return Ok(response);
            }
            url = next;
        }
        Err(protocol("there are too many redirects").into())
    }
}

/// Sorts an answer by its status.
fn accepted(response: Response, path: &str) -> Result<Response, Failure> {
    let status = response.status();
    let path = path.to_owned();
    match status {
        StatusCode::RANGE_NOT_SATISFIABLE => Ok(response),
        _ if status.is_success() => Ok(response),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(FetchError::Refused { path, status: status.as_u16() }.into())
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(FetchError::NotFound { path }.into()),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Err(again(&response)),
        _ if status.is_server_error() => Err(again(&response)),
        _ => Err(FetchError::Protocol { path, what: format!("the hub answers {status}") }.into()),
    }
}

fn again(response: &Response) -> Failure {
    let wait = text(response.headers(), RETRY_AFTER.as_str()).and_then(|seconds| seconds.trim().parse().ok());
    Failure::Passing { what: format!("the hub answers {}", response.status()), wait: wait.map(Duration::from_secs) }
}

/// An error of the connection. Its address may be signed, and is left out.
pub(super) fn passing(error: reqwest::Error) -> Failure {
    let error = error.without_url();
    let mut what = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        what = format!("{what}: {cause}");
        source = cause.source();
    }
    Failure::Passing { what, wait: None }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// The address of `rel="next"` in a `Link` header.
fn next_page(link: &str) -> Option<String> {
    let part = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    let (_, after) = part.split_once('<')?;
    after.split_once('>').map(|(address, _)| address.to_owned())
}
