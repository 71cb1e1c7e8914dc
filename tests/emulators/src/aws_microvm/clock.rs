//! Times on the wire.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Seconds since the epoch with a fraction, as all timestamps of the service are.
pub(super) fn seconds(at: Timestamp) -> Value {
    json!(at.as_millisecond() as f64 / 1000.0)
}
