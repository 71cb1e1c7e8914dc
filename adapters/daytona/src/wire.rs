//! Bodies of the API and of the toolbox, as the official client 0.226.1 sends and reads them. Fields that are not read
//! here are ignored, and nearly everything may be missing: servers differ.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The version of the official client that these bodies were taken from. The toolbox answers in another form to clients
/// that name none or an older one.
pub(crate) const CLIENT_VERSION: &str = "0.226.1";

/// What a sandbox or snapshot is built from.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BuildRequest {
    /// A complete Dockerfile.
    pub(crate) dockerfile_content: String,
    /// Keys of uploaded contexts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) context_hashes: Vec<String>,
}

/// `POST /sandbox`
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateSandbox {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) build_info: Option<BuildRequest>,
    /// Whole vCPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<u64>,
    /// GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<u64>,
    /// GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) disk: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gpu: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network_block_all: Option<bool>,
    /// IPv4 ranges, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network_allow_list: Option<String>,
    /// Domains, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) domain_allow_list: Option<String>,
    /// Minutes; 0: never.
    pub(crate) auto_stop_interval: u32,
    /// Minutes after a stop; 0: at once.
    pub(crate) auto_delete_interval: u32,
    /// Minutes since the creation.
    pub(crate) ttl_minutes: u64,
    /// Minutes.
    pub(crate) queue_timeout: u64,
}

/// `POST /snapshots`
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateSnapshot {
    pub(crate) name: String,
    pub(crate) build_info: BuildRequest,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) region_id: Option<String>,
    pub(crate) sandbox_class: &'static str,
}

/// `POST /sandbox/{id}/snapshot`
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SnapshotSandbox<'a> {
    pub(crate) name: &'a str,
    pub(crate) include_memory: bool,
}

/// A sandbox, from any request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SandboxObject {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) organization_id: Option<String>,
    #[serde(default)]
    pub(crate) snapshot: Option<String>,
    #[serde(default)]
    pub(crate) build_info: Option<BuildObject>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) state: Option<State>,
    #[serde(default)]
    pub(crate) error_reason: Option<String>,
    #[serde(default)]
    pub(crate) toolbox_proxy_url: Option<String>,
    #[serde(default)]
    pub(crate) cpu: Option<f64>,
    #[serde(default)]
    pub(crate) memory: Option<f64>,
    #[serde(default)]
    pub(crate) disk: Option<f64>,
    #[serde(default)]
    pub(crate) gpu: Option<f64>,
    #[serde(default)]
    pub(crate) target: Option<String>,
    #[serde(default)]
    pub(crate) sandbox_class: Option<String>,
    #[serde(default)]
    pub(crate) runner_id: Option<String>,
    #[serde(default)]
    pub(crate) daemon_version: Option<String>,
    #[serde(default)]
    pub(crate) warm_pool_id: Option<String>,
    #[serde(default)]
    pub(crate) queue_timed_out_at: Option<String>,
    #[serde(default)]
    pub(crate) created_at: Option<String>,
    #[serde(default)]
    pub(crate) updated_at: Option<String>,
    #[serde(default)]
    pub(crate) last_activity_at: Option<String>,
}

/// What a sandbox was built from.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BuildObject {
    #[serde(default)]
    pub(crate) snapshot_ref: Option<String>,
}

/// State of a sandbox. The set grows: what is not known here is on its way from one to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    PendingBuild,
    BuildingSnapshot,
    PullingSnapshot,
    Creating,
    Starting,
    Restoring,
    Started,
    Snapshotting,
    Stopping,
    Stopped,
    Archiving,
    Archived,
    Error,
    BuildFailed,
    Destroying,
    Destroyed,
    #[serde(other)]
    Other,
}

impl State {
    /// No sandbox that is on its way up goes on from here.
    pub(crate) fn is_last(self) -> bool {
        use State::{Archived, BuildFailed, Destroyed, Destroying, Error, Started, Stopped, Stopping};
        matches!(self, Started | Stopping | Stopped | Archived | Error | BuildFailed | Destroying | Destroyed)
    }
}

/// A page of `GET /sandbox`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SandboxPage {
    #[serde(default)]
    pub(crate) items: Vec<SandboxObject>,
    #[serde(default)]
    pub(crate) next_cursor: Option<String>,
}

