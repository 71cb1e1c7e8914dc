//! What clients did that the vendor would not accept.

use serde::Serialize;

use crate::recent::Recent;

/// Most violations kept; the oldest go first.
const KEPT: usize = 1000;

/// A request that the vendor would refuse as malformed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Method and path.
    pub request: String,
    /// What is wrong with it.
    pub what: String,
}

/// The violations of one emulator. A correct client leaves it empty; errors that a correct client can meet (a missing
/// snapshot, a quota) are not recorded here.
pub struct Violations(Recent<Violation>);

impl Default for Violations {
    fn default() -> Violations {
        Violations(Recent::new(KEPT))
    }
}

impl Violations {
    /// Records one.
    pub fn record(&self, request: impl Into<String>, what: impl Into<String>) {
        self.0.push(Violation { request: request.into(), what: what.into() });
    }

    /// All that are kept, the oldest first.
    pub fn all(&self) -> Vec<Violation> {
        self.0.all()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0.clear();
    }
}
