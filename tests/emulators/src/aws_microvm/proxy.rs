//! Endpoints: what is in front of a MicroVM's ports.
//!
//! Answers of the proxy itself are plain text, or empty where nothing answers behind it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use uuid::Uuid;

use super::Aws;
use super::guest;
use super::microvm::{Microvm, Order, State};
use super::microvms::TOKEN_HEADER;
use super::tokens::is_token;
use crate::faults::Flags;
use crate::machine::Machine;

/// How headers for the proxy begin; none of them reaches the MicroVM.
const PROXY: &str = "x-aws-proxy-";
const PORT_HEADER: &str = "x-aws-proxy-port";
/// The port of requests that name none.
const PORT: u16 = 8080;
/// How long a request waits for its MicroVM to resume.
const RESUME_LIMIT: Duration = Duration::from_secs(30);
/// How long a port may take to answer a TLS greeting, or to hang up.
const PROBE: Duration = Duration::from_millis(100);
/// Headers that belong to one connection.
const OF_A_CONNECTION: [&str; 7] =
    ["connection", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];
/// A TLS `ClientHello` with one cipher suite and no extension.
const HELLO: [u8; 50] = {
    let head = [0x16, 3, 1, 0, 0x2d, 1, 0, 0, 0x29, 3, 3];
    let tail = [0, 0, 2, 0x13, 1, 1, 0];
    let mut hello = [0; 50];
    let mut at = 0;
    while at < head.len() {
        hello[at] = head[at];
        at += 1;
    }
    at = 0;
    while at < tail.len() {
        hello[hello.len() - tail.len() + at] = tail[at];
        at += 1;
    }
    hello
};

type Denied = (StatusCode, &'static str);

impl Aws {
    pub(super) async fn proxy(&self, host: &str, request: Request<Body>) -> Response {
        let label = format!("{} {}", request.method(), request.uri().path());
        let strange =
            request.headers().keys().map(|name| name.as_str()).find(|name| {
                name.starts_with(PROXY) && *name != PORT_HEADER && !name.eq_ignore_ascii_case(TOKEN_HEADER)
            });
        if let Some(name) = strange {
            self.emulation.violations.record(label.clone(), format!("header {name} is unknown or not emulated"));
        }
        if !request.headers().contains_key(TOKEN_HEADER) {
            self.emulation.violations.record(label, "a request to an endpoint without a token");
        }
        let flags = request.extensions().get::<Flags>().cloned().unwrap_or_default();
        if flags.has("token-revoked")
            && let Some(token) = request.headers().get(TOKEN_HEADER).and_then(|value| value.to_str().ok())
        {
            self.world().grants.revoke(token);
        }
        let (microvm, port) = match self.admit(host, request.headers()) {
            Ok(admitted) => admitted,
            Err(denied) => return denied.into_response(),
        };
        let Ok(permit) = Arc::clone(&microvm.connections).try_acquire_owned() else {
            return (StatusCode::TOO_MANY_REQUESTS, "Too many connections").into_response();
        };
        let nothing = StatusCode::BAD_GATEWAY.into_response();
        if flags.has("dies") {
            microvm.order(Order::Die);
            return nothing;
        }
        let Some(machine) = self.awake(&microvm).await else { return nothing };
        microvm.touch();
        self.probe(&microvm, &machine, port).await;
        let request = forwarded(request, &microvm);
        match guest::send(&machine, &self.emulation.tasks, port, request).await {
            Some(response) => answered(response, microvm, permit),
            None => nothing,
        }
    }

    /// Who may reach which port of which MicroVM.
    fn admit(&self, host: &str, headers: &HeaderMap) -> Result<(Arc<Microvm>, u16), Denied> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let token = text(TOKEN_HEADER).filter(|token| is_token(token));
        let token = token.ok_or((StatusCode::FORBIDDEN, "Request missing authentication"))?;
        let failed = (StatusCode::FORBIDDEN, "Token authentication failed");
        let world = self.world();
        let grant = world.grants.find(token).filter(|grant| grant.expires > Instant::now()).ok_or(failed)?;
        let microvm = world.microvm_at(host).filter(|microvm| microvm.id == grant.microvm).ok_or(failed)?;
        let port = match headers.get(PORT_HEADER) {
            Some(value) => value.to_str().ok().and_then(|text| text.parse().ok()).filter(|port| *port > 0),
            None => Some(PORT),
        };
        let port = port.ok_or((StatusCode::BAD_REQUEST, "Invalid port"))?;
        if !grant.ports.iter().any(|ports| ports.covers(port)) {
            return Err((StatusCode::FORBIDDEN, "Access to port denied"));
        }
        Ok((microvm, port))
    }

    /// Its machine, if it runs, or resumes by itself.
    async fn awake(&self, microvm: &Microvm) -> Option<Arc<Machine>> {
        let resumes = microvm.plan.idle.is_some_and(|idle| idle.auto_resume_enabled);
        if resumes && matches!(microvm.state(), State::Suspending | State::Suspended) {
            let mut states = microvm.states();
            let resumed = async {
                while states
                    .wait_for(|state| *state != State::Suspending)
                    .await
                    .is_ok_and(|state| *state == State::Suspended)
                {
                    microvm.order(Order::Resume);
                    let _ = states.changed().await;
                }
            };
            let _ = tokio::time::timeout(RESUME_LIMIT, resumed).await;
        }
        microvm.machine().filter(|_| microvm.state() == State::Running && microvm.reachable())
    }

    /// The proxy finds out whether a port speaks TLS: what listens there must bear a greeting that it does not understand.
    async fn probe(&self, microvm: &Microvm, machine: &Machine, port: u16) {
        let mut probed = microvm.probed.lock().await;
        if probed.contains(&port) {
            return;
        }
        if let Ok((mut stream, carry)) = machine.connect(port) {
            self.emulation.tasks.spawn(carry);
            // Whatever the answer is, it is plain HTTP then.
            let greeted = async { stream.write_all(&HELLO).await.is_ok() && stream.read_u8().await.is_ok() };
            let _ = tokio::time::timeout(PROBE, greeted).await;
        }
        probed.push(port);
    }
}

fn forwarded(request: Request<Body>, microvm: &Arc<Microvm>) -> Request<Body> {
    let (mut head, body) = request.into_parts();
    let ours: Vec<_> = head.headers.keys().filter(|name| name.as_str().starts_with(PROXY)).cloned().collect();
    for name in ours {
        head.headers.remove(name);
    }
    strip(&mut head.headers);
    if let Ok(id) = HeaderValue::try_from(Uuid::new_v4().to_string()) {
        head.headers.insert("x-amzn-requestid", id);
    }
    Request::from_parts(head, counted(body, Arc::clone(microvm), None))
}

fn answered(response: Response, microvm: Arc<Microvm>, permit: OwnedSemaphorePermit) -> Response {
    let (mut head, body) = response.into_parts();
    strip(&mut head.headers);
    Response::from_parts(head, counted(body, microvm, Some(permit)))
}

fn strip(headers: &mut HeaderMap) {
    for name in OF_A_CONNECTION {
        headers.remove(name);
    }
    headers.remove(header::PROXY_AUTHORIZATION);
}

/// Bytes that pass are traffic. The permit is held as long as they do.
fn counted(body: Body, microvm: Arc<Microvm>, permit: Option<OwnedSemaphorePermit>) -> Body {
    if body.is_end_stream() {
        return Body::empty();
    }
    Body::from_stream(body.into_data_stream().inspect(move |_| {
        let _held = &permit;
        microvm.touch();
    }))
}
