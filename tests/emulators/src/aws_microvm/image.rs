//! Images, their versions and builds, as the API shows them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::clock::seconds;
use super::error::{ApiError, Result};
use super::hooks::HookPlan;
use super::size::Size;
use crate::log::Log;
use crate::machine::Saved;

/// Members of a build's settings that responses repeat; null where the request had none.
const SETTINGS: [&str; 13] = [
    "additionalOsCapabilities",
    "baseImageArn",
    "baseImageVersion",
    "buildRoleArn",
    "codeArtifact",
    "cpuConfigurations",
    "description",
    "egressNetworkConnectors",
    "environmentVariables",
    "hooks",
    "kmsKeyIdentifier",
    "logging",
    "resources",
];

/// Where an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageState {
    Creating,
    Created,
    CreateFailed,
    Updating,
    Updated,
    UpdateFailed,
    Deleting,
}

impl ImageState {
    pub(super) fn word(self) -> &'static str {
        match self {
            ImageState::Creating => "CREATING",
            ImageState::Created => "CREATED",
            ImageState::CreateFailed => "CREATE_FAILED",
            ImageState::Updating => "UPDATING",
            ImageState::Updated => "UPDATED",
            ImageState::UpdateFailed => "UPDATE_FAILED",
            ImageState::Deleting => "DELETING",
        }
    }

    /// Something is going on with it.
    pub(super) fn busy(self) -> bool {
        matches!(self, ImageState::Creating | ImageState::Updating | ImageState::Deleting)
    }
}

/// Where a version and its builds are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuildState {
    Pending,
    InProgress,
    Successful,
    Failed,
}

impl BuildState {
    fn word(self) -> &'static str {
        match self {
            BuildState::Pending => "PENDING",
            BuildState::InProgress => "IN_PROGRESS",
            BuildState::Successful => "SUCCESSFUL",
            BuildState::Failed => "FAILED",
        }
    }

    pub(super) fn going_on(self) -> bool {
        matches!(self, BuildState::Pending | BuildState::InProgress)
    }
}

pub(super) struct Image {
    /// Its place in lists.
    pub(super) number: u64,
    id: Uuid,
    pub(super) arn: String,
    pub(super) name: String,
    pub(super) state: ImageState,
    pub(super) tags: BTreeMap<String, String>,
    created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) versions: BTreeMap<u32, Version>,
    /// Counts the versions that ever were.
    pub(super) last_version: u32,
}

pub(super) struct Version {
    pub(super) number: u32,
    /// The request, as it was.
    document: Map<String, Value>,
    pub(super) plan: Arc<BuildPlan>,
    pub(super) state: BuildState,
    pub(super) active: bool,
    created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) builds: Vec<Build>,
    /// Of the container build and of the program that it started.
    pub(super) log: Arc<Log>,
    /// The files that MicroVMs start from.
    pub(super) saved: Option<Arc<Saved>>,
}

/// What a build is made from, checked.
#[derive(Clone, Debug)]
pub(super) struct BuildPlan {
    /// Where the archive is.
    pub(super) bucket: String,
    pub(super) key: String,
    pub(super) size: Size,
    pub(super) hooks: HookPlan,
    pub(super) env: BTreeMap<String, String>,
    pub(super) architecture: String,
    /// The build has no network.
    pub(super) offline: bool,
}

/// One of a version's builds: there is one for each generation of chips.
pub(super) struct Build {
    id: Uuid,
    generation: &'static str,
    pub(super) state: BuildState,
    pub(super) reason: Option<String>,
    pub(super) snapshot: Option<Value>,
    created_at: Timestamp,
}

/// How versions are called.
pub(super) fn version_name(number: u32) -> String {
    format!("{number}.0")
}

impl Image {
    pub(super) fn new(number: u64, arn: String, name: String, tags: BTreeMap<String, String>) -> Image {
        let now = Timestamp::now();
        Image {
            number,
            id: Uuid::new_v4(),
            arn,
            name,
            state: ImageState::Creating,
            tags,
            created_at: now,
            updated_at: now,
            versions: BTreeMap::new(),
            last_version: 0,
        }
    }

    /// Adds a version that is about to be built.
    pub(super) fn add_version(&mut self, document: Map<String, Value>, plan: BuildPlan) -> u32 {
        self.last_version += 1;
        let (number, now) = (self.last_version, Timestamp::now());
        // Generations 3 and 4 of Graviton were seen; of Intel nothing is known.
        let generations: &[&str] = if plan.architecture == "ARM_64" { &["3", "4"] } else { &["1"] };
        let builds = generations.iter().map(|generation| Build {
            id: Uuid::new_v4(),
            generation,
            state: BuildState::Pending,
            reason: None,
            snapshot: None,
            created_at: now,
        });
        let version = Version {
            number,
            document,
            plan: Arc::new(plan),
            state: BuildState::Pending,
            active: false,
            created_at: now,
            updated_at: now,
            builds: builds.collect(),
            log: Arc::default(),
            saved: None,
        };
        self.versions.insert(number, version);
        number
    }

