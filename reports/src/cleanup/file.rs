//! `cleanup.json`, written and read one entry at a time: it has as many as the run created objects.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::Path;

use sandbox_bench_core::evidence::{CleanupEntry, SCHEMA_VERSION};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, SerializeSeq};
use serde::{Deserializer, Serialize, Serializer};

use crate::evidence::EvidenceError;

/// Writes a [`CleanupReport`](super::CleanupReport) of these entries as readable JSON, ending in a newline.
///
/// # Errors
/// What the entries or the writing fail with.
pub(crate) fn write_entries<I>(mut to: impl Write, run: &str, entries: I) -> io::Result<()>
where
    I: Iterator<Item = io::Result<CleanupEntry>>,
{
    let entries = Entries(RefCell::new(Some(entries)));
    serde_json::to_writer_pretty(&mut to, &Written { schema_version: SCHEMA_VERSION, run, entries })?;
    to.write_all(b"\n")
}

/// Has the fields of a report, in their order.
#[derive(Serialize)]
#[serde(bound = "Entries<I>: Serialize")]
struct Written<'a, I> {
    schema_version: &'a str,
    run: &'a str,
    entries: Entries<I>,
}

struct Entries<I>(RefCell<Option<I>>);

impl<I: Iterator<Item = io::Result<CleanupEntry>>> Serialize for Entries<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        for entry in self.0.take().into_iter().flatten() {
            seq.serialize_element(&entry.map_err(S::Error::custom)?)?;
        }
        seq.end()
    }
}

/// Hands over the entries of the `cleanup.json` at `path`, one after the other.
///
/// # Errors
/// `Io`, `Damaged`.
pub(crate) fn read_entries(path: &Path, each: impl FnMut(CleanupEntry)) -> Result<(), EvidenceError> {
    let file = File::open(path).map_err(|error| EvidenceError::io(path, error))?;
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(256 << 10, file));
    let read = json.deserialize_map(Report(each)).and_then(|()| json.end());
    read.map_err(|error| EvidenceError::Damaged { path: path.to_owned(), why: error.to_string() })
}

struct Report<F>(F);

impl<'de, F: FnMut(CleanupEntry)> Visitor<'de> for Report<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a cleanup report")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut told = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "entries" {
                map.next_value_seed(Each(&mut self.0))?;
                told = true;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if told { Ok(()) } else { Err(serde::de::Error::missing_field("entries")) }
    }
}

struct Each<'a, F>(&'a mut F);

impl<'de, F: FnMut(CleanupEntry)> DeserializeSeed<'de> for Each<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(CleanupEntry)> Visitor<'de> for Each<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(entry) = seq.next_element()? {
            (self.0)(entry);
        }
        Ok(())
    }
}
