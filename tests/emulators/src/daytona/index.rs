//! What lists show: the sandboxes as they were a while ago.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::record::{Record, State};

#[derive(Default)]
pub(super) struct Index(Mutex<Contents>);

#[derive(Default)]
struct Contents {
    shown: BTreeMap<String, Record>,
    pending: VecDeque<(Instant, Record)>,
}

impl Index {
    pub(super) fn push(&self, record: Record) {
        let mut contents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        contents.pending.push_back((Instant::now(), record));
    }

    /// As it was `lag` ago; a stale view takes in nothing new.
    pub(super) fn view(&self, lag: Duration, stale: bool) -> Vec<Record> {
        let mut contents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !stale && contents.pending.front().is_some_and(|(at, _)| at.elapsed() >= lag) {
            let Some((_, record)) = contents.pending.pop_front() else { break };
            if record.state == State::Destroyed {
                contents.shown.remove(&record.id);
            } else {
                contents.shown.insert(record.id.clone(), record);
            }
        }
        contents.shown.values().cloned().collect()
    }
}
