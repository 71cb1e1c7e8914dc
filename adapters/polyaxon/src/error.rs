//! From what the API, the gateway or the sandbox's daemon said to what the caller can do about it.

use sandbox_bench_core::{Error, ErrorKind, SandboxRef};
use sandbox_bench_kit::http::{Effect, Refusal};
use serde_json::Value;

/// Most messages of one refusal that are quoted.
const QUOTED: usize = 3;

/// The error of a request that was refused.
///
/// The server answers a failure of its own to any method but GET with 405 and an empty body, as it does for a path that
/// it does not have (seen with 2.18.0): that says nothing about what took effect.
pub(crate) fn refused(what: &str, effect: Effect, refusal: &Refusal) -> Error {
    let json = refusal.json();
    let message = json.as_ref().and_then(message).unwrap_or_else(|| refusal.text());
    let kind = match refusal.status {
        405 if json.is_none() && effect == Effect::Once => ErrorKind::Transport,
        405 if json.is_none() => ErrorKind::Unavailable,
        _ => refusal.kind(effect),
    };
    crate::settings::unknown_identity(refusal.error(what, kind, &message))
}

/// What a refusal says: `["…"]`, `{"detail": …}`, `{"error": {"code", "message"}}`, `{"message": …}` or `{field:
/// ["…"]}`.
fn message(body: &Value) -> Option<String> {
    match body {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Array(all) => joined(all.iter().filter_map(message)),
        Value::Object(fields) => {
            let named = ["detail", "message", "error"].iter().find_map(|name| fields.get(*name).and_then(message));
            named.or_else(|| {
                joined(fields.iter().filter_map(|(name, text)| Some(format!("{name}: {}", message(text)?))))
            })
        }
        _ => None,
    }
}

fn joined(parts: impl Iterator<Item = String>) -> Option<String> {
    let parts: Vec<String> = parts.take(QUOTED).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The error of a sandbox that is not there any more.
pub(crate) fn lost(run: &str, why: &str) -> Error {
    Error::new(ErrorKind::SandboxLost, format!("run {}: {why}", short(run)))
        .hint("its lifetime was over, its cluster ended it, or somebody stopped it")
}

/// The error of a reference to a run that is not ours.
pub(crate) fn not_ours(kind: ErrorKind, reference: &SandboxRef) -> Error {
    Error::new(kind, format!("run {} is not the sandbox {}", short(&reference.id), reference.tag))
}

/// The first characters of a run's id.
pub(crate) fn short(run: &str) -> &str {
    run.get(..12).unwrap_or(run)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn refusal(status: u16, body: &str) -> Refusal {
        let body = Bytes::copy_from_slice(body.as_bytes());
        Refusal { status, retry_after: None, headers: Default::default(), body }
    }

    #[test]
    fn every_form_of_refusal_is_read() {
        for (body, said) in [
            (r#"["1 validation error for V1Operation"]"#, "1 validation error"),
            (r#"{"detail":"No Run matches the given query."}"#, "No Run matches"),
            (r#"{"name":["project with this name already exists."]}"#, "name: project with this name"),
            (r#"{"error":{"code":"not_found","message":"no such file"}}"#, "no such file"),
            (r#"{"message":"over the limit"}"#, "over the limit"),
            ("plain words", "plain words"),
            ("<html>", "an HTML page"),
            ("", "no explanation"),
        ] {
            let error = refused("run", Effect::Idempotent, &refusal(400, body));
            assert!(error.to_string().contains(said), "{body}: {error}");
        }
    }

    #[test]
    fn an_empty_405_hides_what_happened() {
        let kind = |effect, body| refused("run", effect, &refusal(405, body)).kind().clone();
        assert_eq!(kind(Effect::Once, ""), ErrorKind::Transport);
        assert_eq!(kind(Effect::Idempotent, ""), ErrorKind::Unavailable);
        assert_eq!(kind(Effect::Once, r#"{"detail":"Method not allowed."}"#), ErrorKind::InvalidRequest);
    }

    proptest! {
        #[test]
        fn any_body_is_read_without_a_panic(body in "[\\[\\]{}\":a-z,0-9 ]{0,60}", status in 300u16..600) {
            let _ = refused("run", Effect::Once, &refusal(status, &body));
        }
    }
}
