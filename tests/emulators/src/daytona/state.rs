//! Everything that the emulated organization has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::builds::Builds;
use super::failure::{Answer, Failure};
use super::index::Index;
use super::options::DaytonaOptions;
use super::rates::Rates;
use super::record::{Record, State};
use super::sandbox::Sandbox;
use super::snapshots::{Snapshot, general};
use super::storage::Storage;
use crate::emulation::Emulation;

/// The region of everything that names none.
pub(super) const REGIONS: [&str; 2] = ["us", "eu"];

pub(super) struct Daytona {
    pub(super) emulation: Arc<Emulation>,
    pub(super) base_url: String,
    pub(super) options: DaytonaOptions,
    pub(super) rates: Rates,
    pub(super) index: Index,
    pub(super) builds: Builds,
    pub(super) storage: Storage,
    organization: String,
    holdings: Mutex<Holdings>,
}

#[derive(Default)]
pub(super) struct Holdings {
    pub(super) sandboxes: BTreeMap<String, Arc<Sandbox>>,
    pub(super) snapshots: BTreeMap<String, Snapshot>,
}

impl Daytona {
    pub(super) fn new(emulation: Arc<Emulation>, base_url: String, options: DaytonaOptions) -> Daytona {
        let snapshots = general().into_iter().map(|snapshot| (snapshot.id.clone(), snapshot)).collect();
        Daytona {
            emulation,
            storage: Storage::new(&base_url),
            base_url,
            rates: Rates::new(options.rates),
            options,
            index: Index::default(),
            builds: Builds::default(),
            organization: Uuid::new_v4().to_string(),
            holdings: Mutex::new(Holdings { sandboxes: BTreeMap::new(), snapshots }),
        }
    }

    pub(super) fn organization_id(&self) -> &str {
        &self.organization
    }

    /// The base of all toolboxes.
    pub(super) fn proxy_url(&self) -> String {
        format!("{}/toolbox", self.base_url)
    }

    pub(super) fn holdings(&self) -> MutexGuard<'_, Holdings> {
        self.holdings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By id.
    pub(super) fn sandbox_by_id(&self, id: &str) -> Option<Arc<Sandbox>> {
        self.holdings().sandboxes.get(id).cloned()
    }

    /// By id or name.
    pub(super) fn sandbox(&self, id_or_name: &str) -> Answer<Arc<Sandbox>> {
        let holdings = self.holdings();
        let named = || holdings.sandboxes.values().find(|sandbox| sandbox.record().name == id_or_name);
        let found = holdings.sandboxes.get(id_or_name).or_else(named).cloned();
        found.ok_or_else(|| {
            Failure::api(StatusCode::NOT_FOUND, format!("Sandbox with ID or name {id_or_name} not found"))
        })
    }

    /// Changes what the API says about a sandbox.
    pub(super) fn change(&self, sandbox: &Sandbox, change: impl FnOnce(&mut Record)) {
        sandbox.modify(|record| {
            record.updated_at = Timestamp::now();
            change(record);
        });
        self.index.push(sandbox.record());
    }

    /// Begins a transition, if the sandbox is in one of the states `from`.
    pub(super) fn begin(&self, sandbox: &Sandbox, from: &[State], to: State, otherwise: &str) -> Answer<State> {
        let mut begun = Err(Failure::api(StatusCode::CONFLICT, "Sandbox state change in progress"));
        self.change(sandbox, |record| {
            if from.contains(&record.state) {
                begun = Ok(std::mem::replace(&mut record.state, to));
            } else if record.state.settled() {
                begun = Err(Failure::bad(otherwise));
            }
        });
        begun
    }

    /// The object of answers.
    pub(super) fn json(&self, record: &Record) -> Value {
        record.json(&self.organization, &self.proxy_url())
    }

    /// For the admin route.
    pub(super) fn view(&self) -> Value {
        let holdings = self.holdings();
        let sandboxes = holdings.sandboxes.values().map(|sandbox| sandbox.record());
        let sandboxes: Vec<Value> =
            sandboxes.map(|record| json!({"id": record.id, "name": record.name, "state": record.state})).collect();
        let snapshots = holdings.snapshots.values().filter(|snapshot| !snapshot.general);
        let snapshots: Vec<Value> = snapshots
            .map(|snapshot| json!({"id": snapshot.id, "name": snapshot.name, "state": snapshot.state}))
            .collect();
        json!({"sandboxes": sandboxes, "snapshots": snapshots})
    }
}
