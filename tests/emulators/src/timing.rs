//! How long things take that happen at once here and take time at a vendor.

use std::time::Duration;

/// Delays of an emulator. Real work (boots, builds, transfers) comes on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Each state that a resource passes through.
    pub transition: Duration,
    /// By how much eventually consistent lists lag behind.
    pub list_lag: Duration,
}

impl Default for Timing {
    /// 30 ms for each state, lists lag by 50 ms: short, but long enough to be seen by a client that does not wait.
    fn default() -> Timing {
        Timing { transition: Duration::from_millis(30), list_lag: Duration::from_millis(50) }
    }
}
