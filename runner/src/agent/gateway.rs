//! A gateway: asks one question, and asks again where that is safe and sensible.
//!
//! Asking again is always safe: an answer that was not complete was not acted on. It is sensible for rate limits, passing
//! faults and broken streams, a bounded number of times, within the time that the caller has left.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures_util::StreamExt as _;
use jiff::Timestamp;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret as _, SecretString};
use tokio_util::sync::CancellationToken;

use super::stream::{self, Answer, MAX_BYTES};
use super::wire::{ErrorBody, Request, WireError};
use crate::outputs::Secrets;

/// Most requests for one answer.
const MAX_TRIES: u32 = 6;
/// Limit for connecting.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
/// Longest silence within an answer, and before its first byte. Models that think do so for minutes.
const SILENCE: Duration = Duration::from_secs(300);
/// First and longest wait before asking again, where the gateway does not say.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Most bytes that are read of an answer which is an error.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Longest quotation of a gateway's own words, in characters.
const MAX_WORDS: usize = 400;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GatewayError {
    /// The key is missing or not accepted.
    #[error("the key was not accepted (HTTP {status}): {words}")]
    Credentials {
        /// HTTP status.
        status: u16,
        /// The gateway's words.
        words: String,
    },
    /// The request is wrong: the model does not exist, a parameter is not supported.
    #[error("the request was refused (HTTP {status}): {words}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The gateway's words.
        words: String,
    },
    /// The conversation is too long for the model.
    #[error("the conversation does not fit the model's context: {0}")]
    ContextOverflow(String),
    /// The gateway asks to slow down.
    #[error("the gateway asks to slow down: {words}")]
    RateLimited {
        /// How long to wait, if the gateway said so.
        retry_after: Option<Duration>,
        /// The gateway's words.
        words: String,
    },
    /// A fault of the gateway or the model's provider.
    #[error("the gateway failed (HTTP {status}): {words}")]
    Failed {
        /// HTTP status.
        status: u16,
        /// How long to wait, if the gateway said so.
        retry_after: Option<Duration>,
        /// The gateway's words.
        words: String,
    },
    /// It could not be reached.
    #[error("the gateway cannot be reached: {0}")]
    Unreachable(String),
    /// The answer broke off.
    #[error("the answer was cut: {0}")]
    Cut(String),
    /// The answer is not of the form that was agreed on.
    #[error("the answer makes no sense: {0}")]
    Garbage(String),
    /// The answer does not end.
    #[error("the answer has more than {MAX_BYTES} bytes")]
    TooLong,
    /// Nothing came for a long time.
    #[error("no word for {} s", .0.as_secs())]
    Silent(Duration),
    /// The caller's time was up while the answer came.
    #[error("the time limit passed during an answer")]
    TimeUp,
    /// The run was cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl GatewayError {
    /// The error that a status and an error object mean.
    pub(super) fn of(status: u16, error: &WireError, retry_after: Option<Duration>) -> Self {
        let words: String = error.message.as_deref().unwrap_or("no reason given").chars().take(MAX_WORDS).collect();
        let code = error.code.as_ref().and_then(|code| code.as_str()).unwrap_or_default();
        if overflows(code, &words) && matches!(status, 400 | 413 | 422 | 500) {
            return Self::ContextOverflow(words);
        }
        match status {
            401 | 403 => Self::Credentials { status, words },
            429 => Self::RateLimited { retry_after, words },
            408 | 409 | 425 | 500.. => Self::Failed { status, retry_after, words },
            _ => Self::Refused { status, words },
        }
    }

    /// True if the same question may be answered when it is asked again.
    #[must_use]
    pub fn passes(&self) -> bool {
        matches!(
            self,
            Self::RateLimited { .. }
                | Self::Failed { .. }
                | Self::Unreachable(_)
                | Self::Cut(_)
                | Self::Garbage(_)
                | Self::Silent(_)
        )
    }

    /// A stable name for evidence.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Credentials { .. } => "gateway_credentials",
            Self::Refused { .. } => "gateway_refused",
            Self::ContextOverflow(_) => "gateway_context_overflow",
            Self::RateLimited { .. } => "gateway_rate_limited",
            Self::Failed { .. } => "gateway_failed",
            Self::Unreachable(_) => "gateway_unreachable",
            Self::Cut(_) => "gateway_cut",
            Self::Garbage(_) => "gateway_garbage",
            Self::TooLong => "gateway_too_long",
            Self::Silent(_) => "gateway_silent",
            Self::TimeUp => "gateway_time_up",
            Self::Cancelled => "cancelled",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. } | Self::Failed { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The same without the values that must not be shown.
    fn hiding(self, secrets: &Secrets) -> Self {
        let hide = |words: String| secrets.hidden(&words);
        match self {
            Self::Credentials { status, words } => Self::Credentials { status, words: hide(words) },
            Self::Refused { status, words } => Self::Refused { status, words: hide(words) },
            Self::ContextOverflow(words) => Self::ContextOverflow(hide(words)),
            Self::RateLimited { retry_after, words } => Self::RateLimited { retry_after, words: hide(words) },
            Self::Failed { status, retry_after, words } => Self::Failed { status, retry_after, words: hide(words) },
            Self::Unreachable(words) => Self::Unreachable(hide(words)),
            Self::Cut(words) => Self::Cut(hide(words)),
            Self::Garbage(words) => Self::Garbage(hide(words)),
            other @ (Self::TooLong | Self::Silent(_) | Self::TimeUp | Self::Cancelled) => other,
        }
    }
}

