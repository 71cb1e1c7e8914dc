//! From what the service said to what the caller can do about it.
//!
//! The service's own code counts first, because the status of some is not documented; then the status.

use sandbox_bench_core::{Error, ErrorKind};
use sandbox_bench_kit::http::{Effect, Refusal};

/// What the service said, as far as it speaks its own language.
pub(crate) struct Said {
    /// Its machine-readable code; empty if it gave none.
    pub(crate) code: String,
    /// Its words for people.
    message: String,
}

/// Reads `{"error": {"code", "message"}}`; a gateway's answer is not that.
pub(crate) fn said(refusal: &Refusal) -> Said {
    let json = refusal.json();
    let text = |key: &str| json.as_ref().and_then(|json| json.get("error")?.get(key)?.as_str());
    Said {
        code: text("code").unwrap_or_default().to_owned(),
        message: text("message").map_or_else(|| refusal.text(), str::to_owned),
    }
}

/// The error for `what` ("sandbox sbx-run--unit: create"), which was refused.
pub(crate) fn refused(what: &str, effect: Effect, refusal: &Refusal) -> Error {
    let Said { code, message } = said(refusal);
    let (kind, hint) = match (code.as_str(), refusal.status) {
        ("image_not_ready", _) => {
            (ErrorKind::Unavailable, Some("the service still prepares the image; try again in some minutes"))
        }
        ("snapshot_not_found", _) => {
            (ErrorKind::NotFound, Some("it was deleted or has expired: make it anew with prewarm"))
        }
        ("snapshot_region_mismatch", _) => {
            (ErrorKind::InvalidRequest, Some("a snapshot can be used in its own region only: set `region` to that"))
        }
        ("sandbox_stream_closed", _) if effect == Effect::Once => (ErrorKind::Transport, None),
        ("sandbox_stream_closed", _) => (ErrorKind::Unavailable, None),
        ("sandbox_stopping" | "sandbox_snapshotting" | "sandbox_stopped", _) => (ErrorKind::SandboxLost, None),
        (_, 401) => {
            (ErrorKind::Credentials, Some("the token is wrong or has expired; see VERCEL_TOKEN and VERCEL_OIDC_TOKEN"))
        }
        (_, 403) => (
            ErrorKind::Credentials,
            Some("the token has no access to this team or project; see VERCEL_TEAM_ID and VERCEL_PROJECT_ID"),
        ),
        (_, 402) => (ErrorKind::Capacity, Some("the plan's allotment is used up: see the team's usage and billing")),
        (_, 410) => (ErrorKind::SandboxLost, None),
        (_, 413) => (ErrorKind::InvalidRequest, Some("it is larger than the service takes")),
        _ => (refusal.kind(effect), None),
    };
    let code = if code.is_empty() { code } else { format!("{code}: ") };
    let error = refusal.error(what, kind, &format!("{code}{message}"));
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The error of a sandbox that does not run any more.
pub(crate) fn lost(name: &str) -> Error {
    Error::new(ErrorKind::SandboxLost, format!("sandbox {name} does not run any more"))
        .hint("its lifetime was over, or somebody stopped it")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn answer(status: u16, body: &str) -> Refusal {
        Refusal { status, retry_after: None, headers: Default::default(), body: body.to_owned().into() }
    }

    #[test]
    fn the_services_code_counts_before_the_status() {
        let kind = |status, code: &str| {
            let body = format!(r#"{{"error":{{"code":"{code}","message":"words"}}}}"#);
            refused("x", Effect::Once, &answer(status, &body)).kind().clone()
        };
        assert_eq!(kind(409, "image_not_ready"), ErrorKind::Unavailable);
        assert_eq!(kind(410, "snapshot_not_found"), ErrorKind::NotFound);
        assert_eq!(kind(410, "sandbox_stopped"), ErrorKind::SandboxLost);
        assert_eq!(kind(410, "something_new"), ErrorKind::SandboxLost);
        assert_eq!(kind(410, "sandbox_stream_closed"), ErrorKind::Transport);
        assert_eq!(kind(422, "sandbox_stopping"), ErrorKind::SandboxLost);
        assert_eq!(kind(422, "snapshot_region_mismatch"), ErrorKind::InvalidRequest);
        assert_eq!(kind(402, "payment_required"), ErrorKind::Capacity);
        assert_eq!(kind(401, "forbidden"), ErrorKind::Credentials);
    }

    #[test]
    fn answers_without_words_of_the_service_are_told_by_their_status() {
        for body in ["", "<html><body>502 Bad Gateway</body></html>", "null", "{\"error\":\"text\"}"] {
            let error = refused("x", Effect::Once, &answer(502, body));
            assert_eq!(*error.kind(), ErrorKind::Transport, "{body}");
            assert!(error.to_string().contains("HTTP 502") && !error.to_string().contains('<'), "{error}");
            assert_eq!(*refused("x", Effect::Idempotent, &answer(502, body)).kind(), ErrorKind::Unavailable);
        }
        let limited = Refusal { retry_after: Some(Duration::from_secs(7)), ..answer(429, "") };
        let expected = ErrorKind::RateLimited { retry_after: Some(Duration::from_secs(7)) };
        assert_eq!(*refused("x", Effect::Once, &limited).kind(), expected);
    }
}
