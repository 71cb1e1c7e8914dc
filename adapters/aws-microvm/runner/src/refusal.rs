//! Answers that say no: `{"error": {"code", "message"}}`.

use std::io;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why a request is refused. Codes are part of the protocol, messages are for people.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    size: Option<u64>,
}

pub(crate) type Answer<T = Response> = Result<T, Refusal>;

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), size: None }
    }

    /// 400: the request itself is wrong.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::named("bad_request", message)
    }

    /// 400 with a code of its own.
    pub(crate) fn named(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// 401: no token, or a wrong one.
    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "the bearer token is missing or wrong")
    }

    /// 404: no such job, file, route.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// 405: the route has no such method.
    pub(crate) fn method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "bad_request", "no such method here")
    }

    /// 409: it contradicts what is there.
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    /// 409 of an append, with the file's size, from which a client can go on.
    pub(crate) fn wrong_size(size: u64) -> Self {
        Self { size: Some(size), ..Self::conflict(format!("the file has {size} bytes")) }
    }

    /// 413: more than one request may carry.
    pub(crate) fn too_large(limit: u64) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("more than {limit} bytes"))
    }

    /// 416: behind the file's end.
    pub(crate) fn bad_offset(size: u64) -> Self {
        Self::new(StatusCode::RANGE_NOT_SATISFIABLE, "bad_offset", format!("the file has {size} bytes"))
    }

    /// 429: too much at one time.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", message)
    }

    /// 500: the MicroVM cannot do it.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// 503: the hook `run` has not come yet.
    pub(crate) fn not_bootstrapped() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_bootstrapped", "no token has arrived by the hook `run` yet")
    }

    /// What an error of the file system means to a client that asks for what is there: below a file there is nothing.
    pub(crate) fn of_reading(path: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotADirectory => Self::not_found(format!("{path}: {error}")),
            _ => Self::of_file(path, error),
        }
    }

    /// What an error of the file system means to the client.
    pub(crate) fn of_file(path: &str, error: &io::Error) -> Self {
        use io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
        let message = format!("{path}: {error}");
        match error.kind() {
            NotFound => Self::not_found(message),
            IsADirectory | NotADirectory | PermissionDenied | ReadOnlyFilesystem => Self::bad(message),
            _ => Self::internal(message),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let (Some(size), Value::Object(error)) = (self.size, &mut error) {
            error.insert("size".to_owned(), size.into());
        }
        (self.status, Json(json!({ "error": error }))).into_response()
    }
}
