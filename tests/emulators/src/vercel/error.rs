//! Refusals, in the vendor's form.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// The vendor's answer to a request that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
    /// Seconds.
    pub(super) retry_after: Option<u64>,
    /// The request breaks the protocol: no client that follows the documentation sends it.
    pub(super) violation: bool,
}

pub(super) type Result<T> = std::result::Result<T, ApiError>;

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, code, message: message.into(), retry_after: None, violation: false }
    }

    /// A request that makes no sense: a fact about its values, not about the client.
    pub(super) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// A request that the documented protocol does not contain.
    pub(super) fn violation(message: impl Into<String>) -> ApiError {
        ApiError { violation: true, ..ApiError::bad_request(message) }
    }

    pub(super) fn not_found(what: impl std::fmt::Display) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("{what} not found."))
    }

    pub(super) fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(super) fn conflict(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::CONFLICT, "conflict", message)
    }

    /// The session is over. Clients resume on any 410.
    pub(super) fn stopped() -> ApiError {
        ApiError::new(StatusCode::GONE, "sandbox_stopped", "Sandbox has stopped execution and is no longer available.")
    }

    pub(super) fn rate_limited(message: impl Into<String>, seconds: u64) -> ApiError {
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message);
        ApiError { retry_after: Some(seconds.max(1)), ..error }
    }

    pub(super) fn internal(error: impl std::fmt::Display) -> ApiError {
        let message = format!("Internal error: {error}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error", message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "code": self.code, "message": self.message } });
        let mut response = (self.status, axum::Json(body)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
