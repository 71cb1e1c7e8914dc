//! The cleanup ledger: everything that a run created, and what is known of its end.
//!
//! The ledger never forgets. Whatever may exist is in it as `Unconfirmed` until an event says otherwise:
//!
//! * an announced object (`intent`) may exist until its creation is known to have failed: a later `create_failed` that is
//!   not `uncertain` also settles an object that was looked for and is not there;
//! * a sandbox (`created`) exists until its backend says that it is gone (`destroyed`, also by a later `reap`), and a
//!   sandbox that is gone does not come back;
//! * a warm artifact (`artifact_ready`) is meant to stay, until it is destroyed.

mod file;

use std::collections::{BTreeMap, HashMap, HashSet};

use sandbox_bench_core::evidence::{CleanupEntry, CleanupState, Creates, Event};
use sandbox_bench_core::{Artifact, Destruction, SandboxRef, Tag, TagQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evidence::Entry;
use crate::summary::hash;

pub(crate) use file::{read_entries, write_entries};

/// `cleanup.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CleanupReport {
    /// Version of the evidence schemas.
    pub schema_version: String,
    /// The run.
    pub run: String,
    /// Everything that the run created, in the order in which it was announced.
    pub entries: Vec<CleanupEntry>,
}

/// The ledger of a journal.
///
/// # Errors
/// The first error of reading the journal.
pub fn ledger<E>(journal: impl IntoIterator<Item = Result<Entry, E>>) -> Result<Vec<CleanupEntry>, E> {
    let mut ledger = Ledger::default();
    for entry in journal {
        if let Entry::Known(line) = entry? {
            ledger.record(&line.event);
        }
    }
    Ok(ledger.into_entries())
}

/// A ledger in the making: record the events of a journal in their order.
///
/// An entry that nothing can change any more, because the object never came to be or is confirmed gone, is *settled*. Settled
/// entries can be taken out while the journal is read: of what is gone, only the hash of its id is then kept, so that it
/// does not come back.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The run, once its journal has told it.
    run: Option<String>,
    /// How many entries there were.
    count: u64,
    /// Those that are not settled, by their number.
    live: BTreeMap<u64, CleanupEntry>,
    /// … of them those with an id, by backend and id.
    known: HashMap<(String, String), u64>,
    /// … and those without one, by tag. The newest is the last.
    open: HashMap<Tag, Vec<u64>>,
    settled: Vec<(u64, CleanupEntry)>,
    /// Hashes of backend and id of what is gone: 64 bits keep apart more objects than any run creates.
    gone: HashSet<u64>,
}

impl Ledger {
    /// Takes in one event.
    pub fn record(&mut self, event: &Event) {
        match event {
            Event::RunStarted { run, .. } => self.run = Some(run.clone()),
            Event::Intent { tag, backend, creates } => {
                let entry = self.add(tag, backend, *creates);
                self.doubt(entry, "it was announced, and no answer is recorded");
                self.open.entry(tag.clone()).or_default().push(entry);
            }
            Event::Created { sandbox } => self.doubt_sandbox(sandbox, "it was created, and no end is recorded"),
            Event::CreateFailed { tag, error, uncertain } => self.create_failed(tag, error, *uncertain),
            Event::ArtifactReady { artifact } => self.artifact(artifact),
            Event::DestroyRequested { sandbox } => {
                self.doubt_sandbox(sandbox, "its end was requested, and no answer is recorded");
            }
            Event::Destroyed { sandbox, outcome: Destruction::Confirmed } => {
                if let Some(entry) = self.sandbox(sandbox) {
                    self.settle(entry, CleanupState::Confirmed);
                }
            }
            Event::Destroyed { sandbox, outcome: Destruction::Unconfirmed { why } } => self.doubt_sandbox(sandbox, why),
            Event::Receipt { .. } | Event::AttemptFinished { .. } | Event::RunFinished { .. } => {}
        }
    }

    /// The entries that were settled since this was asked last, each with its number in the order of announcement.
    pub fn take_settled(&mut self) -> impl Iterator<Item = (u64, CleanupEntry)> {
        self.settled.drain(..)
    }

