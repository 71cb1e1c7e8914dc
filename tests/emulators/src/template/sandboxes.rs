//! Sandboxes: made, listed, ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::commands::Process;
use super::{LIMIT, Prefix, Refusal, Service};
use crate::machine::{Machine, MachineSpec, Source};

/// What a sandbox starts from that names no snapshot.
const BASE: &str = "base";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    name: String,
    snapshot: Option<String>,
    labels: BTreeMap<String, String>,
    lifetime_seconds: u64,
    offline: bool,
}

/// A sandbox, also one that has ended.
pub(super) struct Sandbox {
    name: String,
    source: String,
    labels: BTreeMap<String, String>,
    created_at: Timestamp,
    /// Once it runs.
    machine: OnceLock<Machine>,
    /// It could not be made, or its lifetime is over.
    over: AtomicBool,
    /// Its deletion was asked for.
    ending: AtomicBool,
    processes: Mutex<BTreeMap<String, Arc<Process>>>,
}

impl Sandbox {
    fn state(&self) -> &'static str {
        let machine = self.machine.get();
        match () {
            () if self.ending.load(Relaxed) => "ending",
            () if self.over.load(Relaxed) || machine.is_some_and(Machine::ended) => "ended",
            () if machine.is_some() => "running",
            () => "starting",
        }
    }

    pub(super) fn view(&self) -> Value {
        json!({
            "name": self.name, "state": self.state(), "source": self.source, "labels": self.labels,
            "created_at": self.created_at,
        })
    }

    /// Its machine, while it runs.
    pub(super) fn machine(&self) -> Result<&Machine, Refusal> {
        let refused = |status, code| Refusal(status, code, format!("sandbox {} is {}", self.name, self.state()));
        match (self.state(), self.machine.get()) {
            ("running", Some(machine)) => Ok(machine),
            ("starting", _) => Err(refused(StatusCode::CONFLICT, "starting")),
            _ => Err(refused(StatusCode::GONE, "ended")),
        }
    }

    pub(super) fn add(&self, id: String, process: Arc<Process>) {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).insert(id, process);
    }

    pub(super) fn process(&self, id: &str) -> Option<Arc<Process>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }
}

pub(super) async fn create(
    State(service): State<Arc<Service>>,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let asked: Create = service.parse("POST /v1/sandboxes", &body)?;
    let mut world = service.world();
    let source = match &asked.snapshot {
        None => Source::Image(BASE.to_owned()),
        Some(name) => {
            let snapshot = world.snapshots.get(name).ok_or_else(|| Refusal::missing("snapshot", name))?;
            Source::Saved(Arc::clone(&snapshot.saved))
        }
    };
    if world.sandboxes.contains_key(&asked.name) {
        return Err(Refusal::taken(&asked.name));
    }
    if world.sandboxes.len() >= LIMIT {
        return Err(Refusal(StatusCode::PAYMENT_REQUIRED, "quota", format!("{LIMIT} sandboxes exist")));
    }
    let sandbox = Arc::new(Sandbox {
        name: asked.name.clone(),
        source: asked.snapshot.unwrap_or_else(|| BASE.to_owned()),
        labels: asked.labels,
        created_at: Timestamp::now(),
        machine: OnceLock::new(),
        over: AtomicBool::new(false),
        ending: AtomicBool::new(false),
        processes: Mutex::default(),
    });
    world.sandboxes.insert(asked.name, Arc::clone(&sandbox));
    drop(world);
    let spec = MachineSpec { offline: asked.offline, ..MachineSpec::new(source) };
    let lifetime = Duration::from_secs(asked.lifetime_seconds);
    service.emulation.tasks.spawn(live(Arc::clone(&service), Arc::clone(&sandbox), spec, lifetime));
    Ok((StatusCode::CREATED, Json(sandbox.view())))
}

/// From the start to the end of the lifetime.
async fn live(service: Arc<Service>, sandbox: Arc<Sandbox>, spec: MachineSpec, lifetime: Duration) {
    match service.emulation.machines.create(spec).await {
        Ok(machine) => drop(sandbox.machine.set(machine)),
        Err(_) => sandbox.over.store(true, Relaxed),
    }
    tokio::time::sleep(lifetime).await;
    sandbox.over.store(true, Relaxed);
    if let Some(machine) = sandbox.machine.get() {
        // One that is gone already is fine.
        let _ = service.emulation.machines.destroy(machine).await;
    }
}

pub(super) async fn list(State(service): State<Arc<Service>>, Query(asked): Query<Prefix>) -> Json<Value> {
    let world = service.world();
    let items = world.sandboxes.values().filter(|sandbox| sandbox.name.starts_with(&asked.prefix));
    Json(json!({ "items": items.map(|sandbox| sandbox.view()).collect::<Vec<_>>() }))
}

pub(super) async fn one(State(service): State<Arc<Service>>, Path(name): Path<String>) -> Result<Json<Value>, Refusal> {
    Ok(Json(service.sandbox(&name)?.view()))
}

pub(super) async fn delete(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    let sandbox = service.sandbox(&name)?;
    if sandbox.state() == "starting" {
        return Err(Refusal(StatusCode::CONFLICT, "starting", format!("sandbox {name} is starting")));
    }
    if !sandbox.ending.swap(true, Relaxed) {
        let service = Arc::clone(&service);
        service.clone().emulation.tasks.spawn(async move {
            tokio::time::sleep(service.emulation.timing.transition).await;
            if let Some(machine) = sandbox.machine.get() {
                // What cannot be destroyed now is when the emulator ends, which says so.
                let _ = service.emulation.machines.destroy(machine).await;
            }
            service.world().sandboxes.remove(&name);
        });
    }
    Ok(StatusCode::ACCEPTED)
}
