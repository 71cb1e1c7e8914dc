//! Unpacked images and copies of the host's `/etc`: caches, of which the old and unused ones go.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::error::{EngineError, Result};
use super::factory::Engine;
use super::ground::Ground;
use super::state::{Record, read_json};

/// Notes that a cached directory is used now.
pub(super) fn touch(directory: &Path) {
    // Whoever cannot note it loses a cache, and nothing else.
    let _ = File::open(directory).and_then(|directory| directory.set_modified(SystemTime::now()));
}

impl Engine {
    /// Removes what was not used for `keep` and what no sandbox and no snapshot stands on. Returns what it removed.
    ///
    /// # Errors
    /// The state directory cannot be read, or something in it cannot be removed.
    pub async fn prune_caches(&self, keep: Duration) -> Result<Vec<PathBuf>> {
        let state = &self.shared.state;
        let mut old = Vec::new();
        for (kind, parent) in [("host", state.host()), ("bases", state.bases())] {
            let names = state.names(kind).map_err(EngineError::io(parent.display()))?;
            old.extend(names.into_iter().map(|name| parent.join(name)).filter(|path| unused_for(path, keep)));
        }
        if old.is_empty() {
            return Ok(old);
        }
        let used = self.used()?;
        old.retain(|path| !used.iter().any(|used| used.starts_with(path)));
        for path in &old {
            self.shared.remove_tree(path.clone()).await?;
        }
        Ok(old)
    }

    /// The directories that sandboxes and snapshots stand on.
    fn used(&self) -> Result<BTreeSet<PathBuf>> {
        let state = &self.shared.state;
        let names = state.names("sandboxes").map_err(EngineError::io("list of sandboxes"))?;
        let records = names.iter().filter_map(|name| {
            let record: Record = read_json(&state.sandbox(name).join("record.json")).ok()?;
            Some(record.ground)
        });
        let grounds: Vec<Ground> = records.chain(self.snapshots()?.into_iter().map(|s| s.ground)).collect();
        Ok(grounds.iter().flat_map(Ground::overlays).map(|(_, path)| path.to_owned()).collect())
    }
}

fn unused_for(path: &Path, keep: Duration) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > keep))
}
