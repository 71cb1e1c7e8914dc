//! Directories, version, metrics, environment.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Toolbox;
use super::shell::is_name;
use crate::daytona::extract::Strict;
use crate::daytona::failure::{Answer, Failure};
use crate::daytona::state::Daytona;

pub(super) fn router() -> Router<Arc<Daytona>> {
    Router::new()
        .route("/toolbox/{id}/work-dir", get(work_dir))
        .route("/toolbox/{id}/user-home-dir", get(home_dir))
        .route("/toolbox/{id}/version", get(version))
        .route("/toolbox/{id}/system/metrics", get(metrics))
        .route("/toolbox/{id}/env", post(env))
}

async fn line(toolbox: &Toolbox, script: &str) -> Answer<String> {
    let done = toolbox.machine.run(toolbox.machine.command(["/bin/sh", "-c", script]), None).await?;
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

async fn work_dir(toolbox: Toolbox) -> Answer<Json<Value>> {
    Ok(Json(json!({"dir": line(&toolbox, "pwd").await?})))
}

async fn home_dir(toolbox: Toolbox) -> Answer<Json<Value>> {
    Ok(Json(json!({"dir": line(&toolbox, "echo \"$HOME\"").await?})))
}

async fn version(_: Toolbox) -> Json<Value> {
    Json(json!({"version": "0.190.0"}))
}

/// Memory and disk are the host's, as on a shared runner.
async fn metrics(toolbox: Toolbox) -> Answer<Json<Value>> {
    let script = "awk '/^(MemTotal|MemAvailable|Cached):/ {print $2 * 1024}' /proc/meminfo; \
                  df -P -B1 / | awk 'NR == 2 {print $2, $3, $4}'";
    let text = line(&toolbox, script).await?;
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let number = |at: usize| numbers.get(at).copied().unwrap_or_default() as u64;
    let now = Timestamp::now();
    Ok(Json(json!({
        "cpuCount": toolbox.sandbox.record().size.cpu, "cpuUsedPct": 0.0, "memTotal": number(0),
        "memUsed": number(0).saturating_sub(number(1)), "memCache": number(2), "diskTotal": number(3),
        "diskUsed": number(4), "diskFree": number(5), "timestamp": now, "timestampUnix": now.as_second(),
    })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Env {
    #[serde(default)]
    set: BTreeMap<String, String>,
    #[serde(default)]
    unset: Vec<String>,
}

/// Answers an object of strings, as the official client wants it; what the vendor says in it is not known.
async fn env(toolbox: Toolbox, Strict(body): Strict<Env>) -> Answer<Json<Value>> {
    if let Some(name) = body.set.keys().chain(&body.unset).find(|name| !is_name(name)) {
        let message = format!("invalid environment variable name: {name}");
        return Err(Failure::daemon(StatusCode::BAD_REQUEST, "BAD_REQUEST", message).violation());
    }
    toolbox.machine.change_facts(|facts| {
        facts.env.retain(|name, _| !body.unset.contains(name));
        facts.env.extend(body.set);
    });
    Ok(Json(json!({"message": "environment updated"})))
}
