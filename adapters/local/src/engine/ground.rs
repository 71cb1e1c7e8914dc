//! What a sandbox stands on: the read-only directories below its own layers.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::boot::Overlay;
use super::state::StateDir;

/// Read-only directories, and where they appear in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ground {
    /// What it is, for evidence: a digest, a path, `host`.
    pub(crate) identity: String,
    /// Becomes `/`.
    pub(crate) root: PathBuf,
    /// Directories that become `/NAME`, each below a layer of its own, because the host's `/` as a whole cannot be
    /// the lower directory of an overlay in a user namespace.
    pub(crate) parts: Vec<Part>,
}

/// One top-level directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) lower: PathBuf,
}

/// The layer directory that belongs to `/`. Not a name that a top-level directory can have.
pub(crate) const ROOT_LAYER: &str = "@root";

impl Ground {
    /// A root directory and nothing else.
    pub(crate) fn rootfs(root: PathBuf) -> Ground {
        Ground { identity: root.display().to_string(), root, parts: Vec::new() }
    }

    /// Names and lower directories of all overlays, the root first.
    pub(crate) fn overlays(&self) -> impl Iterator<Item = (&str, &Path)> {
        let parts = self.parts.iter().map(|part| (part.name.as_str(), part.lower.as_path()));
        std::iter::once((ROOT_LAYER, self.root.as_path())).chain(parts)
    }

    /// The overlays of a sandbox in `sandbox`, on top of the given layers, the newest first.
    pub(crate) fn mounts(&self, sandbox: &Path, layers: &[String], state: &StateDir) -> Vec<Overlay> {
        self.overlays()
            .map(|(name, base)| {
                let layers = layers.iter().map(|layer| state.layer(layer).join(name));
                Overlay {
                    target: if name == ROOT_LAYER { sandbox.join("merged") } else { Path::new("/").join(name) },
                    lower: layers.chain([base.to_owned()]).collect(),
                    upper: sandbox.join("upper").join(name),
                    work: sandbox.join("work").join(name),
                }
            })
            .collect()
    }

    /// Where, below a sandbox's or layer's `upper`, the files of `/etc` are.
    pub(crate) fn etc(&self) -> PathBuf {
        if self.parts.iter().any(|part| part.name == "etc") { "etc".into() } else { Path::new(ROOT_LAYER).join("etc") }
    }
}

/// Whether another file system is mounted below `directory`: then it cannot be a lower directory for us.
pub(crate) fn has_mounts_below(directory: &Path) -> bool {
    // Fields of a line: id, parent, device, root, mount point, … (proc_pid_mountinfo(5)).
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .any(|point| Path::new(point) != directory && Path::new(point).starts_with(directory))
}
