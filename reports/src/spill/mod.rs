//! Figures of any number of trials in a fixed amount of memory: what does not fit is on disk, in order.
//!
//! [`Spool`] takes in numbers and gives them back sorted, by series ([`Sorted`]); [`Shelf`] takes in values and gives them back
//! by their numbers. Both write to a temporary file without a name, which is gone with the process whatever becomes of
//! that; what fits into their memory never touches the disk.
//!
//! Reading back cannot be stopped at each number to see if the disk still answers: a failure ends the series at hand and is
//! told by [`Sorted::check`], before which nothing must be concluded.

mod shelf;
mod sorted;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub(crate) use shelf::Shelf;
pub(crate) use sorted::{Records, Series, Sorted};

/// Numbers that are sorted as they stand. The first one names the series.
pub(crate) type Record<const N: usize> = [u64; N];

/// Memory for records that are not yet on disk, in bytes. Tests have so little that their small runs go to the disk as well.
const HELD: usize = if cfg!(test) { 1 << 10 } else { 8 << 20 };

/// Takes in records, to have them back in order.
#[derive(Debug)]
pub(crate) struct Spool<const N: usize> {
    scratch: PathBuf,
    most: usize,
    held: Vec<Record<N>>,
    file: Option<BufWriter<File>>,
    /// Numbers of records of the sorted runs in the file, one after the other.
    runs: Vec<u64>,
    /// The first failure; what comes after it is let go.
    failed: Option<io::Error>,
}

impl<const N: usize> Spool<N> {
    /// Of records that go to a file in the directory `scratch`, if they are many.
    pub(crate) fn new(scratch: &Path) -> Self {
        Self::holding(HELD / size_of::<Record<N>>(), scratch)
    }

    /// … if they are more than `most`.
    pub(super) fn holding(most: usize, scratch: &Path) -> Self {
        let scratch = scratch.to_owned();
        Self { scratch, most: most.max(1), held: Vec::new(), file: None, runs: Vec::new(), failed: None }
    }

    /// Adds a record. A failure is told by [`Spool::sorted`].
    pub(crate) fn push(&mut self, record: Record<N>) {
        if self.held.len() >= self.most
            && let Err(error) = self.spill()
        {
            self.failed.get_or_insert(error);
            self.held.clear();
        }
        self.held.push(record);
    }

    /// All of them in order.
    ///
    /// # Errors
    /// What writing them to the disk failed with, then or now.
    pub(crate) fn sorted(mut self) -> io::Result<Sorted<N>> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.file.is_none() {
            self.held.sort_unstable();
            return Ok(Sorted::held(self.held));
        }
        self.spill()?;
        // The merge needs the memory more.
        self.held = Vec::new();
        let Some(file) = self.file else { return Ok(Sorted::held(Vec::new())) };
        Sorted::merged(&file.into_inner().map_err(io::IntoInnerError::into_error)?, &self.runs, &self.scratch)
    }

    fn spill(&mut self) -> io::Result<()> {
        self.held.sort_unstable();
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(BufWriter::with_capacity(256 << 10, scratch_file(&self.scratch)?)),
        };
        for record in &self.held {
            write(file, record)?;
        }
        self.runs.push(self.held.len() as u64);
        self.held.clear();
        Ok(())
    }

    /// How many records are in memory, and how many were let go to the disk.
    #[cfg(test)]
    fn kept(&self) -> (usize, u64) {
        (self.held.len(), self.runs.iter().sum())
    }
}

fn scratch_file(directory: &Path) -> io::Result<File> {
    let mut file = tempfile::tempfile_in(directory)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

fn write<const N: usize>(file: &mut impl Write, record: &Record<N>) -> io::Result<()> {
    record.iter().try_for_each(|word| file.write_all(&word.to_le_bytes()))
}

/// The bytes of records, as numbers.
fn read<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = Record<N>> {
    bytes.chunks_exact(size_of::<Record<N>>()).map(|record| {
        let mut words = record.as_chunks::<8>().0.iter();
        std::array::from_fn(|_| words.next().map_or(0, |word| u64::from_le_bytes(*word)))
    })
}
