//! Errors in the vendor's forms.
//!
//! Handlers return a [`Failure`]; the outermost layer ([`render`]) writes its body, as it knows path and method, and
//! records it if the request itself was wrong.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::state::Daytona;
use crate::machine::MachineError;

/// Which part of the platform answers; each has its own form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Api,
    /// With the daemon's code.
    Daemon(&'static str),
    /// With the proxy's code.
    Proxy(&'static str),
    /// A failure that the daemon does not map.
    Unmapped,
    /// No body at all, as several file endpoints answer.
    Empty,
}

#[derive(Clone, Debug)]
pub(super) struct Failure {
    status: StatusCode,
    message: String,
    form: Form,
    violation: bool,
}

/// What handlers return.
pub(super) type Answer<T = Response> = Result<T, Failure>;

impl Failure {
    fn new(status: StatusCode, message: impl Into<String>, form: Form) -> Failure {
        Failure { status, message: message.into(), form, violation: false }
    }

    pub(super) fn api(status: StatusCode, message: impl Into<String>) -> Failure {
        Failure::new(status, message, Form::Api)
    }

    /// The API's 400.
    pub(super) fn bad(message: impl Into<String>) -> Failure {
        Failure::api(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn daemon(status: StatusCode, code: &'static str, message: impl Into<String>) -> Failure {
        Failure::new(status, message, Form::Daemon(code))
    }

    pub(super) fn proxy(status: StatusCode, code: &'static str, message: impl Into<String>) -> Failure {
        Failure::new(status, message, Form::Proxy(code))
    }

    pub(super) fn unmapped(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message, Form::Unmapped)
    }

    pub(super) fn empty(status: StatusCode, message: impl Into<String>) -> Failure {
        Failure::new(status, message, Form::Empty)
    }

    /// No correct client sends this.
    #[must_use]
    pub(super) fn violation(self) -> Failure {
        Failure { violation: true, ..self }
    }

    fn body(&self, method: &Method, path: &str) -> Option<Value> {
        let (status, message, now) = (self.status.as_u16(), &self.message, Timestamp::now().to_string());
        let named = |code: &str, source: &str| {
            json!({
                "statusCode": status, "message": message, "code": code, "timestamp": now, "path": path,
                "method": method.as_str(), "source": source,
            })
        };
        match self.form {
            Form::Api => Some(json!({
                "path": path, "timestamp": now, "statusCode": status, "message": message,
                "error": self.status.canonical_reason().unwrap_or("Error"),
            })),
            Form::Daemon(code) => Some(named(code, "DAYTONA_DAEMON")),
            Form::Proxy(code) => Some(named(code, "DAYTONA_PROXY")),
            Form::Unmapped => {
                Some(json!({"statusCode": status, "message": message, "timestamp": "0001-01-01T00:00:00Z", "path": ""}))
            }
            Form::Empty => None,
        }
    }
}

impl From<MachineError> for Failure {
    fn from(error: MachineError) -> Failure {
        Failure::unmapped(error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the bodies of failures, and records those that are violations.
pub(super) async fn render(State(daytona): State<Arc<Daytona>>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = next.run(request).await;
    let Some(failure) = response.extensions_mut().remove::<Failure>() else { return response };
    if failure.violation {
        daytona.emulation.violations.record(format!("{method} {path}"), failure.message.as_str());
    }
    if let Some(body) = failure.body(&method, &path) {
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(body.to_string());
    }
    response
}

/// The answer to a route or method that does not exist.
pub(super) async fn no_route(request: Request) -> Failure {
    let message = format!("Cannot {} {}", request.method(), request.uri().path());
    Failure::api(StatusCode::NOT_FOUND, message).violation()
}