/// There is a code for it (OpenAI), and there are the words of those that have none.
fn overflows(code: &str, words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    let told = ["context length", "context window", "context size", "prompt is too long", "maximum context"];
    code == "context_length_exceeded" || told.iter().any(|phrase| words.contains(phrase))
}

/// What asking took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Effort {
    /// Requests sent.
    pub requests: u32,
    /// Requests that repeated one which had failed.
    pub repeated: u32,
    /// Time from sending requests to the end of their answers.
    pub asking: Duration,
    /// Time before requests were repeated.
    pub waiting: Duration,
}

/// A gateway. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    endpoint: Url,
    shown: String,
    key: Option<SecretString>,
    client: Client,
    secrets: Secrets,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("base", &self.shown).finish_non_exhaustive()
    }
}

impl Gateway {
    /// The gateway at `base`, such as `https://openrouter.ai/api/v1`.
    ///
    /// # Errors
    /// The URL is not one of http or https, or the key cannot be sent.
    pub fn new(base: &str, key: Option<SecretString>) -> anyhow::Result<Self> {
        let mut endpoint = Url::parse(base.trim()).with_context(|| "the gateway's base URL is no URL".to_owned())?;
        if !matches!(endpoint.scheme(), "http" | "https") || endpoint.host().is_none() {
            bail!("the gateway's base URL must begin with http:// or https://");
        }
        if !endpoint.username().is_empty() || endpoint.password().is_some() || endpoint.query().is_some() {
            bail!("the gateway's base URL must hold no credentials and no query; name the key's variable instead");
        }
        let path = endpoint.path().trim_end_matches('/').to_owned();
        endpoint.set_path(&path);
        let shown = endpoint.as_str().trim_end_matches('/').to_owned();
        endpoint.set_path(&format!("{path}/chat/completions"));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        if let Some(key) = &key {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret()))
                .map_err(|_| anyhow::anyhow!("the gateway's key has characters that cannot be sent in a header"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let client = Client::builder()
            .user_agent(concat!("sandbox-bench/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .connect_timeout(CONNECT_LIMIT)
            .read_timeout(SILENCE)
            // A redirection would take the conversation elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .context("cannot make an HTTP client")?;
        let secrets = Secrets::new(key.iter().map(|key| key.expose_secret()));
        Ok(Self { endpoint, shown, key, client, secrets })
    }

    /// The base URL, for evidence.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The key, for whoever has to keep it out of something.
    #[must_use]
    pub fn key(&self) -> Option<&SecretString> {
        self.key.as_ref()
    }

    /// Asks, and asks again as far as sensible, until `deadline`. What it took is added to `effort`.
    ///
    /// # Errors
    /// Why there is no answer: the reason of the last try.
    pub async fn ask(
        &self,
        request: &Request<'_>,
        deadline: Instant,
        cancel: &CancellationToken,
        effort: &mut Effort,
    ) -> Result<Answer, GatewayError> {
        let body = serde_json::to_vec(request).map_err(|error| GatewayError::Garbage(error.to_string()))?;
        let backoff = ExponentialBuilder::default().with_min_delay(BACKOFF.0).with_max_delay(BACKOFF.1).with_jitter();
        let mut backoff = backoff.with_max_times(MAX_TRIES as usize).build();
        for attempt in 1.. {
            effort.requests += 1;
            effort.repeated += u32::from(attempt > 1);
            let start = Instant::now();
            let result = self.within(&body, deadline, cancel).await;
            effort.asking += start.elapsed();
            let error = match result {
                Ok(answer) => return Ok(self.hidden(answer)),
                Err(error) => error.hiding(&self.secrets),
            };
            if !error.passes() || attempt >= MAX_TRIES {
                return Err(error);
            }
            let wait = error.retry_after().or_else(|| backoff.next()).unwrap_or(BACKOFF.1);
            if wait >= deadline.saturating_duration_since(Instant::now()) {
                return Err(error);
            }
            tracing::debug!(%error, ?wait, "asking the model again");
            effort.waiting += wait;
            tokio::select! {
                () = cancel.cancelled() => return Err(GatewayError::Cancelled),
                () = tokio::time::sleep(wait) => {}
            }
        }
        Err(GatewayError::TimeUp)
    }

    /// One try within the caller's time.
    async fn within(&self, body: &[u8], deadline: Instant, cancel: &CancellationToken) -> Result<Answer, GatewayError> {
        let start = Instant::now();
        let left = deadline.saturating_duration_since(start);
        let mut began = false;
        tokio::select! {
            () = cancel.cancelled() => Err(GatewayError::Cancelled),
            result = tokio::time::timeout(left, self.once(body, &mut began)) => match result {
                Ok(result) => result,
                // A gateway that says nothing at all is at fault; a model that talks on is slow.
                Err(_) if began => Err(GatewayError::TimeUp),
                Err(_) => Err(GatewayError::Silent(start.elapsed())),
            },
        }
    }

    async fn once(&self, body: &[u8], began: &mut bool) -> Result<Answer, GatewayError> {
        let sent = self.client.post(self.endpoint.clone()).body(body.to_vec()).send().await;
        let response = sent.map_err(|error| match () {
            () if error.is_connect() => GatewayError::Unreachable(causes(error)),
            () if error.is_timeout() => GatewayError::Silent(SILENCE),
            () => GatewayError::Cut(causes(error)),
        })?;
        if !response.status().is_success() {
            return Err(failure(response).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let streamed = kind.starts_with("text/event-stream");
        let body = response.bytes_stream().map(|chunk| {
            *began = true;
            chunk.map_err(causes)
        });
        if streamed { stream::events(body).await } else { stream::whole(body).await }
    }

    /// The answer without the key, should the gateway have sent it back.
    fn hidden(&self, answer: Answer) -> Answer {
        let hide = |text: String| self.secrets.hidden(&text);
        let mut answer = Answer {
            content: hide(answer.content),
            reasoning: hide(answer.reasoning),
            refusal: hide(answer.refusal),
            model: answer.model.map(hide),
            ..answer
        };
        for call in &mut answer.calls {
            for part in [&mut call.id, &mut call.name, &mut call.arguments] {
                *part = self.secrets.hidden(part);
            }
        }
        answer
    }
}

/// An error with its causes: the outermost says little. The URL is left out, it is the same every time.
fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut told = String::new();
    let mut next: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = next {
        let words = error.to_string();
        if !told.contains(&words) {
            if !told.is_empty() {
                told += ": ";
            }
            told += &words;
        }
        next = error.source();
    }
    told
}

/// What an answer that is an error says. Reads only its beginning.
async fn failure(response: Response) -> GatewayError {
    let status = response.status().as_u16();
    let retry_after = retry_after(response.headers());
    let mut body = response.bytes_stream();
    let mut bytes = Vec::new();
    while let Some(Ok(chunk)) = body.next().await {
        bytes.extend_from_slice(&chunk);
        if bytes.len() >= MAX_ERROR_BYTES {
            break;
        }
    }
    let error = match serde_json::from_slice::<ErrorBody>(&bytes) {
        Ok(ErrorBody { error: Some(error), .. }) => error,
        Ok(ErrorBody { message: message @ Some(_), .. }) => WireError { message, ..WireError::default() },
        _ => {
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            WireError { message: Some(text).filter(|text| !text.is_empty()), ..WireError::default() }
        }
    };
    GatewayError::of(status, &error, retry_after)
}

/// `Retry-After`: seconds, or a date (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default())
}
