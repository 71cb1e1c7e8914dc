//! Reading answers: bounded, and with a meaning for each status.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{RequestBuilder, Response};
use sandbox_bench_core::{Call, Error, ErrorKind, Result};
use serde::de::DeserializeOwned;

use super::secrets;
use super::service::{Effect, failed, send};
use crate::wait::bounded;

/// Most bytes of a refusal that are read: enough for any message, little for a page of HTML.
const REFUSAL_LIMIT: usize = 64 << 10;
/// Most characters of a foreign text that an error quotes.
const QUOTED: usize = 300;

/// The whole body, at most `limit` bytes.
///
/// # Errors
/// `Cancelled`, `DeadlineExceeded`, `Failed` for a larger body; for a cut one as [`super::send`].
pub async fn body(call: &Call, what: &str, effect: Effect, mut answer: Response, limit: usize) -> Result<Bytes> {
    let read = async {
        let mut all = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|e| failed(what, effect, e))? {
            if all.len() + chunk.len() > limit {
                return Err(Error::new(ErrorKind::Failed, format!("{what}: the answer is larger than {limit} bytes")));
            }
            all.extend_from_slice(&chunk);
        }
        Ok(Bytes::from(all))
    };
    bounded(call, what, read).await?
}

/// The body as JSON, at most `limit` bytes.
///
/// # Errors
/// As [`body`]; `Transport` or `Unavailable`, by `effect`, if it is not what was expected.
pub async fn json<T: DeserializeOwned>(
    call: &Call,
    what: &str,
    effect: Effect,
    answer: Response,
    limit: usize,
) -> Result<T> {
    let bytes = body(call, what, effect, answer, limit).await?;
    serde_json::from_slice(&bytes).map_err(|e| {
        let kind = if effect == Effect::Once { ErrorKind::Transport } else { ErrorKind::Failed };
        Error::new(kind, format!("{what}: the answer is not what the service documents")).because(e)
    })
}

/// An answer that says no.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// How long to wait, if the service said so.
    pub retry_after: Option<Duration>,
    /// The answer's headers.
    pub headers: HeaderMap,
    /// The beginning of its body; empty if it could not be read.
    pub body: Bytes,
}

/// Reads an answer that says no. Its body may be empty, HTML or cut: the status alone always counts. Credentials that the
/// service repeats in it are overwritten.
pub async fn refused(call: &Call, what: &str, mut answer: Response) -> Refusal {
    let status = answer.status().as_u16();
    let headers = answer.headers().clone();
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = answer.chunk().await {
            let room = REFUSAL_LIMIT.saturating_sub(body.len());
            body.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
            if body.len() >= REFUSAL_LIMIT {
                break;
            }
        }
    };
    // What could be read by the deadline is what there is.
    let _ = bounded(call, what, read).await;
    Refusal { status, retry_after: retry_after(&headers), headers, body: secrets::hide(body).into() }
}

/// Sends a request: the answer, or the refusal, read.
///
/// # Errors
/// Those of the connection, as [`send`].
pub async fn ask(
    call: &Call,
    what: &str,
    effect: Effect,
    request: RequestBuilder,
) -> Result<Result<Response, Refusal>> {
    let answer = send(call, what, effect, request).await?;
    if answer.status().is_success() { Ok(Ok(answer)) } else { Ok(Err(refused(call, what, answer).await)) }
}

impl Refusal {
    /// The body as JSON, if it is.
    #[must_use]
    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The body as one short line for people: a page of HTML is only named.
    #[must_use]
    pub fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let text = text.trim();
        if text.starts_with('<') {
            return "an HTML page".to_owned();
        }
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(QUOTED).collect();
        if line.is_empty() { "no explanation".to_owned() } else { line }
    }

    /// What the status means wherever the service does not say more. `effect`: a fault of the service may hide an effect.
    #[must_use]
    pub fn kind(&self, effect: Effect) -> ErrorKind {
        match self.status {
            401 | 403 => ErrorKind::Credentials,
            402 => ErrorKind::Capacity,
            404 => ErrorKind::NotFound,
            413 => ErrorKind::InvalidRequest,
            429 => ErrorKind::RateLimited { retry_after: self.retry_after },
            408 | 500.. if effect == Effect::Once => ErrorKind::Transport,
            408 | 500.. => ErrorKind::Unavailable,
            400..500 => ErrorKind::InvalidRequest,
            _ => ErrorKind::Failed,
        }
    }

    /// The error of this kind, with the status and `message`.
    #[must_use]
    pub fn error(&self, what: &str, kind: ErrorKind, message: &str) -> Error {
        Error::new(kind, format!("{what}: HTTP {}: {message}", self.status))
    }
}

/// `Retry-After` in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(Timestamp::now())).unwrap_or_default())
}
