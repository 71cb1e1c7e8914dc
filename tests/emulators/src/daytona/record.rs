//! What the API says about a sandbox.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::model::{CreateSandbox, Volume};

/// Minutes after which an idle sandbox stops, unless the request says otherwise.
const AUTO_STOP: i64 = 15;
/// Minutes after which a stopped sandbox is archived, unless the request says otherwise.
const AUTO_ARCHIVE: i64 = 10_080;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Creating,
    PullingSnapshot,
    PendingBuild,
    BuildingSnapshot,
    Starting,
    Started,
    Stopping,
    Stopped,
    Archiving,
    Archived,
    Restoring,
    Resizing,
    Snapshotting,
    Forking,
    Error,
    BuildFailed,
    Destroying,
    Destroyed,
}

impl State {
    /// Nothing is going on: lifecycle calls are accepted.
    pub(super) fn settled(self) -> bool {
        use State::{Archived, BuildFailed, Destroyed, Error, Started, Stopped};
        matches!(self, Started | Stopped | Archived | Error | BuildFailed | Destroyed)
    }

    /// Processes in it are gone, or soon will be.
    pub(super) fn down(self) -> bool {
        use State::{Archived, Archiving, BuildFailed, Destroyed, Destroying, Error, Stopped, Stopping};
        matches!(self, Archived | Archiving | BuildFailed | Destroyed | Destroying | Error | Stopped | Stopping)
    }

    /// It counts against the quota of CPU and memory.
    pub(super) fn computes(self) -> bool {
        use State::{Archived, Archiving, BuildFailed, Destroyed, Error, Stopped};
        !matches!(self, Archived | Archiving | BuildFailed | Destroyed | Error | Stopped)
    }
}

/// What a declarative build was made of.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BuildInfo {
    pub(super) dockerfile_content: String,
    pub(super) context_hashes: Vec<String>,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) snapshot_ref: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) cpu: u64,
    pub(super) memory: u64,
    pub(super) disk: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) snapshot: Option<String>,
    pub(super) build: Option<BuildInfo>,
    pub(super) size: Size,
    pub(super) user: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) volumes: Vec<Volume>,
    pub(super) target: String,
    pub(super) public: bool,
    pub(super) network_block_all: bool,
    pub(super) network_allow_list: Option<String>,
    pub(super) domain_allow_list: Option<String>,
    pub(super) auto_stop: i64,
    pub(super) auto_archive: i64,
    pub(super) auto_delete: i64,
    pub(super) ttl: i64,
    pub(super) state: State,
    pub(super) desired: &'static str,
    pub(super) error_reason: Option<String>,
    pub(super) recoverable: bool,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) last_activity_at: Timestamp,
}

impl Record {
    /// As requested; `target` is the region it goes to.
    pub(super) fn new(id: String, body: CreateSandbox, size: Size, target: String, state: State) -> Record {
        let now = Timestamp::now();
        Record {
            name: body.name.unwrap_or_else(|| id.clone()),
            id,
            snapshot: body.snapshot,
            build: None,
            size,
            user: body.user.unwrap_or_else(|| "daytona".into()),
            env: body.env.unwrap_or_default(),
            labels: body.labels.unwrap_or_default(),
            volumes: body.volumes.unwrap_or_default(),
            target,
            public: body.public.unwrap_or_default(),
            network_block_all: body.network_block_all.unwrap_or_default(),
            network_allow_list: body.network_allow_list,
            domain_allow_list: body.domain_allow_list,
            auto_stop: body.auto_stop_interval.unwrap_or(AUTO_STOP),
            auto_archive: body.auto_archive_interval.unwrap_or(AUTO_ARCHIVE),
            auto_delete: body.auto_delete_interval.unwrap_or(-1),
            ttl: body.ttl_minutes.unwrap_or_default(),
            state,
            desired: "started",
            error_reason: None,
            recoverable: false,
            created_at: now,
            updated_at: now,
            last_activity_at: now,
        }
    }

    /// It is deleted as soon as it stops.
    pub(super) fn ephemeral(&self) -> bool {
        self.auto_delete == 0
    }

    /// The object of list answers.
    pub(super) fn list_item(&self, organization: &str, proxy: &str) -> Value {
        json!({
            "id": self.id, "organizationId": organization, "name": self.name, "snapshot": self.snapshot,
            "user": self.user, "labels": self.labels, "public": self.public,
            "networkBlockAll": self.network_block_all, "networkAllowList": self.network_allow_list,
            "domainAllowList": self.domain_allow_list, "target": self.target,
            "cpu": self.size.cpu, "gpu": 0, "memory": self.size.memory, "disk": self.size.disk,
            "state": self.state, "desiredState": self.desired, "errorReason": self.error_reason,
            "recoverable": self.recoverable, "sandboxClass": "container", "runnerId": "runner-1",
            "daemonVersion": "0.190.0", "createdAt": self.created_at, "updatedAt": self.updated_at,
            "lastActivityAt": self.last_activity_at, "autoStopInterval": self.auto_stop,
            "autoArchiveInterval": self.auto_archive, "autoDeleteInterval": self.auto_delete,
            "toolboxProxyUrl": proxy,
        })
    }

    /// The object of all other answers.
    pub(super) fn json(&self, organization: &str, proxy: &str) -> Value {
        let mut object = self.list_item(organization, proxy);
        if let Value::Object(fields) = &mut object {
            fields.insert("env".into(), json!(self.env));
            fields.insert("kvm".into(), json!(false));
            fields.insert("volumes".into(), json!(self.volumes));
            if let Some(build) = &self.build {
                fields.insert("buildInfo".into(), json!(build));
            }
        }
        object
    }
}
