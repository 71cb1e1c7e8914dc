//! From what the service said to what the caller can do about it.
//!
//! Errors are told by their code, then by the status: the SDK's types are not complete (crate 1.18.0), and a gateway before the
//! service answers with pages.

use std::error::Error as StdError;
use std::time::Duration;

use aws_sdk_lambdamicrovms::config::http::HttpResponse;
use aws_sdk_lambdamicrovms::error::{ProvideErrorMetadata, SdkError};
use sandbox_bench_core::{Error, ErrorKind};
use sandbox_bench_kit::http::Effect;

const CREDENTIALS: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), or AWS_PROFILE; the README lists the actions \
     that must be allowed";
const SILENT: &str = "AWS gave no reason: does this region have Lambda MicroVMs, and are the ARNs well-formed?";

/// What the service said, of all that a refusal may hold.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) retry_after: Option<Duration>,
}

/// The error for `what` ("image sb-env-…: create"). `effect`: a lost answer may hide one.
pub(crate) fn of<E>(what: &str, effect: Effect, error: SdkError<E, HttpResponse>) -> Error
where
    E: StdError + ProvideErrorMetadata + Send + Sync + 'static,
{
    let lost = if effect == Effect::Once { ErrorKind::Transport } else { ErrorKind::Unavailable };
    match &error {
        SdkError::ConstructionFailure(_) => {
            let text = root(&error);
            let kind = if text.contains("credentials") { ErrorKind::Credentials } else { ErrorKind::InvalidRequest };
            let out = Error::new(kind.clone(), format!("{what}: the request cannot be made: {text}"));
            if kind == ErrorKind::Credentials { out.hint(CREDENTIALS) } else { out }
        }
        SdkError::DispatchFailure(_) => {
            let text = root(&error);
            // The SDK looks for credentials when it sends the first request.
            if text.to_lowercase().contains("credential") {
                return Error::new(ErrorKind::Credentials, format!("{what}: {text}")).hint(CREDENTIALS);
            }
            let kind = if never_sent(&error) { ErrorKind::Unavailable } else { lost };
            Error::new(kind, format!("{what}: the connection failed: {text}"))
        }
        SdkError::TimeoutError(_) => Error::new(lost, format!("{what}: no answer")),
        SdkError::ResponseError(_) | SdkError::ServiceError(_) => refused(what, effect, &said(&error)),
        _ => Error::new(lost, format!("{what}: {}", root(&error))),
    }
}

fn said<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Said {
    let response = error.raw_response();
    let service = error.as_service_error();
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    Said {
        status: response.map_or(0, |response| response.status().as_u16()),
        code: text(service.and_then(|error| error.code())),
        message: text(service.and_then(|error| error.message())),
        retry_after: response
            .and_then(|response| response.headers().get("retry-after")?.parse().ok())
            .map(Duration::from_secs),
    }
}

/// True only if no connection was made: whatever else happens to one may come after the request.
fn never_sent(error: &(dyn StdError + 'static)) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable);
        }
        next = error.source();
    }
    false
}

fn root(error: &dyn StdError) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// The error of a refusal.
pub(crate) fn refused(what: &str, effect: Effect, said: &Said) -> Error {
    let Said { status, code, message, retry_after } = said;
    let quota = "the account's quota of MicroVM memory is used up: wait, end MicroVMs (`sandbox-bench reap`), lower the \
                 concurrency, or have quota L-CD1C0CC4 raised";
    let (kind, hint) = match (code.as_str(), status) {
        ("ServiceQuotaExceededException", _) | (_, 402) => (ErrorKind::Capacity, Some(quota)),
        ("InsufficientCapacityException", _) => {
            (ErrorKind::Capacity, Some("the region has no room now: try again later, or another region"))
        }
        ("ThrottlingException" | "TooManyRequestsException", _) | (_, 429) => {
            (ErrorKind::RateLimited { retry_after: *retry_after }, None)
        }
        ("ConflictException" | "ResourceConflictException", _) | (_, 409) => (ErrorKind::Unavailable, None),
        (_, 401 | 403) => (ErrorKind::Credentials, Some(if message.is_empty() { SILENT } else { CREDENTIALS })),
        ("ResourceNotFoundException" | "NoSuchKey" | "NoSuchBucket" | "NotFound", _) | (_, 404) => {
            (ErrorKind::NotFound, None)
        }
        (_, 400..500) => (ErrorKind::InvalidRequest, None),
        _ if effect == Effect::Once => (ErrorKind::Transport, None),
        _ => (ErrorKind::Unavailable, None),
    };
    let code = if code.is_empty() { String::new() } else { format!("{code}: ") };
    let message = if message.is_empty() { "no explanation" } else { message };
    let error = Error::new(kind, format!("{what}: HTTP {status}: {code}{message}"));
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The error of a MicroVM that does not run any more.
pub(crate) fn lost(id: &str, reason: Option<&str>) -> Error {
    let reason = reason.filter(|reason| !reason.is_empty()).map(|reason| format!(": {reason}")).unwrap_or_default();
    Error::new(ErrorKind::SandboxLost, format!("MicroVM {id} does not run any more{reason}"))
        .hint("its lifetime was over, it was idle for too long, or somebody ended it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_count_before_the_status_and_pages_are_told_by_it() {
        let kind = |status, code: &str, effect| {
            let said = Said { status, code: code.into(), message: "words".into(), retry_after: None };
            refused("x", effect, &said).kind().clone()
        };
        assert_eq!(kind(402, "ServiceQuotaExceededException", Effect::Once), ErrorKind::Capacity);
        assert_eq!(kind(500, "InsufficientCapacityException", Effect::Once), ErrorKind::Capacity);
        assert_eq!(kind(400, "TooManyRequestsException", Effect::Once), ErrorKind::RateLimited { retry_after: None });
        assert_eq!(kind(409, "ConflictException", Effect::Once), ErrorKind::Unavailable);
        assert_eq!(kind(400, "ValidationException", Effect::Once), ErrorKind::InvalidRequest);
        assert_eq!(kind(404, "", Effect::Once), ErrorKind::NotFound);
        assert_eq!(kind(502, "", Effect::Once), ErrorKind::Transport);
        assert_eq!(kind(502, "", Effect::Idempotent), ErrorKind::Unavailable);
        let silent = refused("x", Effect::Once, &Said { status: 403, ..Said::default() });
        assert!(silent.to_string().contains("region"), "{silent}");
    }
}
