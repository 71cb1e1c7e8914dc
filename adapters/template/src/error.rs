//! From what the service said to what the caller can do about it.

use sandbox_bench_core::{Error, ErrorKind, Tag};
use sandbox_bench_kit::http::{Effect, Refusal};

/// The error for `what` ("sandbox sbx-run--unit: create"), which was refused. REPLACE: the service's own codes count
/// before the status; an answer of a gateway in between has none, and may be empty or HTML.
pub(crate) fn refused(what: &str, effect: Effect, refusal: &Refusal) -> Error {
    let said = refusal.json();
    let text = |key: &str| said.as_ref().and_then(|json| json.get("error")?.get(key)?.as_str());
    let (kind, hint) = match (text("code").unwrap_or_default(), refusal.status) {
        ("quota", _) => (ErrorKind::Capacity, Some("destroy sandboxes or raise the account's limit")),
        ("ended", _) => (ErrorKind::SandboxLost, Some("its lifetime was over, or somebody ended it")),
        ("name_taken", _) => (ErrorKind::InvalidRequest, Some("find and destroy what has this tag first")),
        (_, 401 | 403) => (ErrorKind::Credentials, Some("see TEMPLATE_API_KEY")),
        _ => (refusal.kind(effect), None),
    };
    let error = refusal.error(what, kind, text("message").unwrap_or(&refusal.text()));
    hint.into_iter().fold(error, Error::hint)
}

/// What a refusal means where the sandbox was there before: that it is missing now means that it is lost.
pub(crate) fn gone(what: &str, effect: Effect, refusal: &Refusal) -> Error {
    let error = refused(what, effect, refusal);
    match error.kind() {
        ErrorKind::NotFound => Error::new(ErrorKind::SandboxLost, format!("{what}: it is gone")).because(error),
        _ => error,
    }
}

/// The error of a sandbox that does not run any more.
pub(crate) fn lost(name: &str) -> Error {
    Error::new(ErrorKind::SandboxLost, format!("sandbox {name} does not run any more"))
}

/// The error of a creation of which no answer came.
pub(crate) fn uncertain(what: &str, tag: &Tag, cause: Error) -> Error {
    let kind = ErrorKind::UncertainSubmission { tag: tag.clone() };
    Error::new(kind, format!("{what}: it is unknown whether it was made")).because(cause)
}

/// True if it is unknown whether what was asked for has happened.
pub(crate) fn unanswered(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Transport | ErrorKind::DeadlineExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status: u16, body: &str, effect: Effect) -> ErrorKind {
        let refusal = Refusal { status, retry_after: None, headers: Default::default(), body: body.to_owned().into() };
        refused("x", effect, &refusal).kind().clone()
    }

    #[test]
    fn the_services_code_counts_before_the_status() {
        let said = |code: &str| format!(r#"{{"error":{{"code":"{code}","message":"words"}}}}"#);
        assert_eq!(kind(402, &said("quota"), Effect::Once), ErrorKind::Capacity);
        assert_eq!(kind(410, &said("ended"), Effect::Once), ErrorKind::SandboxLost);
        assert_eq!(kind(404, &said("something_new"), Effect::Once), ErrorKind::NotFound);
    }

    #[test]
    fn a_gateways_answer_is_told_by_its_status() {
        for body in ["", "<html>502</html>", "null", r#"{"error":"text"}"#] {
            assert_eq!(kind(502, body, Effect::Once), ErrorKind::Transport, "{body}");
            assert_eq!(kind(502, body, Effect::Idempotent), ErrorKind::Unavailable, "{body}");
        }
    }
}
