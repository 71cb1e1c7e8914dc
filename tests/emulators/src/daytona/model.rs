//! Request bodies, with every field that the official client 0.226.1 knows.
//!
//! Fields that the emulator only stores or ignores are typed too, so that an ill-typed one is refused.
#![allow(dead_code, reason = "ignored fields are there to be checked")]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct CreateSandbox {
    pub(super) name: Option<String>,
    pub(super) snapshot: Option<String>,
    pub(super) build_info: Option<CreateBuildInfo>,
    pub(super) cpu: Option<u64>,
    pub(super) memory: Option<u64>,
    pub(super) disk: Option<u64>,
    pub(super) gpu: Option<u64>,
    pub(super) gpu_type: Option<Vec<String>>,
    pub(super) spot: Option<bool>,
    pub(super) kvm: Option<bool>,
    pub(super) env: Option<BTreeMap<String, String>>,
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) user: Option<String>,
    pub(super) target: Option<String>,
    pub(super) public: Option<bool>,
    pub(super) network_block_all: Option<bool>,
    pub(super) network_allow_list: Option<String>,
    pub(super) domain_allow_list: Option<String>,
    pub(super) outbound_proxy_url: Option<String>,
    pub(super) otel_endpoint_override: Option<String>,
    pub(super) auto_stop_interval: Option<i64>,
    pub(super) auto_pause_interval: Option<i64>,
    pub(super) auto_archive_interval: Option<i64>,
    pub(super) auto_delete_interval: Option<i64>,
    pub(super) ttl_minutes: Option<i64>,
    pub(super) queue_timeout: Option<u64>,
    pub(super) volumes: Option<Vec<Volume>>,
    pub(super) secrets: Option<Vec<BTreeMap<String, String>>>,
    pub(super) linked_sandbox: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CreateBuildInfo {
    pub(super) dockerfile_content: String,
    #[serde(default)]
    pub(super) context_hashes: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Volume {
    pub(super) volume_id: String,
    pub(super) mount_path: String,
    pub(super) subpath: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CreateSnapshot {
    pub(super) name: String,
    pub(super) image_name: Option<String>,
    pub(super) entrypoint: Option<Vec<String>>,
    pub(super) build_info: Option<CreateBuildInfo>,
    pub(super) cpu: Option<u64>,
    pub(super) memory: Option<u64>,
    pub(super) disk: Option<u64>,
    pub(super) gpu: Option<u64>,
    pub(super) gpu_type: Option<Vec<String>>,
    pub(super) region_id: Option<String>,
    pub(super) sandbox_class: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SnapshotSandbox {
    pub(super) name: String,
    #[serde(default)]
    pub(super) include_memory: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Labels {
    pub(super) labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Resize {
    pub(super) cpu: Option<u64>,
    pub(super) memory: Option<u64>,
    pub(super) disk: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Fork {
    pub(super) name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct NetworkSettings {
    pub(super) network_block_all: Option<bool>,
    pub(super) network_allow_list: Option<String>,
    pub(super) domain_allow_list: Option<String>,
}
