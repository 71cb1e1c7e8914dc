//! Everything the account holds: named sandboxes, their sessions, and snapshots.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};

use super::error::{ApiError, Result};
use super::images::pinned;
use super::policy::Policy;
use super::request::{MEMORY_PER_VCPU, Retention, Source};
use super::session::{Session, Status, now_ms};
use crate::machine::Saved;

/// The account's state.
#[derive(Default)]
pub(super) struct World {
    pub(super) sandboxes: BTreeMap<String, Sandbox>,
    /// Names of sandboxes that are being made.
    pub(super) reserved: BTreeSet<String>,
    /// By id; those that have stopped, and those of deleted sandboxes, stay.
    pub(super) sessions: HashMap<String, Arc<Session>>,
    pub(super) snapshots: BTreeMap<String, Snapshot>,
}

/// A named, durable sandbox.
#[derive(Clone)]
pub(super) struct Sandbox {
    pub(super) plan: Plan,
    pub(super) current: Arc<Session>,
    pub(super) current_snapshot: Option<String>,
    /// Milliseconds since the epoch.
    pub(super) created_at: u64,
    pub(super) updated_at: u64,
    pub(super) totals: Totals,
}

/// What a sandbox was asked to be: what each of its sessions is made from.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) origin: Origin,
    /// Code that is fetched into the working directory.
    pub(super) fetch: Option<Source>,
    pub(super) vcpus: u32,
    /// Milliseconds.
    pub(super) timeout: u64,
    pub(super) persistent: bool,
    pub(super) ports: Vec<u16>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) policy: Policy,
    pub(super) network_id: Option<String>,
    /// Milliseconds; 0 is never.
    pub(super) snapshot_expiration: Option<u64>,
    pub(super) retention: Option<Retention>,
    pub(super) region: String,
    pub(super) failover_regions: Vec<String>,
}

/// What a session's files begin as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A reference as the machines' image table knows it.
    Image(String),
    /// The name of a legacy runtime.
    Runtime(String),
    /// A snapshot's id.
    Snapshot(String),
}

/// Sums over the sessions that have stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) cpu_ms: u64,
    pub(super) duration_ms: u64,
    pub(super) ingress: u64,
    pub(super) egress: u64,
}

/// A snapshot that can be started from.
#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) id: String,
    pub(super) saved: Arc<Saved>,
    pub(super) session: String,
    pub(super) sandbox: String,
    pub(super) region: String,
    pub(super) automatic: bool,
    pub(super) parent: Option<String>,
    /// Milliseconds since the epoch.
    pub(super) created_at: u64,
    pub(super) last_used_at: u64,
    pub(super) expires_at: Option<u64>,
}

impl World {
    pub(super) fn sandbox(&self, name: &str) -> Result<&Sandbox> {
        self.sandboxes.get(name).ok_or_else(|| ApiError::not_found("Sandbox"))
    }

    pub(super) fn sandbox_mut(&mut self, name: &str) -> Result<&mut Sandbox> {
        self.sandboxes.get_mut(name).ok_or_else(|| ApiError::not_found("Sandbox"))
    }

    pub(super) fn session(&self, id: &str) -> Result<Arc<Session>> {
        self.sessions.get(id).cloned().ok_or_else(|| ApiError::not_found("Session"))
    }

    /// The snapshot, if it can still be used: an expired one is gone.
    pub(super) fn snapshot(&self, id: &str) -> Result<&Snapshot> {
        let found = self.snapshots.get(id).filter(|snapshot| !snapshot.expired());
        found.ok_or_else(|| ApiError::not_found("Snapshot"))
    }

    /// The ids of a sandbox's snapshots, the newest first.
    pub(super) fn snapshots_of(&self, sandbox: &str) -> Vec<String> {
        let of_this = self.snapshots.values().filter(|snapshot| snapshot.sandbox == sandbox);
        let mut of_this: Vec<&Snapshot> = of_this.collect();
        of_this.sort_by_key(|snapshot| std::cmp::Reverse((snapshot.created_at, &snapshot.id)));
        of_this.iter().map(|snapshot| snapshot.id.clone()).collect()
    }

    /// Sessions that use resources.
    pub(super) fn busy(&self) -> usize {
        self.sessions.values().filter(|session| session.status() != Status::Stopped).count() + self.reserved.len()
    }
}

impl Snapshot {
    pub(super) fn expired(&self) -> bool {
        self.expires_at.is_some_and(|at| at <= now_ms())
    }

    /// On the wire.
    pub(super) fn view(&self, status: &str) -> Value {
        let mut view = json!({
            "id": self.id,
            "sourceSessionId": self.session,
            "region": self.region,
            "regions": [self.region],
            "status": status,
            "sizeBytes": self.saved.size,
            "createdAt": self.created_at,
            "updatedAt": self.last_used_at,
            "lastUsedAt": self.last_used_at,
            "creationMethod": if self.automatic { "automatic" } else { "manual" },
        });
        set(&mut view, "expiresAt", self.expires_at.map(Value::from));
        set(&mut view, "parentId", self.parent.clone().map(Value::from));
        view
    }
}

impl Sandbox {
    /// On the wire.
    pub(super) fn view(&self) -> Value {
        let Plan { name, origin, vcpus, timeout, persistent, tags, policy, region, failover_regions, .. } = &self.plan;
        let status = self.current.status();
        let mut view = json!({
            "name": name,
            "persistent": persistent,
            "region": region,
            "failoverRegions": failover_regions,
            "vcpus": vcpus,
            "memory": vcpus * MEMORY_PER_VCPU,
            "timeout": timeout,
            "networkPolicy": policy.readback,
            "tags": tags,
            "createdAt": self.created_at,
            "updatedAt": self.updated_at,
            "currentSessionId": self.current.identity.id,
            "status": status,
            "statusUpdatedAt": self.current.updated_at(),
            "cwd": self.current.host.cwd,
            "projectId": self.current.identity.project_id,
            "totalActiveCpuDurationMs": self.totals.cpu_ms,
            "totalDurationMs": self.totals.duration_ms,
            "totalIngressBytes": self.totals.ingress,
            "totalEgressBytes": self.totals.egress,
        });
        let running = status == Status::Running;
        set(&mut view, "expiresAt", running.then(|| self.current.expires_at().into()));
        set(&mut view, "currentSnapshotId", self.current_snapshot.clone().map(Value::from));
        set(&mut view, "networkId", self.plan.network_id.clone().map(Value::from));
        set(&mut view, "snapshotExpiration", self.plan.snapshot_expiration.map(Value::from));
        set(&mut view, "keepLastSnapshots", self.plan.retention.map(|retention| json!(retention)));
        match origin {
            Origin::Image(name) => view["image"] = json!(pinned(name)),
            Origin::Runtime(runtime) => view["runtime"] = json!(runtime),
            Origin::Snapshot(_) => {}
        }
        view
    }

    /// `routes` on the wire: the public address of each port.
    pub(super) fn routes(&self) -> Value {
        let route = |port: &u16| {
            let subdomain = format!("{}-{port}", self.current.identity.id.replace('_', "-"));
            json!({ "url": format!("https://{subdomain}.vercel.run"), "subdomain": subdomain, "port": port })
        };
        self.plan.ports.iter().map(route).collect()
    }
}

/// Fields without a value are absent, never null: clients refuse null.
fn set(view: &mut Value, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        view[key] = value;
    }
}