    fn latest(&self, wanted: impl Fn(&Version) -> bool) -> Option<String> {
        self.versions.values().rev().find(|version| wanted(version)).map(|version| version_name(version.number))
    }

    pub(super) fn latest_active(&self) -> Option<String> {
        self.latest(|version| version.state == BuildState::Successful && version.active)
    }

    fn latest_failed(&self) -> Option<String> {
        self.latest(|version| version.state == BuildState::Failed)
    }

    /// By its whole name, `1.0`.
    pub(super) fn version(&self, name: &str) -> Result<&Version> {
        let found = self.versions.values().find(|version| version_name(version.number) == name);
        found.ok_or_else(|| no_version(&self.arn, name))
    }

    pub(super) fn version_mut(&mut self, name: &str) -> Result<&mut Version> {
        let arn = self.arn.clone();
        let found = self.versions.values_mut().find(|version| version_name(version.number) == name);
        found.ok_or_else(|| no_version(&arn, name))
    }

    /// In a list.
    pub(super) fn summary(&self) -> Value {
        json!({
            "imageArn": self.arn,
            "name": self.name,
            "state": self.state.word(),
            "latestActiveImageVersion": self.latest_active(),
            "latestFailedImageVersion": self.latest_failed(),
            "createdAt": seconds(self.created_at),
        })
    }

    pub(super) fn view(&self) -> Value {
        let mut view = self.summary();
        view["id"] = json!(self.id);
        view["tags"] = json!(self.tags);
        view["updatedAt"] = seconds(self.updated_at);
        view
    }

    /// The answer to the request that made the image with this version.
    pub(super) fn created(&self, version: &Version) -> Value {
        let mut view = self.updated(version);
        view["tags"] = if self.tags.is_empty() { Value::Null } else { json!(self.tags) };
        view
    }

    /// The answer to the request that added this version.
    pub(super) fn updated(&self, version: &Version) -> Value {
        let mut view = self.summary();
        view["id"] = json!(self.id);
        view["updatedAt"] = seconds(self.updated_at);
        view["imageVersion"] = json!(version_name(version.number));
        version.add_settings(&mut view);
        view["buildPhaseOverrides"] = Value::Null;
        view["roleConfiguration"] = Value::Null;
        view
    }

    pub(super) fn version_view(&self, version: &Version) -> Value {
        let mut view = json!({
            "imageArn": self.arn,
            "imageVersion": version_name(version.number),
            "state": version.state.word(),
            "status": if version.active { "ACTIVE" } else { "INACTIVE" },
            "createdAt": seconds(version.created_at),
            "updatedAt": seconds(version.updated_at),
            // Why a build failed is said by the build alone.
            "stateReason": null,
            "tags": null,
            "versionStateTimeBucket": null,
        });
        version.add_settings(&mut view);
        view
    }

    pub(super) fn build_view(&self, version: &Version, build: &Build) -> Value {
        let architecture = &version.plan.architecture;
        json!({
            "imageArn": self.arn,
            "imageVersion": version_name(version.number),
            "buildId": build.id.to_string(),
            "buildState": build.state.word(),
            "architecture": architecture,
            "chipset": if architecture == "ARM_64" { "GRAVITON" } else { "INTEL" },
            "chipsetGeneration": build.generation,
            "createdAt": seconds(build.created_at),
            "stateReason": build.reason,
            "terminationReasonCode": null,
        })
    }
}

impl Version {
    fn add_settings(&self, view: &mut Value) {
        for name in SETTINGS {
            view[name] = self.document.get(name).cloned().unwrap_or_default();
        }
        if view["baseImageVersion"].is_null() {
            view["baseImageVersion"] = json!("1.0");
        }
    }

    /// Moves the version and all of its builds.
    pub(super) fn enter(&mut self, state: BuildState, reason: Option<&str>, snapshot: Option<&Value>) {
        (self.state, self.updated_at) = (state, Timestamp::now());
        self.active = state == BuildState::Successful;
        for build in &mut self.builds {
            (build.state, build.reason, build.snapshot) = (state, reason.map(str::to_owned), snapshot.cloned());
        }
    }
}

impl Build {
    pub(super) fn is(&self, id: &str) -> bool {
        self.id.to_string() == id
    }
}

fn no_version(arn: &str, version: &str) -> ApiError {
    ApiError::not_found(format!("MicroVMImageVersion not found for MicroVMImageID: {arn}, version: {version}"))
}
