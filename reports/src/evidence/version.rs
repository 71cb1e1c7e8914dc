//! Schema versions: which evidence this program may read.

use std::path::Path;

use sandbox_bench_core::evidence::SCHEMA_VERSION;
use serde::Deserialize;

use super::EvidenceError;

/// The version of a file or journal, whatever else is in it.
#[derive(Debug, Deserialize)]
pub(super) struct Versioned {
    schema_version: String,
}

impl Versioned {
    pub(super) fn new(schema_version: &str) -> Self {
        Self { schema_version: schema_version.to_owned() }
    }

    /// True if the writer's minor version is newer than ours, so that it may say things we do not know.
    ///
    /// # Errors
    /// `TooNew` for a newer major version, and for what is no version at all.
    pub(super) fn check(&self, path: &Path) -> Result<bool, EvidenceError> {
        let ours = parse(SCHEMA_VERSION);
        match (parse(&self.schema_version), ours) {
            (Some((major, minor)), Some((our_major, our_minor))) if major <= our_major => {
                Ok(major == our_major && minor > our_minor)
            }
            _ => Err(EvidenceError::TooNew { path: path.to_owned(), found: self.schema_version.clone() }),
        }
    }
}

fn parse(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
