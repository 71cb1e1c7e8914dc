//! Who asks, what they may do, and how often.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::failure::Failure;
use super::options::Permission;
use super::rates::Counter;
use super::record::State as SandboxState;
use super::state::Daytona;

/// Names the organization; needed with a JWT.
const ORGANIZATION: &str = "x-daytona-organization-id";

/// Checks credentials, permissions and rate limits of an API call.
pub(super) async fn api(State(daytona): State<Arc<Daytona>>, request: Request, next: Next) -> Response {
    if let Err(failure) = check(&daytona, request.headers(), needed(request.method(), request.uri().path())) {
        return failure.into_response();
    }
    let count = daytona.rates.count(Counter::of(request.method(), request.uri().path()));
    let mut response = if count.allowed {
        next.run(request).await
    } else {
        Failure::api(StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded").into_response()
    };
    response.headers_mut().extend(count.headers);
    response
}

/// Checks credentials of a call to the toolbox proxy, and ends it when the sandbox goes down under it.
pub(super) async fn toolbox(State(daytona): State<Arc<Daytona>>, request: Request, next: Next) -> Response {
    if let Err(why) = identify(&daytona, request.headers()) {
        let message = format!("authentication failed: {why}");
        return Failure::proxy(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", message).into_response();
    }
    let id = request.uri().path().split('/').nth(2).unwrap_or_default();
    let sandbox = daytona.sandbox_by_id(id).filter(|sandbox| sandbox.record().state == SandboxState::Started);
    let Some(sandbox) = sandbox else { return next.run(request).await };
    tokio::select! {
        response = next.run(request) => response,
        () = sandbox.down() => {
            Failure::proxy(StatusCode::BAD_GATEWAY, "BAD_GATEWAY", "proxy error: connection refused").into_response()
        }
    }
}

enum Identity {
    Key,
    User,
}

fn identify(daytona: &Daytona, headers: &HeaderMap) -> Result<Identity, &'static str> {
    let header = headers.get(header::AUTHORIZATION).ok_or("no credentials")?;
    let token = header.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")).ok_or("not a bearer token")?;
    let organization = headers.get(ORGANIZATION).map(header::HeaderValue::as_bytes);
    if token == daytona.options.api_key {
        Ok(Identity::Key)
    } else if token == daytona.options.jwt && organization == Some(daytona.organization_id().as_bytes()) {
        Ok(Identity::User)
    } else {
        Err("Invalid credentials")
    }
}

fn check(daytona: &Daytona, headers: &HeaderMap, needed: Option<Permission>) -> Result<(), Failure> {
    let unauthorized = |why: &str| Failure::api(StatusCode::UNAUTHORIZED, why);
    let identity = identify(daytona, headers).map_err(|why| match headers.contains_key(header::AUTHORIZATION) {
        true => unauthorized(why),
        false => unauthorized(why).violation(),
    })?;
    match (identity, needed) {
        (Identity::Key, Some(permission)) if !daytona.options.permissions.contains(&permission) => {
            Err(Failure::api(StatusCode::FORBIDDEN, "Forbidden resource"))
        }
        _ => Ok(()),
    }
}

/// The permission that a call needs.
fn needed(method: &Method, path: &str) -> Option<Permission> {
    let (sandbox, snapshot) = (path.starts_with("/api/sandbox"), path.starts_with("/api/snapshots"));
    match *method {
        Method::DELETE if sandbox => Some(Permission::DeleteSandboxes),
        Method::DELETE if snapshot => Some(Permission::DeleteSnapshots),
        Method::POST | Method::PUT if path.ends_with("/snapshot") => Some(Permission::WriteSnapshots),
        Method::POST | Method::PUT if sandbox => Some(Permission::WriteSandboxes),
        Method::POST | Method::PUT if snapshot => Some(Permission::WriteSnapshots),
        _ => None,
    }
}
