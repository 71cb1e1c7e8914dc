//! Strict bodies and queries: unknown or ill-typed fields are refused and recorded.

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::failure::Failure;

/// A JSON body; its type names every field that the vendor knows.
pub(super) struct Strict<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Strict<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Strict<T>, Failure> {
        let toolbox = request.uri().path().starts_with("/toolbox/");
        let refuse = |message: String| match toolbox {
            true => Failure::daemon(StatusCode::BAD_REQUEST, "INVALID_REQUEST_BODY", message).violation(),
            false => Failure::bad(message).violation(),
        };
        let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        // The daemon takes every body for JSON, and the official client sends one without a type (`/env`).
        let typed = content_type.map_or(toolbox, |kind| kind.starts_with("application/json"));
        if !typed {
            return Err(refuse(format!("Content-Type is {content_type:?}, not application/json")));
        }
        let bytes = Bytes::from_request(request, state).await.map_err(|error| refuse(error.to_string()))?;
        serde_json::from_slice(&bytes).map(Strict).map_err(|error| refuse(error.to_string()))
    }
}

/// A query; its type names every parameter that the vendor knows.
pub(super) struct StrictQuery<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for StrictQuery<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<StrictQuery<T>, Failure> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(query)| StrictQuery(query)).map_err(|error: QueryRejection| {
            let message = error.body_text();
            if parts.uri.path().starts_with("/toolbox/") {
                Failure::daemon(StatusCode::BAD_REQUEST, "BAD_REQUEST", message).violation()
            } else {
                Failure::bad(message).violation()
            }
        })
    }
}

/// No query at all.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoQuery {}
