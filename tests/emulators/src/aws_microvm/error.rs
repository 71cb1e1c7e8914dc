//! Refusals, in the service's form: the name in a header, the message in the body.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Names an error, as the clients look for it.
pub(super) const ERROR_TYPE: &str = "x-amzn-errortype";

/// The service's answer to a request that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) kind: Kind,
    /// `None` is the `null` that the live service sometimes sends.
    pub(super) message: Option<String>,
    /// The request breaks the protocol: no client that follows the model sends it.
    pub(super) violation: bool,
}

pub(super) type Result<T> = std::result::Result<T, ApiError>;

/// The exceptions of the service model, and those that every AWS service answers before it looks at the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Validation,
    NotFound,
    Conflict,
    Quota,
    Throttling,
    /// Tag operations have names of their own.
    InvalidParameter,
    Serialization,
    UnknownOperation,
    MissingToken,
    UnrecognizedClient,
    InvalidSignature,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Validation => "ValidationException",
            Kind::NotFound => "ResourceNotFoundException",
            Kind::Conflict => "ConflictException",
            Kind::Quota => "ServiceQuotaExceededException",
            Kind::Throttling => "ThrottlingException",
            Kind::InvalidParameter => "InvalidParameterValueException",
            Kind::Serialization => "SerializationException",
            Kind::UnknownOperation => "UnknownOperationException",
            Kind::MissingToken => "MissingAuthenticationTokenException",
            Kind::UnrecognizedClient => "UnrecognizedClientException",
            Kind::InvalidSignature => "InvalidSignatureException",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Kind::Validation | Kind::InvalidParameter | Kind::Serialization => StatusCode::BAD_REQUEST,
            Kind::Quota => StatusCode::PAYMENT_REQUIRED,
            Kind::MissingToken | Kind::UnrecognizedClient | Kind::InvalidSignature => StatusCode::FORBIDDEN,
            Kind::NotFound | Kind::UnknownOperation => StatusCode::NOT_FOUND,
            Kind::Conflict => StatusCode::CONFLICT,
            Kind::Throttling => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Members beside the message; the live service leaves all of them null.
    fn members(self) -> &'static [&'static str] {
        match self {
            Kind::NotFound | Kind::Conflict => &["resourceId", "resourceType"],
            Kind::Quota => &["quotaCode", "resourceId", "resourceType", "serviceCode"],
            Kind::Throttling => &["quotaCode", "serviceCode"],
            Kind::InvalidParameter => &["Type"],
            _ => &[],
        }
    }
}

impl ApiError {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> ApiError {
        ApiError { kind, message: Some(message.into()), violation: false }
    }

    /// A value that makes no sense for the account as it is; a correct client can meet it.
    pub(super) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(Kind::Validation, message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(Kind::NotFound, message)
    }

    pub(super) fn conflict(message: impl Into<String>) -> ApiError {
        ApiError::new(Kind::Conflict, message)
    }

    /// What no client that follows the service model sends.
    pub(super) fn violation(kind: Kind, message: impl Into<String>) -> ApiError {
        ApiError { violation: true, ..ApiError::new(kind, message) }
    }

    /// A path and method that the service does not have.
    pub(super) fn no_operation() -> ApiError {
        ApiError::violation(Kind::UnknownOperation, "Unknown operation")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut body = json!({ "message": self.message });
        for member in self.kind.members() {
            body[*member] = Value::Null;
        }
        let mut response = (self.kind.status(), axum::Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(ERROR_TYPE, HeaderValue::from_static(self.kind.name()));
        if self.kind == Kind::Throttling {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
