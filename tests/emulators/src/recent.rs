//! A list that forgets its oldest entries instead of growing without bound.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) struct Recent<T> {
    entries: Mutex<VecDeque<T>>,
    capacity: usize,
}

impl<T: Clone> Recent<T> {
    pub(crate) fn new(capacity: usize) -> Recent<T> {
        Recent { entries: Mutex::default(), capacity }
    }

    pub(crate) fn push(&self, entry: T) {
        let mut entries = self.lock();
        if entries.len() == self.capacity {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.lock().iter().cloned().collect()
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