    /// The entries that were not taken out, with their numbers.
    #[must_use]
    pub fn rest(self) -> Vec<(u64, CleanupEntry)> {
        let mut entries = self.settled;
        entries.extend(self.live);
        entries.sort_unstable_by_key(|(number, _)| *number);
        entries
    }

    /// What is known after the events so far, in the order of announcement; without what was taken out.
    #[must_use]
    pub fn into_entries(self) -> Vec<CleanupEntry> {
        self.rest().into_iter().map(|(_, entry)| entry).collect()
    }

    fn add(&mut self, tag: &Tag, backend: &str, creates: Creates) -> u64 {
        let number = self.count;
        self.count += 1;
        let (tag, backend) = (tag.clone(), backend.to_owned());
        let entry = CleanupEntry { tag, backend, creates, id: None, state: CleanupState::Unconfirmed, why: None };
        self.live.insert(number, entry);
        number
    }

    /// The entry of an object that has an id: the one that has it already, else the newest open announcement of its
    /// tag, else a new one. None if it is gone.
    fn identify(&mut self, tag: &Tag, backend: &str, id: &str, creates: Creates) -> Option<u64> {
        let key = (backend.to_owned(), id.to_owned());
        if let Some(&entry) = self.known.get(&key) {
            return Some(entry);
        }
        if self.gone.contains(&hash(&key)) {
            return None;
        }
        let announced = self.take_open(tag, |entry| entry.creates == creates && entry.backend == backend);
        let entry = announced.unwrap_or_else(|| self.add(tag, backend, creates));
        self.known.insert(key, entry);
        if let Some(entry) = self.live.get_mut(&entry) {
            entry.id = Some(id.to_owned());
        }
        Some(entry)
    }

    fn sandbox(&mut self, sandbox: &SandboxRef) -> Option<u64> {
        self.identify(&sandbox.tag, &sandbox.backend, &sandbox.id, Creates::Sandbox)
    }

    fn doubt_sandbox(&mut self, sandbox: &SandboxRef, why: &str) {
        if let Some(entry) = self.sandbox(sandbox) {
            self.doubt(entry, why);
        }
    }

    /// An artifact that carries no tag of this run was found, not made: it is another run's to account for.
    fn artifact(&mut self, artifact: &Artifact) {
        let Some(tag) = &artifact.tag else { return };
        if self.run.as_ref().is_none_or(|run| TagQuery::Run(run.clone()).matches(tag.as_str()))
            && let Some(entry) = self.identify(tag, &artifact.backend, &artifact.id, Creates::Artifact)
            && let Some(entry) = self.live.get_mut(&entry)
        {
            (entry.state, entry.why) = (CleanupState::Retained, None);
        }
    }

    fn create_failed(&mut self, tag: &Tag, error: &str, uncertain: bool) {
        if uncertain {
            let newest = self.open.get(tag).and_then(|open| open.last()).copied();
            if let Some(entry) = newest {
                self.doubt(entry, error);
            }
        } else if let Some(entry) = self.take_open(tag, |_| true) {
            self.settle(entry, CleanupState::Never);
        }
    }

    /// Takes the newest open announcement of a tag that fits.
    fn take_open(&mut self, tag: &Tag, fits: impl Fn(&CleanupEntry) -> bool) -> Option<u64> {
        let open = self.open.get_mut(tag)?;
        let newest = open.iter().rposition(|entry| self.live.get(entry).is_some_and(&fits))?;
        let entry = open.remove(newest);
        if open.is_empty() {
            self.open.remove(tag);
        }
        Some(entry)
    }

    /// It may exist.
    fn doubt(&mut self, entry: u64, why: &str) {
        if let Some(entry) = self.live.get_mut(&entry) {
            (entry.state, entry.why) = (CleanupState::Unconfirmed, Some(why.to_owned()));
        }
    }

    /// It does not exist, and will not.
    fn settle(&mut self, number: u64, state: CleanupState) {
        let Some(entry) = self.live.remove(&number) else { return };
        if let Some(id) = &entry.id {
            let key = (entry.backend.clone(), id.clone());
            self.gone.insert(hash(&key));
            self.known.remove(&key);
        }
        self.settled.push((number, CleanupEntry { state, why: None, ..entry }));
    }
}

#[cfg(test)]
mod tests;
