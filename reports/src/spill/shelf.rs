//! Values by their numbers.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Sorted, Spool, scratch_file};

/// Memory for values that are not yet on disk, in bytes; little in tests.
pub(super) const HELD: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// Takes in values with numbers, to have them back in the order of these.
#[derive(Debug)]
pub(crate) struct Shelf<T> {
    scratch: PathBuf,
    /// One series: number, and where the value stands.
    places: Spool<4>,
    pub(super) held: Vec<u8>,
    file: Option<File>,
    pub(super) written: u64,
    values: PhantomData<T>,
}

impl<T: Serialize + DeserializeOwned> Shelf<T> {
    /// Of values that go to a file in the directory `scratch`, if they are many.
    pub(crate) fn new(scratch: &Path) -> Self {
        Self {
            scratch: scratch.to_owned(),
            places: Spool::new(scratch),
            held: Vec::new(),
            file: None,
            written: 0,
            values: PhantomData,
        }
    }

    /// Puts a value in its place; no number may come twice.
    ///
    /// # Errors
    /// It cannot be written to the disk.
    pub(crate) fn put(&mut self, number: u64, value: &T) -> io::Result<()> {
        let start = self.held.len();
        serde_json::to_writer(&mut self.held, value)?;
        self.places.push([0, number, self.written + start as u64, (self.held.len() - start) as u64]);
        if self.held.len() >= HELD {
            let file = match &mut self.file {
                Some(file) => file,
                None => self.file.insert(scratch_file(&self.scratch)?),
            };
            file.write_all_at(&self.held, self.written)?;
            self.written += self.held.len() as u64;
            self.held.clear();
        }
        Ok(())
    }

    /// All of them, in the order of their numbers.
    ///
    /// # Errors
    /// What writing to the disk failed with.
    pub(crate) fn sorted(self) -> io::Result<Shelved<T>> {
        let Self { places, held, file, written, .. } = self;
        Ok(Shelved { places: places.sorted()?, held, file, written, values: PhantomData })
    }
}

/// Values in the order of their numbers.
#[derive(Debug)]
pub(crate) struct Shelved<T> {
    places: Sorted<4>,
    held: Vec<u8>,
    file: Option<File>,
    written: u64,
    values: PhantomData<T>,
}

impl<T: DeserializeOwned> Shelved<T> {
    /// One after the other. What cannot be read is an error in its place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = io::Result<T>> {
        let values = self.places.all().iter().map(|[_, _, start, len]| self.value(start, len));
        values.chain(std::iter::once_with(|| self.places.check()).filter_map(|checked| Some(Err(checked.err()?))))
    }

    fn value(&self, start: u64, len: u64) -> io::Result<T> {
        if let Some(start) = start.checked_sub(self.written) {
            let held = self.held.get(start as usize..(start + len) as usize).unwrap_or_default();
            return Ok(serde_json::from_slice(held)?);
        }
        let mut bytes = vec![0; len as usize];
        if let Some(file) = &self.file {
            file.read_exact_at(&mut bytes, start)?;
        }
        Ok(serde_json::from_slice(&bytes)?)
    }
}
