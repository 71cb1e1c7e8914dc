//! What an image reference stands for, without a registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use globset::{Glob, GlobSet, GlobSetBuilder};

/// Image references: those that stand for something on disk, those that do not exist; all others stand for the host's
/// own programs.
#[derive(Clone, Debug, Default)]
pub struct ImageTable {
    sources: BTreeMap<String, PathBuf>,
    missing: GlobSet,
}

impl ImageTable {
    /// `sources` maps references to root directories, OCI layouts or archives of `docker save`; `missing` are globs of
    /// references that do not exist.
    ///
    /// # Errors
    /// A pattern that is no glob.
    pub fn new(sources: BTreeMap<String, PathBuf>, missing: &[String]) -> Result<ImageTable, globset::Error> {
        let mut globs = GlobSetBuilder::new();
        for pattern in missing {
            globs.add(Glob::new(pattern)?);
        }
        Ok(ImageTable { sources, missing: globs.build()? })
    }

    /// Whether the vendor could pull it.
    pub fn exists(&self, reference: &str) -> bool {
        !self.missing.is_match(reference)
    }

    /// What it stands for on disk; `None` is the host.
    pub(crate) fn source(&self, reference: &str) -> Option<&Path> {
        self.sources.get(reference).map(PathBuf::as_path)
    }
}
