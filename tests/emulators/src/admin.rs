//! The admin routes: what tests in other processes and languages script and assert with. Vendors have nothing like
//! them, and strictness does not reach them.
//!
//! | route | |
//! |---|---|
//! | `GET /__emulator/violations` | array of `{request, what}` |
//! | `DELETE /__emulator/violations` | forgets them |
//! | `GET /__emulator/requests` | array of `{method, path, query, status}` |
//! | `DELETE /__emulator/requests` | forgets them |
//! | `GET /__emulator/faults` | how many requests each rule has matched |
//! | `PUT /__emulator/faults` | replaces the script by `{"rule": [..]}`; `POST` adds to it |
//! | `GET /__emulator/state` | the vendor module's state, and `machines`: the sandboxes that execute |

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::emulation::Emulation;
use crate::faults::{Script, ScriptError};
use crate::requests::Request;
use crate::violations::Violation;

/// The beginning of all admin paths.
pub(crate) const PREFIX: &str = "/__emulator/";

/// Shows a vendor module's state as JSON.
pub(crate) type View = Arc<dyn Fn() -> Value + Send + Sync>;

#[derive(Clone)]
struct Admin {
    emulation: Arc<Emulation>,
    view: View,
}

pub(crate) fn router(emulation: Arc<Emulation>, view: View) -> Router {
    Router::new()
        .route("/__emulator/violations", get(violations).delete(forget_violations))
        .route("/__emulator/requests", get(requests).delete(forget_requests))
        .route("/__emulator/faults", get(matched).put(set_faults).post(add_faults))
        .route("/__emulator/state", get(state))
        .with_state(Admin { emulation, view })
}

async fn violations(State(admin): State<Admin>) -> Json<Vec<Violation>> {
    Json(admin.emulation.violations.all())
}

async fn forget_violations(State(admin): State<Admin>) {
    admin.emulation.violations.clear();
}

async fn requests(State(admin): State<Admin>) -> Json<Vec<Request>> {
    Json(admin.emulation.requests.all())
}

async fn forget_requests(State(admin): State<Admin>) {
    admin.emulation.requests.clear();
}

async fn matched(State(admin): State<Admin>) -> Json<Vec<u64>> {
    Json(admin.emulation.faults.matched())
}

async fn set_faults(State(admin): State<Admin>, Json(script): Json<Script>) -> Result<(), (StatusCode, String)> {
    admin.emulation.faults.set(script).map_err(refused)
}

async fn add_faults(State(admin): State<Admin>, Json(script): Json<Script>) -> Result<(), (StatusCode, String)> {
    script.rules.into_iter().try_for_each(|rule| admin.emulation.faults.add(rule)).map_err(refused)
}

fn refused(error: ScriptError) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, error.to_string())
}

async fn state(State(admin): State<Admin>) -> Json<Value> {
    let mut state = (admin.view)();
    if let Value::Object(fields) = &mut state {
        fields.insert("machines".into(), json!(admin.emulation.machines.alive()));
    }
    Json(state)
}
