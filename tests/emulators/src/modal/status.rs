//! Refusals, in the vendor's form.

use std::time::Duration;

use prost::Message;
use prost_types::Any;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use super::proto::client::{RpcRetryPolicy, RpcStatus};

/// Metadata of a refusal that is to be recorded; it does not leave the emulator.
pub(super) const VIOLATION: &str = "x-emulator-violation";

/// The request is one that no correct client sends.
pub(super) fn violation(what: impl Into<String>) -> Status {
    violating(Status::invalid_argument(what))
}

/// This refusal is the client's fault.
pub(super) fn violating(mut status: Status) -> Status {
    status.metadata_mut().insert(VIOLATION, MetadataValue::from_static("1"));
    status
}

/// `RESOURCE_EXHAUSTED` with the policy that tells clients when to try again.
pub(super) fn throttled(after: Duration) -> Status {
    let message = "Too many requests; try again later.";
    let policy = RpcRetryPolicy { retry_after_secs: after.as_secs_f32() };
    let details = RpcStatus {
        code: Code::ResourceExhausted as i32,
        message: message.to_owned(),
        details: vec![Any {
            type_url: "type.modal.com/modal.client.RPCRetryPolicy".to_owned(),
            value: policy.encode_to_vec(),
        }],
    };
    Status::with_details(Code::ResourceExhausted, message, details.encode_to_vec().into())
}

/// Something does not exist.
pub(super) fn missing(kind: &str, name: &str) -> Status {
    Status::not_found(format!("{kind} {name:?} not found"))
}

/// The emulator itself failed.
pub(super) fn internal(error: impl std::fmt::Display) -> Status {
    Status::internal(format!("Internal error: {error}"))
}
