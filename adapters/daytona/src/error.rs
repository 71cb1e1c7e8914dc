//! What the platform's refusals mean.

use std::time::Duration;

use sandbox_bench_core::{Error, ErrorKind};
use sandbox_bench_kit::http::{Effect, Refusal};
use serde_json::Value;

/// An answer that says no, with what it says.
#[derive(Debug)]
pub(crate) struct No {
    refusal: Refusal,
    /// The platform's words; a part of the body if it did not use its own form.
    pub(crate) message: String,
}

impl No {
    /// Reads the platform's message out of the body, which may be empty or a page of HTML: `message` if it is a text,
    /// else `error`, as the official client does; validation errors of the toolbox come as a list `errors`.
    pub(crate) fn new(refusal: Refusal) -> Self {
        let message = refusal.json().as_ref().and_then(message).unwrap_or_else(|| refusal.text());
        Self { refusal, message }
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> u16 {
        self.refusal.status
    }

    /// True for one of several texts, whatever their case.
    pub(crate) fn says(&self, texts: &[&str]) -> bool {
        let message = self.message.to_lowercase();
        texts.iter().any(|text| message.contains(text))
    }

    /// A transition of the sandbox is under way; the same request will be accepted later.
    pub(crate) fn in_transition(&self) -> bool {
        (self.status() == 409 && self.says(&["state change in progress"]))
            || (self.status() == 400 && self.says(&["not in valid state", "not in a stoppable state"]))
    }

    /// The error of it. `effect`: whether a fault may hide an effect.
    pub(crate) fn error(&self, what: &str, effect: Effect) -> Error {
        let (kind, hint) = self.meaning(effect);
        let error = self.refusal.error(what, kind, &self.message);
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    /// The error of a refusal that is not the platform's own, by its status alone.
    pub(crate) fn plain(&self, what: &str, effect: Effect) -> Error {
        self.refusal.error(what, self.refusal.kind(effect), &self.message)
    }

    fn meaning(&self, effect: Effect) -> (ErrorKind, Option<&'static str>) {
        match self.status() {
            401 => (ErrorKind::Credentials, Some("is DAYTONA_API_KEY right, and is it a key of this platform?")),
            403 if self.says(&["suspended"]) => (ErrorKind::Credentials, Some("the organization has no credit left")),
            403 => (
                ErrorKind::Credentials,
                Some(
                    "the key needs write:sandboxes and delete:sandboxes, and for warm artifacts the same of snapshots",
                ),
            ),
            400 if self.says(CAPACITY) => {
                (ErrorKind::Capacity, Some("destroy what is not needed, or lower the concurrency"))
            }
            400 if self.says(&["exceeds maximum allowed per sandbox"]) => {
                (ErrorKind::InvalidRequest, Some("ask for smaller resources, or have the organization's limit raised"))
            }
            400 if self.says(&["snapshot"]) && self.says(&["not found", "not available in region"]) => {
                (ErrorKind::NotFound, Some("snapshots belong to one region: is DAYTONA_TARGET the one it was made in?"))
            }
            400 if self.says(&["failed to start", "failed to build"]) => (ErrorKind::Environment, None),
            409 if self.says(&["already exists"]) => {
                (ErrorKind::InvalidRequest, Some("something with this tag exists already; find and delete it first"))
            }
            409 => (ErrorKind::Unavailable, None),
            410 => (ErrorKind::SandboxLost, None),
            429 => (ErrorKind::RateLimited { retry_after: self.retry_after() }, None),
            _ => (self.refusal.kind(effect), None),
        }
    }

    /// `Retry-After`, or `Retry-After-<limit>` as the platform documents it, in seconds; else the end of the window.
    fn retry_after(&self) -> Option<Duration> {
        let seconds = |prefix: &str| {
            let named = self.refusal.headers.iter().filter(|(name, _)| name.as_str().starts_with(prefix));
            named.filter_map(|(_, value)| value.to_str().ok()?.trim().parse::<u64>().ok()).max()
        };
        let waits = || seconds("retry-after-").or_else(|| seconds("x-ratelimit-reset-")).map(Duration::from_secs);
        self.refusal.retry_after.or_else(waits)
    }
}

/// Quotas come as 400, by these words.
const CAPACITY: &[&str] = &["limit exceeded", "quota exceeded", "no available runners", "capacity"];

fn message(body: &Value) -> Option<String> {
    let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let list = || {
        let errors = body.get("errors")?.as_array()?;
        Some(errors.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; "))
    };
    let short = |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect();
    text("message").or_else(|| text("error")).map(short).or_else(|| list().map(|text| short(&text)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn no(status: u16, body: &str, headers: &[(&'static str, &'static str)]) -> No {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        No::new(Refusal { status, retry_after: None, headers, body: body.to_owned().into() })
    }

    fn kind(status: u16, message: &str) -> ErrorKind {
        let body = serde_json::json!({"statusCode": status, "message": message}).to_string();
        no(status, &body, &[]).error("x", Effect::Once).kind().clone()
    }

    #[test]
    fn what_the_platform_says_decides_what_to_do() {
        assert_eq!(kind(401, "Unauthorized"), ErrorKind::Credentials);
        assert_eq!(kind(403, "Organization is suspended: credits"), ErrorKind::Credentials);
        assert_eq!(kind(400, "Total CPU limit exceeded. Maximum allowed: 10."), ErrorKind::Capacity);
        assert_eq!(kind(400, "Snapshot quota exceeded. Maximum allowed: 30"), ErrorKind::Capacity);
        assert_eq!(kind(400, "CPU request 9 exceeds maximum allowed per sandbox (4)."), ErrorKind::InvalidRequest);
        assert_eq!(
            kind(400, "Snapshot x not found. Did you add it through the Daytona Dashboard?"),
            ErrorKind::NotFound
        );
        assert_eq!(kind(400, "Snapshot x is not available in region eu"), ErrorKind::NotFound);
        assert_eq!(kind(400, "Sandbox failed to start: no such image"), ErrorKind::Environment);
        assert_eq!(kind(400, "name must be a string, cpu must be a number"), ErrorKind::InvalidRequest);
        assert_eq!(kind(404, "Sandbox with ID or name x not found"), ErrorKind::NotFound);
        assert_eq!(kind(409, "Sandbox with name x already exists"), ErrorKind::InvalidRequest);
        assert_eq!(kind(500, "oops"), ErrorKind::Transport);
        assert_eq!(*no(502, "", &[]).error("x", Effect::Idempotent).kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn transitions_are_told_from_other_conflicts() {
        let of =
            |status, text: &str| no(status, &serde_json::json!({"message": text}).to_string(), &[]).in_transition();
        assert!(of(409, "Sandbox state change in progress") && of(400, "Sandbox is not in valid state"));
        assert!(!of(409, "Sandbox with name x already exists") && !of(400, "state change in progress"));
    }

    #[test]
    fn the_wait_is_found_in_either_spelling() {
        let wait = |headers: &[(&'static str, &'static str)]| match no(429, "", headers).error("x", Effect::Once).kind()
        {
            ErrorKind::RateLimited { retry_after } => retry_after.map(|wait| wait.as_secs()),
            other => panic!("{other:?}"),
        };
        assert_eq!(wait(&[("retry-after-sandbox-create", "12")]), Some(12));
        assert_eq!(
            wait(&[("x-ratelimit-reset-authenticated", "7"), ("x-ratelimit-limit-authenticated", "100")]),
            Some(7)
        );
        assert_eq!(wait(&[("retry-after-sandbox-create", "soon")]), None);
    }

    #[test]
    fn bodies_may_be_anything() {
        assert!(no(502, "<html>Bad Gateway</html>", &[]).message.contains("HTML"));
        assert_eq!(no(404, "", &[]).message, "no explanation");
        assert_eq!(no(400, r#"{"errors":["a","b"],"files":[]}"#, &[]).message, "a; b");
        assert_eq!(no(400, r#"{"error":"Bad Request","message":["x"]}"#, &[]).message, "Bad Request");
    }

    proptest! {
        #[test]
        fn any_refusal_is_an_error(status in 400u16..600, body in ".{0,200}") {
            let error = no(status, &body, &[]).error("x", Effect::Once);
            prop_assert!(error.to_string().contains(&status.to_string()));
        }
    }
}
