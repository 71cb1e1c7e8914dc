//! Warm artifacts: snapshots, images and templates that prewarm makes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backend::Source;
use crate::digest::Digest;
use crate::tag::Tag;

/// A warm artifact as the backend knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// The backend's name for its kind of store.
    pub backend: String,
    /// The id to start from.
    pub id: String,
    /// The tag under which it was made.
    pub tag: Option<Tag>,
    /// Fingerprint of the environment that it was made from.
    pub fingerprint: Option<Digest>,
    /// When the backend says it was made.
    #[schemars(with = "Option<String>")]
    pub created_at: Option<Timestamp>,
    /// When the backend will remove it by itself.
    #[schemars(with = "Option<String>")]
    pub expires_at: Option<Timestamp>,
    /// Stored size in bytes, if known.
    pub size_bytes: Option<u64>,
    /// False while the backend is still making it.
    pub ready: bool,
}

impl Artifact {
    /// True if the backend has removed it by `now`, or is about to.
    #[must_use]
    pub fn expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|expires| expires <= now)
    }
}

/// A request to build an artifact at the backend, without a sandbox of ours.
#[derive(Debug, Clone)]
pub struct ArtifactSpec {
    /// The tag to put on it.
    pub tag: Tag,
    /// Fingerprint of the environment.
    pub fingerprint: Digest,
    /// What to build from.
    pub source: Source,
    /// Further labels.
    pub labels: BTreeMap<String, String>,
}
