//! Requests that fit their shape, typed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::error::{ApiError, Kind, Result};

/// What creating and updating an image ask for; the document itself is kept to be shown again.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BuildSettings {
    pub(super) base_image_arn: String,
    pub(super) base_image_version: Option<String>,
    pub(super) code_artifact: CodeArtifact,
    pub(super) egress_network_connectors: Option<Vec<String>>,
    pub(super) cpu_configurations: Option<Vec<CpuConfiguration>>,
    pub(super) resources: Option<Vec<Resources>>,
    pub(super) hooks: Option<Hooks>,
    pub(super) environment_variables: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct CodeArtifact {
    pub(super) uri: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct CpuConfiguration {
    pub(super) architecture: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Resources {
    #[serde(rename = "minimumMemoryInMiB")]
    pub(super) minimum_memory_in_mib: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Hooks {
    pub(super) port: Option<u16>,
    pub(super) microvm_hooks: MicrovmHooks,
    pub(super) microvm_image_hooks: MicrovmImageHooks,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum HookState {
    Enabled,
    Disabled,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MicrovmHooks {
    pub(super) run: Option<HookState>,
    pub(super) run_timeout_in_seconds: Option<u64>,
    pub(super) resume: Option<HookState>,
    pub(super) resume_timeout_in_seconds: Option<u64>,
    pub(super) suspend: Option<HookState>,
    pub(super) suspend_timeout_in_seconds: Option<u64>,
    pub(super) terminate: Option<HookState>,
    pub(super) terminate_timeout_in_seconds: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MicrovmImageHooks {
    pub(super) ready: Option<HookState>,
    pub(super) ready_timeout_in_seconds: Option<u64>,
    pub(super) validate: Option<HookState>,
    pub(super) validate_timeout_in_seconds: Option<u64>,
}

/// What `RunMicrovm` asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Run {
    pub(super) image_identifier: String,
    pub(super) image_version: Option<String>,
    pub(super) execution_role_arn: Option<String>,
    pub(super) idle_policy: Option<IdlePolicy>,
    pub(super) run_hook_payload: Option<String>,
    pub(super) maximum_duration_in_seconds: Option<u64>,
    pub(super) ingress_network_connectors: Option<Vec<String>>,
    pub(super) egress_network_connectors: Option<Vec<String>>,
    pub(super) kms_key_identifier: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IdlePolicy {
    pub(super) max_idle_duration_seconds: u64,
    pub(super) suspended_duration_seconds: u64,
    pub(super) auto_resume_enabled: bool,
}

/// What tokens are asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AuthToken {
    pub(super) expiration_in_minutes: u64,
    /// A token for shells covers none.
    #[serde(default)]
    pub(super) allowed_ports: Vec<PortSpecification>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum PortSpecification {
    Port(u16),
    Range(PortRange),
    AllPorts {},
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PortRange {
    pub(super) start_port: u16,
    pub(super) end_port: u16,
}

impl PortSpecification {
    pub(super) fn covers(&self, port: u16) -> bool {
        match self {
            PortSpecification::Port(one) => *one == port,
            PortSpecification::Range(range) => (range.start_port..=range.end_port).contains(&port),
            PortSpecification::AllPorts {} => true,
        }
    }
}

/// Reads a document that was found to fit its shape. Members that are null are as good as absent.
pub(super) fn typed<T: serde::de::DeserializeOwned>(document: &Value) -> Result<T> {
    serde_json::from_value(without_null(document))
        .map_err(|error| ApiError::violation(Kind::Serialization, error.to_string()))
}

fn without_null(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(name, value)| (name.clone(), without_null(value))).collect::<serde_json::Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(without_null).collect(),
        other => other.clone(),
    }
}
