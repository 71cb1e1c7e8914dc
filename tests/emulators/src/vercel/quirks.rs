//! Answers that are wrong on purpose, when a fault script asks for it.

use serde_json::{Value, json};

use crate::Flags;

/// Changes an answer as the flags say.
pub(super) fn spoil(flags: &Flags, answer: &mut Value) {
    if flags.has("no-routes")
        && let Some(fields) = answer.as_object_mut()
    {
        fields.remove("routes");
    }
    let Some(session) = answer.get_mut("session") else { return };
    if flags.has("unknown-status") {
        session["status"] = json!("hibernating");
    }
    if flags.has("null-started-at") {
        session["startedAt"] = Value::Null;
    }
    if flags.has("echo-policy") {
        session["networkPolicy"] = json!({ "mode": "default-allow" });
    }
    if flags.has("stop-unmeasured")
        && let Some(fields) = session.as_object_mut()
    {
        fields.remove("activeCpuDurationMs");
        fields.remove("networkTransfer");
    }
}
