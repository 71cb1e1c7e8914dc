//! An object in the making: its name is known only when its last byte is.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

use sandbox_bench_core::Digest;
use sandbox_bench_core::digest::Hasher;
use tempfile::NamedTempFile;

use super::OutputStore;

/// Bytes held in memory. Most outputs are smaller and so never need an unfinished file, nor a descriptor for it.
const BUFFER: usize = 16 << 10;

/// Takes the bytes of one object.
pub(super) struct Spool {
    store: OutputStore,
    hasher: Hasher,
    size: u64,
    buffer: Vec<u8>,
    file: Option<NamedTempFile>,
}

impl Spool {
    pub(super) fn new(store: &OutputStore) -> Self {
        Self { store: store.clone(), hasher: Hasher::default(), size: 0, buffer: Vec::new(), file: None }
    }

    /// Bytes taken so far.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        if self.buffer.len() + bytes.len() <= BUFFER {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.spill()?.write_all(bytes)
    }

    /// Puts the object in place, unless an equal one is there already. Returns its digest and size.
    pub(super) fn finish(mut self) -> io::Result<(Digest, u64)> {
        let digest = std::mem::take(&mut self.hasher).finish();
        let object = self.store.object(&digest);
        // An object of another length under this name is one that a loss of power cut short.
        if fs::metadata(&object).is_ok_and(|existing| existing.len() == self.size) {
            return Ok((digest, self.size));
        }
        if let Some(directory) = object.parent() {
            fs::create_dir_all(directory)?;
        }
        self.spill()?;
        if let Some(file) = self.file {
            file.persist(object)?;
        }
        Ok((digest, self.size))
    }

    /// Moves the buffer into the file.
    fn spill(&mut self) -> io::Result<&mut NamedTempFile> {
        let file = match self.file.take() {
            Some(file) => file,
            None => tempfile::Builder::new()
                .permissions(Permissions::from_mode(0o644))
                .tempfile_in(self.store.unfinished())?,
        };
        let file = self.file.insert(file);
        file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(file)
    }
}
