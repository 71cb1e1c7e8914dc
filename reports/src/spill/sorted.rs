//! Records in order.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Record, read, scratch_file, write};

/// Memory for the parts of runs that are being merged, in bytes, over all of them …
const MERGED: usize = 4 << 20;
/// … of which each has at least so much.
const LEAST: usize = 4 << 10;
/// What is read of a series at a time, in bytes.
const READ: usize = 64 << 10;

/// Records in order, by series.
#[derive(Debug)]
pub(crate) struct Sorted<const N: usize> {
    source: Source<N>,
    /// Place of the first record of each series, and how many there are.
    series: BTreeMap<u64, (u64, u64)>,
}

#[derive(Debug)]
enum Source<const N: usize> {
    Held(Vec<Record<N>>),
    Filed { file: File, failed: RefCell<Option<io::Error>> },
}

impl<const N: usize> Sorted<N> {
    pub(super) fn held(records: Vec<Record<N>>) -> Self {
        let mut series = BTreeMap::new();
        for (place, record) in (0..).zip(&records) {
            count(&mut series, record, place);
        }
        Self { source: Source::Held(records), series }
    }

    /// Merges sorted runs, which stand in `file` one after the other, into one.
    pub(super) fn merged(file: &File, runs: &[u64], scratch: &Path) -> io::Result<Self> {
        let source = Source::Filed { file: file.try_clone()?, failed: RefCell::default() };
        let at_once = (MERGED / runs.len().max(1)).clamp(LEAST, READ);
        let mut start = 0;
        let mut parts: Vec<Records<'_, N>> = Vec::with_capacity(runs.len());
        for run in runs {
            parts.push(Records {
                source: &source,
                next: start,
                end: start + run,
                read: Vec::new().into_iter(),
                at_once,
            });
            start += run;
        }
        let mut heads: BinaryHeap<Reverse<(Record<N>, usize)>> =
            parts.iter_mut().enumerate().filter_map(|(part, records)| Some(Reverse((records.next()?, part)))).collect();
        let mut merged = BufWriter::with_capacity(256 << 10, scratch_file(scratch)?);
        let (mut series, mut place) = (BTreeMap::new(), 0);
        while let Some(mut head) = heads.peek_mut() {
            let Reverse((record, part)) = *head;
            write(&mut merged, &record)?;
            count(&mut series, &record, place);
            place += 1;
            match parts.get_mut(part).and_then(Iterator::next) {
                Some(next) => head.0.0 = next,
                None => drop(std::collections::binary_heap::PeekMut::pop(head)),
            }
        }
        source.check()?;
        let file = merged.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Self { source: Source::Filed { file, failed: RefCell::default() }, series })
    }

    /// The records of a series.
    pub(crate) fn series(&self, name: u64) -> Series<'_, N> {
        let (start, len) = self.series.get(&name).copied().unwrap_or_default();
        Series { source: &self.source, start, len }
    }

    /// All records, whatever their series.
    pub(crate) fn all(&self) -> Series<'_, N> {
        Series { source: &self.source, start: 0, len: self.series.values().map(|(_, len)| len).sum() }
    }

    /// To be asked when all has been read.
    ///
    /// # Errors
    /// What reading failed with.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.source.check()
    }
}

fn count<const N: usize>(series: &mut BTreeMap<u64, (u64, u64)>, record: &Record<N>, place: u64) {
    series.entry(record.first().copied().unwrap_or(0)).or_insert((place, 0)).1 += 1;
}

impl<const N: usize> Source<N> {
    fn check(&self) -> io::Result<()> {
        match self {
            Self::Filed { failed, .. } => failed.take().map_or(Ok(()), Err),
            Self::Held(_) => Ok(()),
        }
    }

    /// The records from one place to before another; fewer if they cannot be read.
    fn records(&self, from: u64, to: u64) -> Vec<Record<N>> {
        match self {
            Self::Held(records) => records.get(from as usize..to as usize).unwrap_or_default().to_vec(),
            Self::Filed { file, failed } => {
                let size = size_of::<Record<N>>();
                let mut bytes = vec![0; (to - from) as usize * size];
                if let Err(error) = file.read_exact_at(&mut bytes, from * size as u64) {
                    failed.borrow_mut().get_or_insert(error);
                    bytes.clear();
                }
                read(&bytes).collect()
            }
        }
    }
}

/// The records of one series in order. It can be gone through again and again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Series<'a, const N: usize> {
    source: &'a Source<N>,
    start: u64,
    len: u64,
}

impl<'a, const N: usize> Series<'a, N> {
    /// Number of records.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// The record at a place, from 0.
    pub(crate) fn at(&self, place: usize) -> Option<Record<N>> {
        let place = self.start + place as u64;
        (place < self.start + self.len).then(|| self.source.records(place, place + 1).first().copied())?
    }

    /// All of them, a part at a time.
    pub(crate) fn iter(&self) -> Records<'a, N> {
        let (next, end) = (self.start, self.start + self.len);
        Records { source: self.source, next, end, read: Vec::new().into_iter(), at_once: READ }
    }
}

impl<'a> Series<'a, 3> {
    /// The last numbers of the records, by the one before; of a series whose groups are small.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (u64, Vec<u64>)> + use<'a> {
        let mut records = self.iter().peekable();
        std::iter::from_fn(move || {
            let [_, group, first] = records.next()?;
            let mut values = vec![first];
            while let Some([.., value]) = records.next_if(|[_, same, _]| *same == group) {
                values.push(value);
            }
            Some((group, values))
        })
    }
}

/// Goes through records in order.
#[derive(Debug)]
pub(crate) struct Records<'a, const N: usize> {
    source: &'a Source<N>,
    next: u64,
    end: u64,
    read: std::vec::IntoIter<Record<N>>,
    at_once: usize,
}

impl<const N: usize> Iterator for Records<'_, N> {
    type Item = Record<N>;

    fn next(&mut self) -> Option<Record<N>> {
        if let Some(record) = self.read.next() {
            return Some(record);
        }
        let to = self.end.min(self.next + (self.at_once / size_of::<Record<N>>()).max(1) as u64);
        self.read = self.source.records(self.next, to).into_iter();
        // What cannot be read ends it.
        self.next = if self.read.len() == 0 { self.end } else { to };
        self.read.next()
    }
}
