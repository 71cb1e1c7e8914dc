//! The toolbox proxy, and the daemon inside each sandbox behind it: `/toolbox/{id}/…`.

mod bulk;
mod execute;
mod files;
mod follow;
mod markers;
mod pty;
mod routes;
mod session;
mod shell;
mod system;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;

pub(super) use self::session::Sessions;
use super::failure::Failure;
use super::record::State;
use super::sandbox::Sandbox;
use super::state::Daytona;
use crate::machine::Machine;

/// A request with this header does not count as activity.
const SKIP_ACTIVITY: &str = "x-daytona-skip-last-activity-update";

pub(super) fn router() -> Router<Arc<Daytona>> {
    Router::new().merge(routes::router()).merge(files::router()).merge(system::router()).merge(pty::router())
}

/// A started sandbox and its machine.
struct Toolbox {
    sandbox: Arc<Sandbox>,
    machine: Arc<Machine>,
    sessions: Arc<Sessions>,
}

impl FromRequestParts<Arc<Daytona>> for Toolbox {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, daytona: &Arc<Daytona>) -> Result<Toolbox, Failure> {
        let path = Path::<BTreeMap<String, String>>::from_request_parts(parts, daytona).await;
        let id = path.ok().and_then(|Path(mut path)| path.remove("id")).unwrap_or_default();
        // The proxy knows ids, not names.
        let sandbox = daytona.sandbox_by_id(&id).ok_or_else(|| {
            Failure::proxy(StatusCode::NOT_FOUND, "NOT_FOUND", format!("Sandbox with ID {id} not found"))
        })?;
        let machine = sandbox.machine().filter(|_| sandbox.record().state == State::Started);
        let machine = machine.ok_or_else(|| {
            let message = "bad request: failed to get runner info: is the Sandbox started?";
            Failure::proxy(StatusCode::BAD_REQUEST, "BAD_REQUEST", message)
        })?;
        if !parts.headers.contains_key(SKIP_ACTIVITY) {
            sandbox.touch();
        }
        let sessions = sandbox.sessions();
        Ok(Toolbox { sandbox, machine, sessions })
    }
}
