//! From what the service said to what the caller can do about it.
//!
//! A retry policy in the status counts first, then its code. (The vendor's own reading: Python package modal 1.6.4,
//! `modal/_utils/grpc_utils.py`.)

use std::error::Error as _;
use std::time::Duration;

use prost::Message;
use sandbox_bench_core::{Error, ErrorKind};
use tonic::{Code, Status};

use crate::proto::client::{RpcRetryPolicy, RpcStatus};

/// Most characters of a foreign text that an error quotes.
const QUOTED: usize = 300;
/// The least that a retry policy asks for.
const SHORTEST_WAIT: f32 = 0.1;
/// The longest that is believed.
const LONGEST_WAIT: f32 = 3600.0;

/// Whether a request changes something at the service, and so whether it may be repeated when its answer is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It asks only, or doing it twice is the same as doing it once.
    Idempotent,
    /// Doing it twice is not the same as doing it once.
    Once,
}

/// The error for `what` ("sandbox sb-1: terminate"), which was refused or not answered.
pub(crate) fn refused(what: &str, effect: Effect, status: &Status) -> Error {
    let message = text(status);
    let (kind, hint) = match (retry_after(status), status.code()) {
        (Some(wait), _) => (ErrorKind::RateLimited { retry_after: Some(wait) }, None),
        (None, Code::InvalidArgument | Code::OutOfRange) => (ErrorKind::InvalidRequest, None),
        (None, Code::NotFound) => (ErrorKind::NotFound, None),
        (None, Code::AlreadyExists) => {
            (ErrorKind::InvalidRequest, Some("it exists already: find and destroy it first"))
        }
        (None, Code::Unauthenticated) => (
            ErrorKind::Credentials,
            Some("the token is wrong or was revoked; see MODAL_TOKEN_ID, MODAL_TOKEN_SECRET and ~/.modal.toml"),
        ),
        (None, Code::PermissionDenied) => {
            (ErrorKind::Credentials, Some("the token may not do this in this workspace or environment"))
        }
        (None, Code::ResourceExhausted) if message.to_lowercase().contains("rate limit") => {
            (ErrorKind::RateLimited { retry_after: None }, None)
        }
        (None, Code::ResourceExhausted) => {
            (ErrorKind::Capacity, Some("a limit of the workspace is reached: see its plan and its usage"))
        }
        (None, Code::FailedPrecondition) if message.to_lowercase().contains("client") => {
            (ErrorKind::Failed, Some("the service refuses this version of the client; try `client = \"python\"`"))
        }
        (None, Code::FailedPrecondition) => (ErrorKind::InvalidRequest, None),
        // A conflict with something at the same time: nothing took effect.
        (None, Code::Aborted) => (ErrorKind::Unavailable, None),
        (None, Code::Unimplemented) => (ErrorKind::Unsupported, None),
        (None, Code::DataLoss | Code::Ok) => (ErrorKind::Failed, None),
        (None, Code::Cancelled | Code::Unknown | Code::DeadlineExceeded | Code::Unavailable | Code::Internal) => {
            match effect {
                Effect::Once if !unsent(status) => (ErrorKind::Transport, None),
                _ if unsent(status) => {
                    (ErrorKind::Unavailable, Some("is the address right, and does the service answer from here?"))
                }
                _ => (ErrorKind::Unavailable, None),
            }
        }
    };
    let error = Error::new(kind, format!("{what}: {:?}: {message}", status.code()));
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// What was said, as one short line for people.
fn text(status: &Status) -> String {
    let line: String = status.message().chars().map(|c| if c.is_control() { ' ' } else { c }).take(QUOTED).collect();
    if line.trim().is_empty() { "no explanation".to_owned() } else { line.trim().to_owned() }
}

/// How long the service asks to wait, if it does. Nothing took effect then.
pub(crate) fn retry_after(status: &Status) -> Option<Duration> {
    let all = RpcStatus::decode(status.details()).ok()?.details;
    let policy = all.into_iter().find(|detail| detail.type_url.ends_with("/modal.client.RPCRetryPolicy"))?;
    let seconds = RpcRetryPolicy::decode(policy.value.as_slice()).ok()?.retry_after_secs;
    let seconds = if seconds.is_nan() { SHORTEST_WAIT } else { seconds.clamp(SHORTEST_WAIT, LONGEST_WAIT) };
    Some(Duration::from_secs_f32(seconds))
}

/// True if the same request may go better a moment later: the connection broke, or the service stumbled.
pub(crate) fn passing(status: &Status) -> bool {
    let codes = [Code::Cancelled, Code::Unknown, Code::DeadlineExceeded, Code::Unavailable, Code::Internal];
    codes.contains(&status.code()) || retry_after(status).is_some()
}

/// True if the service was never reached, so that nothing can have taken effect.
pub(crate) fn unsent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The error of a sandbox that has ended, or never came to run.
pub(crate) fn lost(id: &str, why: &str) -> Error {
    Error::new(ErrorKind::SandboxLost, format!("sandbox {id} does not run any more: {why}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use prost_types::Any;

    use super::*;

    /// A status that asks to wait.
    pub(crate) fn throttled(code: Code, seconds: f32) -> Status {
        let value = RpcRetryPolicy { retry_after_secs: seconds }.encode_to_vec();
        let policy = Any { type_url: "type.modal.com/modal.client.RPCRetryPolicy".into(), value };
        let other = Any { type_url: "type.googleapis.com/google.rpc.DebugInfo".into(), value: vec![1, 2] };
        let details = RpcStatus { code: code as i32, message: String::new(), details: vec![other, policy] };
        Status::with_details(code, "slow down", details.encode_to_vec().into())
    }

    fn kind(effect: Effect, status: &Status) -> ErrorKind {
        refused("x", effect, status).kind().clone()
    }

    #[test]
    fn a_retry_policy_counts_before_any_code() {
        for code in [Code::ResourceExhausted, Code::Unavailable, Code::Unauthenticated] {
            for (seconds, wait) in [(2.5, 2.5), (0.0, 0.1), (-1.0, 0.1), (f32::NAN, 0.1), (1e30, 3600.0)] {
                let expected = ErrorKind::RateLimited { retry_after: Some(Duration::from_secs_f32(wait)) };
                assert_eq!(kind(Effect::Once, &throttled(code, seconds)), expected);
            }
        }
    }

    #[test]
    fn each_code_says_what_may_be_done() {
        let of = |code, text: &str| kind(Effect::Idempotent, &Status::new(code, text));
        assert_eq!(of(Code::InvalidArgument, ""), ErrorKind::InvalidRequest);
        assert_eq!(of(Code::NotFound, ""), ErrorKind::NotFound);
        assert_eq!(of(Code::Unauthenticated, ""), ErrorKind::Credentials);
        assert_eq!(of(Code::PermissionDenied, ""), ErrorKind::Credentials);
        assert_eq!(of(Code::ResourceExhausted, "too many containers"), ErrorKind::Capacity);
        let limited = ErrorKind::RateLimited { retry_after: None };
        assert_eq!(of(Code::ResourceExhausted, "Sandbox creation rate limit exceeded"), limited);
        assert_eq!(of(Code::FailedPrecondition, "Old client"), ErrorKind::Failed);
        assert_eq!(of(Code::FailedPrecondition, "conflict"), ErrorKind::InvalidRequest);
        assert_eq!(of(Code::Unimplemented, ""), ErrorKind::Unsupported);
    }

    #[test]
    fn a_broken_answer_hides_an_effect_only_where_there_is_one() {
        for code in [Code::Unavailable, Code::Internal, Code::Unknown, Code::Cancelled, Code::DeadlineExceeded] {
            let status = Status::new(code, "broke");
            assert!(passing(&status));
            assert_eq!(kind(Effect::Idempotent, &status), ErrorKind::Unavailable);
            assert_eq!(kind(Effect::Once, &status), ErrorKind::Transport);
        }
        assert!(!passing(&Status::not_found("x")));
    }

    proptest! {
        #[test]
        fn any_status_is_read_without_a_panic(code in 0i32..20, text in ".{0,400}", details in prop::collection::vec(any::<u8>(), 0..60)) {
            let status = Status::with_details(Code::from(code), text, details.into());
            let error = refused("x", Effect::Once, &status).to_string();
            prop_assert!(!error.contains('\n'));
        }
    }
}
