//! Images on disk: OCI layouts, `docker save` and `docker export` archives, turned into a root directory.
//!
//! [`read::plan`] looks at the source in the engine's process; [`unpack()`] runs in the helper, under the id map that
//! will own the files and behind a `chroot`, so that no entry can reach the host.

mod oci;
mod read;
mod unpack;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(crate) use self::read::plan;
pub(crate) use self::unpack::unpack;

/// What an image says about the commands that run in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// `Env`.
    pub env: BTreeMap<String, String>,
    /// `WorkingDir`, if it is not empty.
    pub workdir: Option<String>,
    /// `User`, if it is not empty.
    pub user: Option<String>,
}

/// What a source contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What the image is called by its content: the digest of its manifest, configuration or archive.
    pub(crate) identity: String,
    pub(crate) config: ImageConfig,
    /// From the base upwards.
    pub(crate) layers: Vec<Blob>,
}

/// A layer: a part of a file on the host. Compression is recognised by content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Blob {
    pub(crate) file: PathBuf,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) check: Check,
}

/// The SHA-256 in lower-case hex that a layer must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Check {
    /// Of the bytes as stored.
    Stored(String),
    /// Of the uncompressed tar stream.
    Content(String),
    /// The source gives none.
    Nothing,
}

/// The helper's order to unpack.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Unpack {
    pub(crate) layers: Vec<Blob>,
    /// An empty directory.
    pub(crate) target: PathBuf,
    /// Ids from 0 up to this one, exclusive, can be given to files.
    pub(crate) mapped_ids: u32,
}
