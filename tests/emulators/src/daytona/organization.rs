//! The organization: configuration, regions, usage, access to object storage.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::failure::{Answer, Failure};
use super::snapshots::DEFAULT;
use super::state::{Daytona, REGIONS};
use super::{quota, storage};

type App = State<Arc<Daytona>>;

pub(super) fn router() -> Router<Arc<Daytona>> {
    Router::new()
        .route("/api/organizations/{id}/usage", get(usage))
        .route("/api/shared-regions", get(regions))
        .route("/api/object-storage/push-access", get(push_access))
}

/// Needs no credentials.
pub(super) async fn config(State(daytona): App) -> Json<Value> {
    let rates = daytona.options.rates;
    let rate = |limit: u64| json!({"ttl": rates.window.as_secs(), "limit": limit});
    Json(json!({
        "version": "0.190.0", "oidc": {"issuer": "", "clientId": "", "audience": ""},
        "linkedAccountsEnabled": false, "announcements": {}, "environment": "emulator",
        "proxyTemplateUrl": format!("{}/preview/{{{{PORT}}}}/{{{{sandboxId}}}}", daytona.base_url),
        "proxyToolboxUrl": daytona.proxy_url(), "defaultSnapshot": DEFAULT, "dashboardUrl": daytona.base_url,
        "maxAutoArchiveInterval": 43_200, "maintananceMode": false,
        "rateLimit": {
            "authenticated": rate(rates.authenticated), "sandboxCreate": rate(rates.sandbox_create),
            "sandboxLifecycle": rate(rates.sandbox_lifecycle),
        },
    }))
}

async fn regions() -> Json<Value> {
    let region = |id: &str| json!({"id": id, "name": id, "regionType": "shared"});
    Json(REGIONS.map(region).into())
}

async fn usage(State(daytona): App, Path(id): Path<String>) -> Answer<Json<Value>> {
    if id != daytona.organization_id() {
        return Err(Failure::api(StatusCode::FORBIDDEN, "Forbidden resource"));
    }
    let holdings = daytona.holdings();
    let (used, quota) = (quota::usage(&holdings), daytona.options.quota);
    Ok(Json(json!({
        "regionUsage": [{
            "regionId": REGIONS[0], "sandboxClass": "container",
            "totalCpuQuota": quota.cpu, "currentCpuUsage": used.cpu,
            "totalMemoryQuota": quota.memory, "currentMemoryUsage": used.memory,
            "totalDiskQuota": quota.disk, "currentDiskUsage": used.disk,
            "totalGpuQuota": 0, "currentGpuUsage": 0, "maxCpuPerSandbox": quota.cpu_per_sandbox,
            "maxMemoryPerSandbox": quota.memory_per_sandbox, "maxDiskPerSandbox": quota.disk_per_sandbox,
            "maxDiskPerNonEphemeralSandbox": null, "maxCpuPerGpu": null, "maxMemoryPerGpu": null,
            "maxDiskPerGpu": null,
        }],
        "totalSnapshotQuota": quota.snapshots, "currentSnapshotUsage": quota::snapshots(&holdings),
        "totalVolumeQuota": 100, "currentVolumeUsage": 0,
    })))
}

async fn push_access(State(daytona): App) -> Json<Value> {
    let keys = daytona.storage.keys();
    Json(json!({
        "accessKey": keys.access, "secret": keys.secret, "sessionToken": keys.session,
        "storageUrl": daytona.storage.url(), "organizationId": daytona.organization_id(),
        "bucket": storage::BUCKET, "region": REGIONS[0],
    }))
}
