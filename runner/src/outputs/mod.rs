//! The content-addressed store of a run: `outputs/<2 hex>/<62 hex>` in the run directory, named by SHA-256.
//!
//! What it promises: an [`OutputRef`] is handed out only when its object is complete and in place, under its final
//! name. So whatever a durable journal line refers to exists after the death of the process, `kill -9` included. After
//! a loss of power an object may be missing or short; its digest tells. Equal contents are stored once. Nothing is held
//! in memory but a small buffer per stream.

mod capture;
mod redact;
mod spool;
mod unpack;

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandbox_bench_core::{Digest, OutputRef};

pub use capture::{CapturedStream, StreamCapture, TAIL_BYTES};
pub use redact::Secrets;
pub use unpack::{Limits, Skipped, Unpacked, unpack_safely};

use spool::Spool;

/// Name of the store's directory in the run directory.
pub const DIRECTORY: &str = "outputs";
/// Name of the directory in it where objects are written before they get their name.
pub const UNFINISHED: &str = "unfinished";

/// The store of one run. Cheap to clone, and usable from many tasks at once.
#[derive(Clone)]
pub struct OutputStore {
    root: Arc<Path>,
    secrets: Secrets,
}

impl OutputStore {
    /// Opens the store of a run, making it if it is not there. Unfinished files of a killed process are removed, so
    /// only the process that holds the run's journal may open it.
    ///
    /// # Errors
    /// What making the directories fails with.
    pub fn open(run_dir: &Path) -> io::Result<Self> {
        let root: Arc<Path> = run_dir.join(DIRECTORY).into();
        let store = Self { root, secrets: Secrets::default() };
        match fs::remove_dir_all(store.unfinished()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir_all(store.unfinished())?,
        }
        Ok(store)
    }

    /// The same store, which overwrites these values in what commands write.
    #[must_use]
    pub fn hiding(self, secrets: Secrets) -> Self {
        Self { secrets, ..self }
    }

    /// The values that are overwritten. Files are the caller's to overwrite before they are stored.
    #[must_use]
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// A sink for one command. Its streams become the outputs `<name>.stdout` and `<name>.stderr`, of each the first
    /// `limit` bytes.
    #[must_use]
    pub fn stream(&self, name: &str, media_type: &str, limit: u64) -> StreamCapture {
        StreamCapture::new(self, name, media_type, limit)
    }

    /// Stores a copy of the host file `host_path`, which came from `path` in the sandbox. Blocks while it copies.
    ///
    /// # Errors
    /// What reading the file or writing the object fails with.
    pub fn file(&self, name: &str, path: Option<&str>, host_path: &Path, media_type: &str) -> io::Result<OutputRef> {
        let mut source = File::open(host_path)?;
        let mut spool = Spool::new(self);
        let mut buffer = vec![0; 64 << 10];
        loop {
            match source.read(&mut buffer)? {
                0 => break,
                n => spool.write(buffer.get(..n).unwrap_or_default())?,
            }
        }
        let (digest, size) = spool.finish()?;
        Ok(self.reference(name, path, digest, size, media_type))
    }

    /// Stores bytes, which came from `path` in the sandbox if from a file at all.
    ///
    /// # Errors
    /// What writing the object fails with.
    pub fn bytes(&self, name: &str, path: Option<&str>, bytes: &[u8], media_type: &str) -> io::Result<OutputRef> {
        let mut spool = Spool::new(self);
        spool.write(bytes)?;
        let (digest, size) = spool.finish()?;
        Ok(self.reference(name, path, digest, size, media_type))
    }

    fn reference(&self, name: &str, path: Option<&str>, digest: Digest, size: u64, media_type: &str) -> OutputRef {
        let (directory, file) = names(&digest);
        OutputRef {
            name: name.to_owned(),
            path: path.map(str::to_owned),
            digest,
            size,
            media_type: media_type.to_owned(),
            stored: format!("{DIRECTORY}/{directory}/{file}"),
            truncated: false,
        }
    }

    /// Where the object of this digest lies or would lie.
    fn object(&self, digest: &Digest) -> PathBuf {
        let (directory, file) = names(digest);
        self.root.join(directory).join(file)
    }

    /// Where objects are written before they get their name.
    fn unfinished(&self) -> PathBuf {
        self.root.join(UNFINISHED)
    }
}

/// The directory and file name of a digest.
fn names(digest: &Digest) -> (String, String) {
    let mut directory = digest.hex();
    let file = directory.split_off(2);
    (directory, file)
}
