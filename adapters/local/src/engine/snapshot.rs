//! Snapshots: the layers of a sandbox, kept to start others from.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use uuid::Uuid;

use super::error::{EngineError, Result};
use super::factory::{Engine, Shared};
use super::ground::ROOT_LAYER;
use super::sandbox::{EngineSandbox, lock, make_upper};
use super::spec::Snapshot;
use super::state::{Record, read_json, valid_id, write_json};

/// The mount data of an overlay has to fit one page of 4096 bytes with the old mount call; with paths of 120 bytes this
/// many layers do.
const MAX_LAYERS: usize = 24;

impl EngineSandbox {
    /// Saves the files of the sandbox as a snapshot.
    ///
    /// **Every process in the sandbox ends**; the sandbox itself stays usable with all its files, on top of the saved
    /// layer. Nothing is copied, so this takes milliseconds whatever the size. What was written to `/tmp` and `/run`
    /// stays with the sandbox and is not part of the snapshot; `/dev/shm` is emptied.
    pub async fn snapshot(&self, id: &str, labels: BTreeMap<String, String>) -> Result<Snapshot> {
        let sandbox = &self.inner;
        let state = &sandbox.shared.state;
        if !valid_id(id) || state.snapshot(id).exists() {
            return Err(EngineError::Invalid(format!("{id:?} cannot be the id of a new snapshot")));
        }
        let _restarting = sandbox.restarting.lock().await;
        let mut record = lock(&sandbox.record).clone();
        if record.layers.len() >= MAX_LAYERS {
            return Err(EngineError::Invalid(format!("a sandbox can stand on {MAX_LAYERS} layers, and this one does")));
        }
        sandbox.end().await?;
        // The record names the layer before it exists, so that nobody takes it for unused.
        let layer = Uuid::now_v7().simple().to_string();
        record.layers.insert(0, layer.clone());
        sandbox.shared.save(&record)?;
        let upper = sandbox.directory.path.join("upper");
        fs::rename(&upper, state.layer(&layer)).map_err(EngineError::io(upper.display()))?;
        sandbox.shared.remove_tree(sandbox.directory.path.join("work")).await?;
        keep_transient(&state.layer(&layer), &upper).map_err(EngineError::io(upper.display()))?;
        *lock(&sandbox.record) = record.clone();
        let path = state.layer(&layer);
        let size = tokio::task::spawn_blocking(move || disk_use(&path)).await.unwrap_or_default();
        let snapshot = Snapshot {
            id: id.to_owned(),
            labels,
            created: SystemTime::now(),
            size,
            ground: record.ground,
            layers: record.layers,
        };
        write_json(&state.snapshot(id), &snapshot).map_err(EngineError::io(state.snapshot(id).display()))?;
        sandbox.run().await?;
        Ok(snapshot)
    }
}

impl Engine {
    /// All snapshots in the state directory.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let names = self.shared.state.names("snapshots").map_err(EngineError::io("list of snapshots"))?;
        let snapshots = names.iter().filter_map(|name| self.shared.snapshot(name.strip_suffix(".json")?).ok());
        Ok(snapshots.collect())
    }

    /// The snapshot of this id.
    ///
    /// # Errors
    /// [`EngineError::NoSnapshot`].
    pub fn snapshot(&self, id: &str) -> Result<Snapshot> {
        self.shared.snapshot(id)
    }

    /// Removes a snapshot. Its layers go as soon as no sandbox and no other snapshot stands on them. One that is gone
    /// is fine.
    pub async fn delete_snapshot(&self, id: &str) -> Result<()> {
        let state = &self.shared.state;
        if !valid_id(id) {
            return Ok(());
        }
        match fs::remove_file(state.snapshot(id)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(EngineError::io(state.snapshot(id).display())(error));
            }
            _ => {}
        }
        self.remove_unused_layers().await
    }

    /// Removes layers that nothing stands on, also those that an interrupted run left.
    pub async fn remove_unused_layers(&self) -> Result<()> {
        let state = &self.shared.state;
        // Layers first: one that is made from now on is named by a record before it exists.
        let layers = state.names("layers").map_err(EngineError::io("list of layers"))?;
        let mut used: HashSet<String> = HashSet::new();
        for name in state.names("sandboxes").map_err(EngineError::io("list of sandboxes"))? {
            if let Ok(record) = read_json::<Record>(&state.sandbox(&name).join("record.json")) {
                used.extend(record.layers);
            }
        }
        used.extend(self.snapshots()?.into_iter().flat_map(|snapshot| snapshot.layers));
        for layer in layers.into_iter().filter(|layer| !used.contains(layer)) {
            self.shared.remove_tree(state.layer(&layer)).await?;
        }
        Ok(())
    }
}

impl Shared {
    pub(super) fn snapshot(&self, id: &str) -> Result<Snapshot> {
        if !valid_id(id) {
            return Err(EngineError::NoSnapshot(id.to_owned()));
        }
        let path = self.state.snapshot(id);
        read_json(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => EngineError::NoSnapshot(id.to_owned()),
            _ => EngineError::io(path.display())(error),
        })
    }
}

/// Moves what is not to be saved from the layer back to the sandbox.
fn keep_transient(layer: &Path, upper: &Path) -> std::io::Result<()> {
    for name in ["tmp", "run"].map(|name| Path::new(ROOT_LAYER).join(name)) {
        if fs::symlink_metadata(layer.join(&name)).is_ok_and(|metadata| metadata.is_dir()) {
            make_upper(&upper.join(ROOT_LAYER), &layer.join(ROOT_LAYER))?;
            fs::rename(layer.join(&name), upper.join(&name))?;
        }
    }
    Ok(())
}

/// Bytes on disk of a tree, as far as we may look into it.
fn disk_use(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)))
        .map(|(path, metadata)| metadata.blocks() * 512 + if metadata.is_dir() { disk_use(&path) } else { 0 })
        .sum()
}
