//! What tracking sends and takes, as the official client 2.18.0 sends it and the open-source server 2.18.0 answers.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A request for a run that nobody schedules.
#[derive(Debug, Serialize)]
pub(super) struct NewTracked<'a> {
    pub(super) name: &'a str,
    pub(super) tags: &'a [String],
    pub(super) meta_info: Map<String, Value>,
    pub(super) managed_by: &'static str,
    pub(super) is_managed: bool,
}

/// A run, as far as tracking looks at it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tracked {
    pub(super) uuid: String,
    /// `user` if it is only tracked. Lists and older servers may leave it out.
    pub(super) managed_by: Option<String>,
    pub(super) is_managed: Option<bool>,
    /// 1 live, 0 archived, -1 being deleted.
    pub(super) live_state: Option<i64>,
    pub(super) settings: Option<TrackedSettings>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TrackedSettings {
    pub(super) namespace: Option<String>,
    pub(super) agent: Option<Agent>,
    pub(super) artifacts_store: Option<Named>,
}

/// Who runs it; with an address, its artifacts are there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Agent {
    pub(super) url: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TrackedList {
    pub(super) results: Vec<Tracked>,
}

/// A change; maps are merged and tags added.
#[derive(Debug, Default, Serialize)]
pub(super) struct Change<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) inputs: Option<&'a Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outputs: Option<&'a Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meta_info: Option<&'a Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tags: Option<&'a [String]>,
    pub(super) merge: bool,
}

/// An entry of the lineage.
#[derive(Debug, Serialize)]
pub(super) struct Lineage {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) path: String,
    pub(super) summary: Value,
    pub(super) is_input: bool,
}

/// How an upload is to be kept.
#[derive(Debug, Serialize)]
pub(super) struct Upload<'a> {
    pub(super) untar: bool,
    /// The directory.
    pub(super) path: &'a str,
    pub(super) overwrite: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) connection: Option<&'a str>,
}
