//! Everything that one emulated installation has.

use std::sync::Arc;

use serde_json::{Value, json};

use super::options::PolyaxonOptions;
use super::platform::Store;
use super::pods::Pods;
use super::streams::Artifacts;
use super::upstream::Upstream;
use crate::emulation::Emulation;

/// The namespace of all runs.
pub(super) const NAMESPACE: &str = "polyaxon";

/// The state of the emulator.
pub(super) struct World {
    pub(super) emulation: Arc<Emulation>,
    pub(super) options: PolyaxonOptions,
    pub(super) api: Api,
    pub(super) pods: Pods,
    pub(super) artifacts: Artifacts,
}

/// Who answers for the API.
pub(super) enum Api {
    Memory(Store),
    Real(Upstream),
}

/// A run, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunKey {
    pub(super) owner: String,
    pub(super) project: String,
    pub(super) uuid: String,
}

impl World {
    pub(super) fn new(emulation: Arc<Emulation>, options: PolyaxonOptions) -> World {
        let api = match &options.upstream {
            Some(address) => Api::Real(Upstream::new(address)),
            None => Api::Memory(Store::new(&options.project)),
        };
        World { emulation, options, api, pods: Pods::default(), artifacts: Artifacts::default() }
    }

    /// What the admin route shows.
    pub(super) fn view(&self) -> Value {
        json!({ "pods": self.pods.names(), "artifacts": self.artifacts.view() })
    }

    /// Records a malformed request.
    pub(super) fn violation(&self, request: &str, what: impl Into<String>) {
        self.emulation.violations.record(request, what);
    }

    /// The run as its API shows it.
    pub(super) async fn run(&self, key: &RunKey) -> Option<Value> {
        match &self.api {
            Api::Memory(store) => store.run(&key.uuid),
            Api::Real(upstream) => upstream.run(key).await,
        }
    }

    /// Reports a status, as the agent of a cluster does.
    pub(super) async fn report(&self, key: &RunKey, (status, reason, message): (&str, &str, &str)) {
        match &self.api {
            Api::Memory(store) => store.report(&key.uuid, (status, reason, message)),
            Api::Real(upstream) => upstream.report(key, (status, reason, message)).await,
        }
    }
}
