//! What every request passes: the fault script's refusals, the headers that clients must send, and the record of what they
//! do wrong.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response};
use axum::middleware::Next;
use tonic::{Code, Status};

use super::status::{VIOLATION, throttled, violating, violation};
use super::{Modal, Result};
use crate::Flags;

const CONTROL: &str = "/modal.client.ModalClient/";
const ROUTER: &str = "/modal.task_command_router.TaskCommandRouter/";

/// What a token for the control plane's sandbox methods is for.
pub(super) const AUTH: &str = "auth";

/// Who asks the control plane. A request extension.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// Not the Python client: it wants `https` in addresses, and then speaks plaintext to a local one all the same.
    pub(super) libmodal: bool,
    pub(super) idempotency_key: Option<String>,
}

/// The task that a router token is for. A request extension.
#[derive(Clone, Debug)]
pub(super) struct TaskClaim(pub(super) String);

pub(super) async fn pass(State(modal): State<Arc<Modal>>, mut request: Request, next: Next) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let flags = request.extensions().get::<Flags>().cloned().unwrap_or_default();
    if let Some(status) = scripted(&flags) {
        return status.into_http();
    }
    let mut response = match modal.admit(&path, &mut request) {
        Ok(()) => next.run(request).await,
        Err(status) => status.into_http(),
    };
    modal.record(&path, response.headers_mut());
    match flags.value("late-status") {
        Some(code) => Status::new(code_of(code), "Lost after it was done.").into_http(),
        None => response,
    }
}

/// The refusal that a fault script asks for, before anything is done.
fn scripted(flags: &Flags) -> Option<Status> {
    let throttle = flags.value("throttle").map(|ms| throttled(Duration::from_millis(ms)));
    throttle.or_else(|| flags.value("status").map(|code| Status::new(code_of(code), "Refused by the fault script.")))
}

fn code_of(number: u64) -> Code {
    Code::from_i32(i32::try_from(number).unwrap_or(Code::Unknown as i32))
}

impl Modal {
    fn admit(&self, path: &str, request: &mut Request) -> Result<()> {
        if let Some(method) = path.strip_prefix(CONTROL) {
            let caller = self.caller(method, request.headers())?;
            request.extensions_mut().insert(caller);
        } else if path.starts_with(ROUTER) {
            let claim = self.claim(request.headers())?;
            request.extensions_mut().insert(claim);
        }
        Ok(())
    }

    fn caller(&self, method: &str, headers: &HeaderMap) -> Result<Caller> {
        let kind = needed(headers, "x-modal-client-type")?;
        needed(headers, "x-modal-client-version")?;
        let libmodal = match kind {
            "1" | "3" => false,
            "7" | "8" | "9" => true,
            _ => return Err(violation(format!("x-modal-client-type: no client has the type {kind:?}"))),
        };
        needed(headers, if libmodal { "x-modal-libmodal-version" } else { "x-modal-python-version" })?;
        let credentials =
            (needed_credential(headers, "x-modal-token-id")?, needed_credential(headers, "x-modal-token-secret")?);
        if credentials != (self.options.token_id.as_str(), self.options.token_secret.as_str()) {
            return Err(Status::unauthenticated("Token missing or invalid."));
        }
        if method.ends_with("V2") || method == "SandboxGetCommandRouterAccess" {
            let token = needed_credential(headers, "x-modal-auth-token")?;
            if self.signer.purpose(token).as_deref() != Some(AUTH) {
                return Err(Status::unauthenticated("The auth token is invalid or has expired."));
            }
        }
        let idempotency_key = header(headers, "x-idempotency-key").map(str::to_owned);
        if method == "SandboxCreateV2" && idempotency_key.is_none() {
            return Err(violation("x-idempotency-key is missing: official clients send it with every unary call"));
        }
        Ok(Caller { libmodal, idempotency_key })
    }

    fn claim(&self, headers: &HeaderMap) -> Result<TaskClaim> {
        if header(headers, "x-modal-token-secret").is_some() {
            return Err(violation("x-modal-token-secret is none of the router's business"));
        }
        let authorization = needed_credential(headers, "authorization")?;
        let token = authorization.strip_prefix("Bearer ");
        let token = token.ok_or_else(|| violating(Status::unauthenticated("authorization must be a bearer token")))?;
        let purpose = self.signer.purpose(token).filter(|purpose| purpose != AUTH);
        Ok(TaskClaim(purpose.ok_or_else(|| Status::unauthenticated("The token is invalid or has expired."))?))
    }

    /// Notes a refusal that is the client's fault; what marks it does not leave the emulator.
    fn record(&self, path: &str, headers: &mut HeaderMap) {
        let marked = headers.remove(VIOLATION).is_some();
        let status = Status::from_header_map(headers);
        if let Some(status) = status.filter(|status| marked || status.code() == Code::Unimplemented) {
            let what = if marked { status.message() } else { "there is no such method" };
            self.emulation.violations.record(path, what);
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).filter(|value| !value.is_empty())
}

fn needed<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str> {
    header(headers, name).ok_or_else(|| violation(format!("{name} is missing")))
}

fn needed_credential<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str> {
    header(headers, name).ok_or_else(|| violating(Status::unauthenticated(format!("{name} is missing"))))
}
