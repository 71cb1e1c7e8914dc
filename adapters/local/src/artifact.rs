//! Snapshots as warm artifacts.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use sandbox_bench_core::{Artifact, SnapshotSpec, Tag};

use crate::NAME;
use crate::backend::{TAG, timestamp};
use crate::engine::Snapshot;

const FINGERPRINT: &str = "fingerprint";
const EXPIRES: &str = "expires";

/// The labels from which [`artifact`] is read back.
pub(crate) fn labels(spec: &SnapshotSpec) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        (TAG.to_owned(), spec.tag.to_string()),
        (FINGERPRINT.to_owned(), spec.fingerprint.to_string()),
    ]);
    if let Some(expires) = spec.keep_for.and_then(after) {
        labels.insert(EXPIRES.to_owned(), expires.to_string());
    }
    labels
}

fn after(time: Duration) -> Option<Timestamp> {
    Timestamp::now().checked_add(time).ok()
}

/// What the contract wants to know of a snapshot.
pub(crate) fn artifact(snapshot: &Snapshot) -> Artifact {
    let label = |name: &str| snapshot.labels.get(name);
    Artifact {
        backend: NAME.to_owned(),
        id: snapshot.id.clone(),
        tag: label(TAG).and_then(|tag| Tag::parse(tag)),
        fingerprint: label(FINGERPRINT).and_then(|digest| digest.parse().ok()),
        created_at: timestamp(snapshot.created),
        expires_at: label(EXPIRES).and_then(|time| time.parse().ok()),
        size_bytes: Some(snapshot.size),
        ready: true,
    }
}

/// Whether nobody wants it any more.
pub(crate) fn expired(snapshot: &Snapshot, now: Timestamp) -> bool {
    artifact(snapshot).expires_at.is_some_and(|expires| expires <= now)
}
