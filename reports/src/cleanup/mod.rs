//! The cleanup ledger: everything that a run created, and what is known of its end.
//!
//! The ledger never forgets. Whatever may exist is in it as `Unconfirmed` until an event says otherwise:
//!
//! * an announced object (`intent`) may exist until its creation is known to have failed: a later `create_failed` that is
//!   not `uncertain` also settles an object that was looked for and is not there;
//! * a sandbox (`created`) exists until its backend says that it is gone (`destroyed`, also by a later `reap`), and a
//!   sandbox that is gone does not come back;
//! * a warm artifact (`artifact_ready`) is meant to stay, until it is destroyed.

use std::collections::HashMap;

use sandbox_bench_core::evidence::{CleanupEntry, CleanupState, Creates, Event};
use sandbox_bench_core::{Artifact, Destruction, SandboxRef, Tag, TagQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evidence::Entry;

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
#[derive(Debug, Default)]
pub struct Ledger {
    /// The run, once its journal has told it.
    run: Option<String>,
    entries: Vec<CleanupEntry>,
    /// Entries by backend and id.
    known: HashMap<(String, String), usize>,
    /// Entries without an id, by tag, that are not settled. The newest is the last.
    open: HashMap<Tag, Vec<usize>>,
}

impl Ledger {
    /// Takes in one event.
    pub fn record(&mut self, event: &Event) {
        match event {
            Event::RunStarted { run, .. } => self.run = Some(run.clone()),
            Event::Intent { tag, backend, creates } => {
                let entry = self.add(tag, backend, *creates);
                self.settle(entry, CleanupState::Unconfirmed, Some("it was announced, and no answer is recorded"));
                self.open.entry(tag.clone()).or_default().push(entry);
            }
            Event::Created { sandbox } => {
                let entry = self.sandbox(sandbox);
                self.settle(entry, CleanupState::Unconfirmed, Some("it was created, and no end is recorded"));
            }
            Event::CreateFailed { tag, error, uncertain } => self.create_failed(tag, error, *uncertain),
            Event::ArtifactReady { artifact } => self.artifact(artifact),
            Event::DestroyRequested { sandbox } => {
                let entry = self.sandbox(sandbox);
                self.settle(entry, CleanupState::Unconfirmed, Some("its end was requested, and no answer is recorded"));
            }
            Event::Destroyed { sandbox, outcome } => {
                let entry = self.sandbox(sandbox);
                match outcome {
                    Destruction::Confirmed => self.settle(entry, CleanupState::Confirmed, None),
                    Destruction::Unconfirmed { why } => self.settle(entry, CleanupState::Unconfirmed, Some(why)),
                }
            }
            Event::Receipt { .. } | Event::AttemptFinished { .. } | Event::RunFinished { .. } => {}
        }
    }

    /// What is known after the events so far, in the order of announcement.
    #[must_use]
    pub fn into_entries(self) -> Vec<CleanupEntry> {
        self.entries
    }

    fn add(&mut self, tag: &Tag, backend: &str, creates: Creates) -> usize {
        self.entries.push(CleanupEntry {
            tag: tag.clone(),
            backend: backend.to_owned(),
            creates,
            id: None,
            state: CleanupState::Unconfirmed,
            why: None,
        });
        self.entries.len() - 1
    }

    /// The entry of an object that has an id: the one that has it already, else the newest open announcement of its
    /// tag, else a new one.
    fn identify(&mut self, tag: &Tag, backend: &str, id: &str, creates: Creates) -> usize {
        let key = (backend.to_owned(), id.to_owned());
        if let Some(&entry) = self.known.get(&key) {
            return entry;
        }
        let announced = self.take_open(tag, |entry| entry.creates == creates && entry.backend == backend);
        let entry = announced.unwrap_or_else(|| self.add(tag, backend, creates));
        self.known.insert(key, entry);
        if let Some(entry) = self.entries.get_mut(entry) {
            entry.id = Some(id.to_owned());
        }
        entry
    }

    fn sandbox(&mut self, sandbox: &SandboxRef) -> usize {
        self.identify(&sandbox.tag, &sandbox.backend, &sandbox.id, Creates::Sandbox)
    }

    /// An artifact that carries no tag of this run was found, not made: it is another run's to account for.
    fn artifact(&mut self, artifact: &Artifact) {
        let Some(tag) = &artifact.tag else { return };
        if self.run.as_ref().is_none_or(|run| TagQuery::Run(run.clone()).matches(tag.as_str())) {
            let entry = self.identify(tag, &artifact.backend, &artifact.id, Creates::Artifact);
            self.settle(entry, CleanupState::Retained, None);
        }
    }

    fn create_failed(&mut self, tag: &Tag, error: &str, uncertain: bool) {
        if uncertain {
            let newest = self.open.get(tag).and_then(|open| open.last()).copied();
            if let Some(entry) = newest {
                self.settle(entry, CleanupState::Unconfirmed, Some(error));
            }
        } else if let Some(entry) = self.take_open(tag, |_| true) {
            self.settle(entry, CleanupState::Never, None);
        }
    }

    /// Takes the newest open announcement of a tag that fits.
    fn take_open(&mut self, tag: &Tag, fits: impl Fn(&CleanupEntry) -> bool) -> Option<usize> {
        let open = self.open.get_mut(tag)?;
        let newest = open.iter().rposition(|&entry| self.entries.get(entry).is_some_and(&fits))?;
        let entry = open.remove(newest);
        if open.is_empty() {
            self.open.remove(tag);
        }
        Some(entry)
    }

    fn settle(&mut self, entry: usize, state: CleanupState, why: Option<&str>) {
        if let Some(entry) = self.entries.get_mut(entry)
            && entry.state != CleanupState::Confirmed
        {
            entry.state = state;
            entry.why = why.map(str::to_owned);
        }
    }
}

#[cfg(test)]
mod tests;
