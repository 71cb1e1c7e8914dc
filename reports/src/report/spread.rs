//! Where the spread of the times lies: between tasks, or between sandboxes that run the same task; and, where a sandbox
//! serves several trials, between sandboxes or within them.

use std::collections::BTreeMap;

use crate::stats::Components;

/// The components of a cell's times.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    /// Create and ready, by task: the rest lies between sandboxes of the same task.
    pub(crate) start_by_task: Option<Components>,
    /// Time to a verdict, by task.
    pub(crate) total_by_task: Option<Components>,
    /// Time to a verdict, by sandbox: the rest lies between the trials of one sandbox.
    pub(crate) total_by_sandbox: Option<Components>,
}

/// Sums of a group: enough for its mean and its spread around it.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<u64, Vec<f64>>);

impl Groups {
    pub(super) fn add(&mut self, group: u64, value: f64) {
        self.0.entry(group).or_default().push(value);
    }

    pub(super) fn components(self) -> Option<Components> {
        Components::of(&self.0.into_values().collect::<Vec<_>>())
    }
}
