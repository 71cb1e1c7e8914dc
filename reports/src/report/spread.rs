//! Where the spread of the times lies: between tasks, or between sandboxes that run the same task; and, where a sandbox
//! serves several trials, between sandboxes or within them.

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
