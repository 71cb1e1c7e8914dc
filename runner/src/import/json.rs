//! A JSON object as a stream: its members, and the elements of its list `results` one at a time.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use sandbox_bench_core::Digest;
use sandbox_bench_core::digest::Hasher;
use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::ImportError;

/// No member and no result is larger: results hold a few thousand characters of output at most.
pub(super) const LARGEST: u64 = 16 << 20;

/// The list that is not held in memory.
const RESULTS: &str = "results";

/// A part of the object.
pub(super) enum Part {
    /// A member, with its name.
    Member(String, Box<RawValue>),
    /// An element of `results`, with its number, from 1.
    Result(u64, Box<RawValue>),
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) digest: Digest,
    pub(super) size: u64,
    /// Elements of `results`; none if there is no such list.
    pub(super) results: Option<u64>,
}

type Take<'a> = &'a mut dyn FnMut(Part) -> Result<(), ImportError>;

/// All bytes of a file that is held as a whole.
///
/// # Errors
/// It cannot be read, or is larger than anything that is held.
pub(super) fn whole(path: &Path) -> Result<Vec<u8>, ImportError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    read.map_err(|error| ImportError::io(path, error))?;
    if bytes.len() as u64 > LARGEST {
        return Err(ImportError::TooLarge { path: path.to_owned(), at: 0, limit: LARGEST });
    }
    Ok(bytes)
}

/// Reads the object in the file `path` to its end, and hands over its parts as they come.
///
/// # Errors
/// The file is no such object, or what `take` fails with.
pub(super) fn read(path: &Path, take: Take<'_>) -> Result<Facts, ImportError> {
    let file = File::open(path).map_err(|error| ImportError::io(path, error))?;
    if !file.metadata().map_err(|error| ImportError::io(path, error))?.is_file() {
        return Err(ImportError::NotAFile(path.to_owned()));
    }
    let budget = Rc::new(Budget::default());
    let hasher = Hashing { inner: file, hasher: Hasher::default() };
    let mut reader = Limited { inner: BufReader::with_capacity(64 << 10, hasher), budget: Rc::clone(&budget) };
    let (mut refused, mut results) = (None, None);
    let mut json = serde_json::Deserializer::from_reader(&mut reader);
    let top = Top { take, refused: &mut refused, results: &mut results, budget: &budget };
    let read = json.deserialize_map(top).and_then(|()| {
        budget.renew();
        json.end()
    });
    if let Some(refused) = refused {
        return Err(refused);
    }
    read.map_err(|error| match error.classify() {
        _ if budget.exceeded.get() => {
            ImportError::TooLarge { path: path.to_owned(), at: budget.start.get(), limit: LARGEST }
        }
        // A number that is cut is told as one that is wrong.
        serde_json::error::Category::Syntax | serde_json::error::Category::Eof if budget.ended.get() => {
            ImportError::Truncated { path: path.to_owned(), why: error.to_string() }
        }
        serde_json::error::Category::Io => ImportError::io(path, error.into()),
        _ => ImportError::invalid(path, error),
    })?;
    let size = budget.start.get() + budget.used.get();
    Ok(Facts { digest: reader.inner.into_inner().hasher.finish(), size, results })
}

/// What may still be read of one part.
#[derive(Default)]
struct Budget {
    start: Cell<u64>,
    used: Cell<u64>,
    exceeded: Cell<bool>,
    /// True once the end of the file was seen.
    ended: Cell<bool>,
}

impl Budget {
    fn renew(&self) {
        self.start.set(self.start.get() + self.used.replace(0));
    }
}

/// Fails beyond the budget.
struct Limited<R> {
    inner: R,
    budget: Rc<Budget>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.budget.used.get() >= LARGEST {
            self.budget.exceeded.set(true);
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        let read = self.inner.read(buffer)?;
        self.budget.ended.set(read == 0 && !buffer.is_empty());
        self.budget.used.set(self.budget.used.get() + read as u64);
        Ok(read)
    }
}

/// Takes the digest of what is read.
struct Hashing<R> {
    inner: R,
    hasher: Hasher,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}

struct Top<'a> {
    take: Take<'a>,
    refused: &'a mut Option<ImportError>,
    results: &'a mut Option<u64>,
    budget: &'a Budget,
}

impl Top<'_> {
    fn hand<E: serde::de::Error>(&mut self, part: Part) -> Result<(), E> {
        (self.take)(part).map_err(|error| {
            *self.refused = Some(error);
            E::custom("refused")
        })
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == RESULTS {
                if self.results.is_some() {
                    return Err(A::Error::custom("it has two lists of results"));
                }
                *self.results = Some(0);
                map.next_value_seed(Results(&mut self))?;
            } else {
                let value = map.next_value::<Box<RawValue>>()?;
                self.hand(Part::Member(name, value))?;
            }
            self.budget.renew();
        }
        Ok(())
    }
}

struct Results<'t, 'a>(&'t mut Top<'a>);

impl<'de> DeserializeSeed<'de> for Results<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Results<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of results")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut number = 0;
        self.0.budget.renew();
        while let Some(result) = list.next_element::<Box<RawValue>>()? {
            number += 1;
            *self.0.results = Some(number);
            self.0.hand(Part::Result(number, result))?;
            self.0.budget.renew();
        }
        Ok(())
    }
}
