//! The containers of running services.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use serde_json::Value;

use super::gateway::Background;
use crate::machine::{Limits, Machine};

/// What a compiled operation says about its container.
#[derive(Clone, Debug)]
pub(super) struct PodSpec {
    pub(super) image: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) workdir: Option<String>,
    pub(super) limits: Limits,
    /// Seconds.
    pub(super) timeout: Option<u64>,
}

impl PodSpec {
    /// Reads a compiled operation. None if it is no service with a sandbox.
    pub(super) fn of(compiled: &Value) -> Option<PodSpec> {
        let run = &compiled["run"];
        if run["kind"] != "service" || compiled["plugins"]["sandbox"] != true {
            return None;
        }
        let container = &run["container"];
        let variables = container["env"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let limits = &container["resources"]["limits"];
        Some(PodSpec {
            image: text(&container["image"]).unwrap_or_else(|| "default".into()),
            env: variables.filter_map(|one| Some((text(&one["name"])?, text(&one["value"])?))).collect(),
            workdir: text(&container["workingDir"]),
            limits: Limits { memory: quantity(&limits["memory"]), cpus: cpus(&limits["cpu"]), ..Limits::default() },
            timeout: compiled["termination"]["timeout"].as_u64(),
        })
    }
}

/// Bytes of a quantity of Kubernetes.
pub(super) fn quantity(value: &Value) -> Option<u64> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let units =
        [("Ki", 1u64 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("k", 1000), ("M", 1_000_000), ("G", 1_000_000_000)];
    let (digits, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).unwrap_or((text.as_str(), 1));
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Processors of a quantity of Kubernetes.
pub(super) fn cpus(value: &Value) -> Option<f64> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match text.strip_suffix('m') {
        Some(milli) => Some(milli.parse::<f64>().ok()? / 1000.0),
        None => text.parse().ok(),
    }
}

/// A running container with the daemon in it.
pub(super) struct Pod {
    pub(super) machine: Machine,
    pub(super) started: Instant,
    pub(super) workdir: Option<String>,
    /// Commands in the background, by id.
    pub(super) background: Mutex<BTreeMap<String, Arc<Background>>>,
    running: AtomicU64,
    last_activity: Mutex<Timestamp>,
}

impl Pod {
    pub(super) fn new(machine: Machine, spec: &PodSpec) -> Pod {
        Pod {
            machine,
            started: Instant::now(),
            workdir: spec.workdir.clone(),
            background: Mutex::default(),
            running: AtomicU64::new(0),
            last_activity: Mutex::new(Timestamp::now()),
        }
    }

    /// Counts a command for as long as the answer lives.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.running.fetch_add(1, Relaxed);
        *self.last_activity.lock().unwrap_or_else(PoisonError::into_inner) = Timestamp::now();
        Busy(Arc::clone(self))
    }

    pub(super) fn running(&self) -> u64 {
        self.running.load(Relaxed)
    }

    pub(super) fn last_activity(&self) -> Timestamp {
        *self.last_activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn background(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Background>>> {
        self.background.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command is running.
pub(super) struct Busy(Arc<Pod>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

/// All pods, by the id of their run.
#[derive(Default)]
pub(super) struct Pods(Mutex<HashMap<String, Arc<Pod>>>);

impl Pods {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Pod>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, run: &str) -> Option<Arc<Pod>> {
        self.lock().get(run).cloned()
    }

    pub(super) fn put(&self, run: &str, pod: Arc<Pod>) {
        self.lock().insert(run.to_owned(), pod);
    }

    pub(super) fn remove(&self, run: &str) -> Option<Arc<Pod>> {
        self.lock().remove(run)
    }

    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.lock().keys().cloned().collect();
        names.sort();
        names
    }
}
