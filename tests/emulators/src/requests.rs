//! What was requested, for tests that assert on it.

use serde::Serialize;

use crate::recent::Recent;

/// Most requests kept; the oldest go first.
const KEPT: usize = 10_000;

/// A request that was answered, or dropped by a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    /// Upper case.
    pub method: String,
    /// As sent, without query.
    pub path: String,
    /// As sent, without `?`; empty if there is none.
    pub query: String,
    /// Of the answer; `None` if the connection was dropped instead.
    pub status: Option<u16>,
}

/// The last requests in the order of their answers; those to admin routes are not among them.
pub struct Requests(Recent<Request>);

impl Default for Requests {
    fn default() -> Requests {
        Requests(Recent::new(KEPT))
    }
}

impl Requests {
    pub(crate) fn record(&self, request: Request) {
        self.0.push(request);
    }

    /// All that are kept, the oldest first.
    pub fn all(&self) -> Vec<Request> {
        self.0.all()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0.clear();
    }

    /// How many of those kept have this method and a path that ends like this.
    pub fn count(&self, method: &str, path_end: &str) -> usize {
        self.0.all().iter().filter(|request| request.method == method && request.path.ends_with(path_end)).count()
    }
}
