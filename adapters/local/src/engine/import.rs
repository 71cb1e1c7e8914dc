//! Images become root directories, once.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::boot::Task;
use super::caches::touch;
use super::error::{EngineError, Result};
use super::factory::Engine;
use super::image::{ImageConfig, Unpack, plan};
use super::launch::LaunchError;
use super::state::{read_json, write_json};

/// Unpacking runs at about 300 MB a second; this is for very large images on slow disks.
const UNPACK_LIMIT: Duration = Duration::from_secs(1800);

/// An image that can be a base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// For [`super::Base::Rootfs`].
    pub rootfs: PathBuf,
    /// What the image says about commands.
    pub config: ImageConfig,
    /// Its content's name: a digest, or the path of a root directory.
    pub identity: String,
    /// It was unpacked before.
    pub cached: bool,
}

/// `image.json` beside the unpacked root.
#[derive(Serialize, Deserialize)]
struct Stored {
    identity: String,
    config: ImageConfig,
}

impl Engine {
    /// Makes a base of `source`: an OCI layout directory, an archive of `docker save`, `docker export` or of an OCI
    /// layout (plain, gzip or zstd), or a root directory, which is used in place.
    ///
    /// Archives are unpacked once; they are taken for unchanged as long as path, size, time and inode are.
    ///
    /// # Errors
    /// [`EngineError::Image`] for what is damaged, for another architecture or no image at all.
    pub async fn import(&self, source: &Path) -> Result<Imported> {
        let bad = |why: &dyn std::fmt::Display| EngineError::Image {
            path: source.display().to_string(),
            why: why.to_string(),
        };
        let source = source.canonicalize().map_err(|error| bad(&error))?;
        if source.is_dir() && !source.join("oci-layout").exists() {
            let identity = source.display().to_string();
            return Ok(Imported { rootfs: source, config: ImageConfig::default(), identity, cached: true });
        }
        let home = self.shared.state.bases().join(key(&source).map_err(|error| bad(&error))?);
        let _one_at_a_time = self.shared.importing.lock().await;
        if let Ok(stored) = read_json::<Stored>(&home.join("image.json")) {
            touch(&home);
            return Ok(imported(home, stored, true));
        }
        let draft = self.shared.state.draft("bases");
        fs::create_dir(&draft).map_err(EngineError::io(draft.display()))?;
        let result = self.unpack(&source, &draft).await;
        // Scratch files and half-unpacked roots must not stay, whatever happened.
        let stored = match result {
            Ok(stored) => stored,
            Err(error) => {
                self.shared.remove_tree(draft).await?;
                return Err(error);
            }
        };
        let moved = fs::rename(&draft, &home);
        if moved.is_err() {
            // Another process may have been faster.
            self.shared.remove_tree(draft).await?;
            read_json::<Stored>(&home.join("image.json")).map_err(EngineError::io(home.display()))?;
        }
        Ok(imported(home, stored, false))
    }

    async fn unpack(&self, source: &Path, draft: &Path) -> Result<Stored> {
        let bad = |why: String| EngineError::Image { path: source.display().to_string(), why };
        let (from, scratch) = (source.to_owned(), draft.to_owned());
        let plan = tokio::task::spawn_blocking(move || plan(&from, &scratch))
            .await
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(|error| bad(error.to_string()))?;
        let target = draft.join("rootfs");
        fs::create_dir(&target).map_err(EngineError::io(target.display()))?;
        let order = Unpack { layers: plan.layers, target, mapped_ids: self.shared.launcher.ids.mapped_ids() };
        self.shared.launcher.run(&Task::Unpack(order), UNPACK_LIMIT).await.map_err(|error| match error {
            LaunchError::Failed(failure) => bad(failure.message),
            other => super::factory::launch_failed(other),
        })?;
        let _ = fs::remove_file(draft.join("decompressed.tar"));
        let stored = Stored { identity: plan.identity, config: plan.config };
        write_json(&draft.join("image.json"), &stored).map_err(EngineError::io(draft.display()))?;
        Ok(stored)
    }
}

fn imported(home: PathBuf, stored: Stored, cached: bool) -> Imported {
    Imported { rootfs: home.join("rootfs"), config: stored.config, identity: stored.identity, cached }
}

/// Changes whenever the source does, without reading all of it.
fn key(source: &Path) -> std::io::Result<String> {
    let table = if source.is_dir() { source.join("index.json") } else { source.to_owned() };
    let facts = fs::metadata(&table)?;
    let mut hash = Sha256::new();
    hash.update(table.as_os_str().as_encoded_bytes());
    for fact in [facts.len(), facts.mtime() as u64, facts.mtime_nsec() as u64, facts.ino()] {
        hash.update(fact.to_le_bytes());
    }
    Ok(hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect())
}
