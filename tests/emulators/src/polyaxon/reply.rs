//! Answers in the forms of the API, the gateway and the daemon.

use std::io::Write;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

/// What a handler answers.
pub(super) type Reply = Response<Body>;

/// JSON, compressed whenever that makes it smaller, as the open-source server does whatever the request accepts.
pub(super) fn api(status: StatusCode, body: &Value) -> Reply {
    let plain = body.to_string().into_bytes();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let packed = encoder.write_all(&plain).and_then(|()| encoder.finish()).unwrap_or_default();
    let smaller = plain.len() > 200 && packed.len() < plain.len();
    let mut reply = Response::new(Body::from(if smaller { packed } else { plain }));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if smaller {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    reply
}

/// The API's 404.
pub(super) fn missing(what: &str) -> Reply {
    api(StatusCode::NOT_FOUND, &json!({ "detail": format!("No {what} matches the given query.") }))
}

/// The API's answer to a specification that is none.
pub(super) fn invalid(why: impl Into<String>) -> Reply {
    api(StatusCode::BAD_REQUEST, &json!([why.into()]))
}

/// The API's answer to any method but GET on a path that it does not have, and to failures of its own.
pub(super) fn empty_405() -> Reply {
    (StatusCode::METHOD_NOT_ALLOWED, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], "").into_response()
}

/// The gateway's own words.
pub(super) fn plain(status: StatusCode, text: &'static str) -> Reply {
    (status, text).into_response()
}

/// The gateway found nobody to forward to.
pub(super) fn bad_gateway() -> Reply {
    let page = "<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>";
    (StatusCode::BAD_GATEWAY, [(header::CONTENT_TYPE, "text/html")], page).into_response()
}

/// The daemon's answer.
pub(super) fn daemon(status: StatusCode, body: &Value) -> Reply {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// The daemon's refusal.
pub(super) fn refused(status: StatusCode, code: &str, message: impl Into<String>) -> Reply {
    daemon(status, &json!({ "error": { "code": code, "message": message.into() } }))
}