/// A snapshot.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SnapshotObject {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) state: Option<SnapshotState>,
    #[serde(default)]
    pub(crate) error_reason: Option<String>,
    /// GiB.
    #[serde(default)]
    pub(crate) size: Option<f64>,
    #[serde(default)]
    pub(crate) created_at: Option<String>,
}

/// State of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SnapshotState {
    Pending,
    Active,
    Inactive,
    Error,
    BuildFailed,
    Removing,
    #[serde(other)]
    Other,
}

/// A page of `GET /snapshots`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SnapshotPage {
    #[serde(default)]
    pub(crate) items: Vec<SnapshotObject>,
    #[serde(default)]
    pub(crate) total_pages: u64,
}

/// Where something is.
#[derive(Debug, Deserialize)]
pub(crate) struct Located {
    pub(crate) url: String,
}

/// `GET /config`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlatformConfig {
    #[serde(default)]
    pub(crate) version: Option<String>,
}

/// `GET /organizations/{id}/usage`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usage {
    #[serde(default)]
    pub(crate) region_usage: Vec<BTreeMap<String, serde_json::Value>>,
    #[serde(default)]
    pub(crate) total_snapshot_quota: Option<f64>,
    #[serde(default)]
    pub(crate) current_snapshot_usage: Option<f64>,
}

/// `GET /object-storage/push-access`
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PushAccess {
    pub(crate) access_key: String,
    pub(crate) secret: String,
    pub(crate) session_token: String,
    pub(crate) storage_url: String,
    pub(crate) organization_id: String,
    pub(crate) bucket: String,
    pub(crate) region: String,
}

/// `POST /process/execute`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Executed {
    pub(crate) exit_code: i32,
    #[serde(default)]
    pub(crate) result: String,
}

/// `POST /process/session/{id}/exec`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Submitted {
    pub(crate) cmd_id: String,
}

/// `GET /process/session/{id}/command/{id}`
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandObject {
    /// Absent while it runs.
    #[serde(default)]
    pub(crate) exit_code: Option<i32>,
}

/// `GET /process/session/{id}/command/{id}/logs`
#[derive(Debug, Deserialize)]
pub(crate) struct LogObject {
    /// Both streams, with their marks.
    #[serde(default)]
    pub(crate) output: String,
}

/// A timestamp of the platform.
pub(crate) fn timestamp(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok().filter(|time: &Timestamp| *time > Timestamp::UNIX_EPOCH)
}

/// A number that the platform writes as a whole or with decimals.
pub(crate) fn whole(number: Option<f64>) -> Option<u64> {
    number.filter(|n| n.is_finite() && *n >= 0.0).map(|n| n as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_least_that_a_server_may_say_is_read() {
        let sandbox: SandboxObject = serde_json::from_str(r#"{"id":"s","cpu":1,"memory":2.0,"new":[1]}"#).unwrap();
        assert_eq!((sandbox.state, whole(sandbox.cpu), whole(sandbox.memory)), (None, Some(1), Some(2)));
        let page: SandboxPage = serde_json::from_str(r#"{"items":[],"nextCursor":null}"#).unwrap();
        assert!(page.next_cursor.is_none());
    }

    #[test]
    fn a_state_of_a_later_platform_is_no_failure() {
        let state = |text: &str| serde_json::from_str::<State>(&format!("\"{text}\"")).unwrap();
        assert_eq!(state("building_snapshot"), State::BuildingSnapshot);
        for later in ["forking", "pausing", "unknown", "defragmenting"] {
            assert_eq!(state(later), State::Other);
        }
        let snapshot: SnapshotObject =
            serde_json::from_str(r#"{"id":"1","name":"n","state":"odd","size":null}"#).unwrap();
        assert_eq!(snapshot.state, Some(SnapshotState::Other));
    }

    #[test]
    fn what_is_not_asked_for_is_not_sent() {
        let body = serde_json::to_value(CreateSandbox { name: "n".into(), ..CreateSandbox::default() }).unwrap();
        let fields: Vec<&str> = body.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["autoDeleteInterval", "autoStopInterval", "labels", "name", "queueTimeout", "ttlMinutes"]);
    }

    #[test]
    fn odd_timestamps_are_none() {
        assert!(timestamp(Some("2026-11-29T19:44:29.735Z")).is_some());
        assert_eq!(
            (timestamp(Some("0001-01-01T00:00:00Z")), timestamp(Some("soon")), timestamp(None)),
            (None, None, None)
        );
    }
}
