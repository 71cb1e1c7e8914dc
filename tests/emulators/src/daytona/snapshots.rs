//! Snapshots: what sandboxes start from.

mod routes;

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

pub(super) use self::routes::router;
use super::failure::{Answer, Failure};
use super::lifecycle::Origin;
use super::record::{BuildInfo, Size};
use super::state::{Daytona, REGIONS};
use crate::log::Log;
use crate::machine::{Saved, Source};

/// The vendor's own snapshots: name, vCPU, GiB of memory and disk.
const GENERAL: [(&str, u64, u64, u64); 3] =
    [("daytona-small", 1, 1, 3), ("daytona-medium", 2, 4, 8), ("daytona-large", 4, 8, 10)];

/// The snapshot of a sandbox that names none.
pub(super) const DEFAULT: &str = "daytona-small";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SnapshotState {
    Building,
    Pending,
    Pulling,
    Snapshotting,
    Active,
    Inactive,
    Error,
    BuildFailed,
    Removing,
}

/// What it is made from.
#[derive(Clone)]
pub(super) enum Made {
    Image(String),
    Build(BuildInfo),
    Sandbox(String),
}

#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) id: String,
    pub(super) general: bool,
    pub(super) name: String,
    pub(super) made: Made,
    pub(super) size: Size,
    pub(super) state: SnapshotState,
    pub(super) error_reason: Option<String>,
    pub(super) entrypoint: Option<Vec<String>>,
    pub(super) region: Option<String>,
    pub(super) class: String,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) last_used_at: Option<Timestamp>,
    pub(super) log: Arc<Log>,
    /// Absent for images.
    pub(super) saved: Option<Arc<Saved>>,
    /// The runner has it.
    pub(super) pulled: bool,
}

/// The vendor's own.
pub(super) fn general() -> Vec<Snapshot> {
    let snapshot = |(name, cpu, memory, disk): (&str, u64, u64, u64)| {
        let size = Size { cpu, memory, disk };
        let mut snapshot = Snapshot::new(name.into(), Made::Image(format!("daytonaio/sandbox:{name}")), size);
        (snapshot.general, snapshot.pulled, snapshot.state) = (true, true, SnapshotState::Active);
        snapshot
    };
    GENERAL.into_iter().map(snapshot).collect()
}

impl Snapshot {
    pub(super) fn new(name: String, made: Made, size: Size) -> Snapshot {
        let now = Timestamp::now();
        Snapshot {
            id: Uuid::new_v4().to_string(),
            general: false,
            name,
            made,
            size,
            state: SnapshotState::Pending,
            error_reason: None,
            entrypoint: None,
            region: None,
            class: "container".into(),
            created_at: now,
            updated_at: now,
            last_used_at: None,
            log: Arc::default(),
            saved: None,
            pulled: false,
        }
    }

    pub(super) fn json(&self, organization: &str) -> Value {
        let mut object = json!({
            "id": self.id, "organizationId": organization, "general": self.general, "name": self.name,
            "state": self.state, "size": self.saved.as_ref().map(|saved| saved.size as f64 / f64::from(1 << 30)),
            "entrypoint": self.entrypoint, "cpu": self.size.cpu, "gpu": 0, "mem": self.size.memory,
            "disk": self.size.disk, "errorReason": self.error_reason, "createdAt": self.created_at,
            "updatedAt": self.updated_at, "lastUsedAt": self.last_used_at, "sandboxClass": self.class,
            "regionIds": self.region.as_ref().map_or_else(|| REGIONS.map(str::to_owned).to_vec(), |id| vec![id.clone()]),
            "ref": self.reference(),
        });
        if let Value::Object(fields) = &mut object {
            match &self.made {
                Made::Image(image) => fields.insert("imageName".into(), json!(image)),
                Made::Build(build) => fields.insert("buildInfo".into(), json!(build)),
                Made::Sandbox(id) => fields.insert("sourceSandboxId".into(), json!(id)),
            };
        }
        object
    }

    fn reference(&self) -> String {
        match &self.made {
            Made::Build(build) => build.snapshot_ref.clone(),
            Made::Image(_) | Made::Sandbox(_) => format!("daytona-{}:daytona", self.id),
        }
    }
}

impl Daytona {
    /// What a sandbox from this snapshot is made of, and how large it is.
    pub(super) fn origin(&self, id_or_name: &str, target: &str) -> Answer<(Origin, Size)> {
        let mut holdings = self.holdings();
        let mut snapshots = holdings.snapshots.values_mut();
        let found = snapshots.find(|snapshot| snapshot.id == id_or_name || snapshot.name == id_or_name);
        let snapshot = found.ok_or_else(|| {
            let message = format!("Snapshot {id_or_name} not found. Did you add it through the Daytona Dashboard?");
            Failure::bad(message)
        })?;
        if snapshot.region.as_deref().is_some_and(|region| region != target) {
            return Err(Failure::bad(format!("Snapshot {id_or_name} is not available in region {target}")));
        }
        if snapshot.state != SnapshotState::Active {
            let state = json!(snapshot.state);
            return Err(Failure::bad(format!("Snapshot {id_or_name} is {}", state.as_str().unwrap_or_default())));
        }
        snapshot.last_used_at = Some(Timestamp::now());
        let pull = !std::mem::replace(&mut snapshot.pulled, true);
        let source = match (&snapshot.saved, &snapshot.made) {
            (Some(saved), _) => Source::Saved(Arc::clone(saved)),
            (None, Made::Image(image)) => Source::Image(image.clone()),
            (None, _) => return Err(Failure::bad(format!("Snapshot {id_or_name} is not available"))),
        };
        Ok((Origin::Source { source, pull }, snapshot.size))
    }

    /// Changes a snapshot, if it is still there.
    pub(super) fn change_snapshot(&self, id: &str, change: impl FnOnce(&mut Snapshot)) {
        if let Some(snapshot) = self.holdings().snapshots.get_mut(id) {
            snapshot.updated_at = Timestamp::now();
            change(snapshot);
        }
    }

    pub(super) async fn pass_snapshot(&self, id: &str, state: SnapshotState) {
        self.change_snapshot(id, |snapshot| snapshot.state = state);
        tokio::time::sleep(self.emulation.timing.transition).await;
    }
}
