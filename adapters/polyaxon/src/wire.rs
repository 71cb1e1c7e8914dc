//! What the API and the gateway send and take, as far as it is looked at; as the official client 2.18.0 and the
//! open-source server 2.18.0 have it. Unknown fields are ignored, and nearly every field may be missing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request for a run.
#[derive(Debug, Serialize)]
pub(crate) struct NewRun<'a> {
    /// The operation as JSON text.
    pub(crate) content: String,
    pub(crate) name: &'a str,
    pub(crate) tags: Vec<&'a str>,
    pub(crate) meta_info: BTreeMap<&'static str, String>,
}

/// The answer to a request for a run.
#[derive(Debug, Deserialize)]
pub(crate) struct NewRunAnswer {
    pub(crate) uuid: String,
}

/// A run, alone or in a list; a list leaves out `live_state` and `content`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Run {
    pub(crate) uuid: String,
    #[serde(default)]
    pub(crate) status: Option<Status>,
    #[serde(default)]
    pub(crate) pending: Option<String>,
    #[serde(default)]
    pub(crate) created_at: Option<Timestamp>,
    #[serde(default)]
    pub(crate) wait_time: Option<f64>,
    #[serde(default)]
    pub(crate) duration: Option<f64>,
    #[serde(default)]
    pub(crate) meta_info: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    pub(crate) settings: Option<RunSettings>,
    #[serde(default)]
    pub(crate) resources: Option<RunResources>,
    /// 1 live, 0 archived, -1 being deleted.
    #[serde(default)]
    pub(crate) live_state: Option<i64>,
    /// The compiled operation as JSON text.
    #[serde(default)]
    pub(crate) content: Option<String>,
}

impl Run {
    /// A text of its meta information, where anybody may keep anything.
    pub(crate) fn meta(&self, key: &str) -> Option<&str> {
        self.meta_info.as_ref()?.get(key)?.as_str()
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RunSettings {
    pub(crate) namespace: Option<String>,
}

/// Requested resources: CPUs, bytes; and what they cost, where the installation knows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RunResources {
    pub(crate) cpu: Option<f64>,
    pub(crate) memory: Option<f64>,
    pub(crate) gpu: Option<f64>,
    pub(crate) cost: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Runs {
    #[serde(default)]
    pub(crate) results: Vec<Run>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Namespace {
    pub(crate) namespace: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Installation {
    #[serde(default)]
    pub(crate) version: Option<String>,
    #[serde(default)]
    pub(crate) dist: Option<String>,
}

/// The statuses that matter here; the other ones are [`Status::Other`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Created,
    Compiled,
    Queued,
    Scheduled,
    Starting,
    Running,
    Processing,
    Warning,
    Unschedulable,
    Stopping,
    Succeeded,
    Failed,
    UpstreamFailed,
    Stopped,
    Skipped,
    #[serde(other)]
    Other,
}

/// The history of a run's statuses.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Statuses {
    pub(crate) status: Option<Status>,
    pub(crate) status_conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) last_transition_time: Option<Timestamp>,
}

/// A command.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct ExecRequest {
    pub(crate) command: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workdir: Option<String>,
    /// Base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stdin: Option<String>,
    pub(crate) timeout_ms: u64,
    /// Of a command in the background.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tag: Option<String>,
}

/// How a command ended: the answer of `/exec`, and the data of the event `execution_complete`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ExecResult {
    pub(crate) exit_code: Option<i64>,
    pub(crate) signal: Option<Value>,
    pub(crate) stdout: Option<String>,
    pub(crate) stderr: Option<String>,
    pub(crate) timed_out: Option<bool>,
    pub(crate) stdout_truncated: Option<bool>,
}

/// A command in the background.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Background {
    pub(crate) exec_id: String,
    pub(crate) state: String,
    pub(crate) exit_code: Option<i64>,
    pub(crate) signal: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Backgrounds {
    pub(crate) execs: Vec<Background>,
}

/// A piece of a background command's own output.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Logs {
    pub(crate) data: Option<String>,
}

/// Text of an output event, or of an error event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventText {
    #[serde(alias = "data")]
    pub(crate) text: Option<String>,
    pub(crate) message: Option<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_run_of_the_open_source_server_is_read() {
        let text = r#"{"uuid":"cf3ef5624eb1458fafc1f869f4441c6c","name":"sbx-r1--u0","created_at":"2026-11-29T23:12:28.636439Z",
            "started_at":null,"wait_time":2.25,"duration":null,"status":"running","pending":null,
            "meta_info":{"correlation":"sbx-r1--u0","somebody":{"elses":1}},"tags":["sbx-r1--u0"],
            "settings":{"namespace":"polyaxon","agent":null},"live_state":1,
            "resources":{"memory":268435456.0,"cpu":1.5,"gpu":0.0,"custom":0.0,"cost":0.0}}"#;
        let run: Run = serde_json::from_str(text).unwrap();
        assert_eq!((run.status, run.live_state), (Some(Status::Running), Some(1)));
        assert_eq!((run.meta("correlation"), run.meta("somebody")), (Some("sbx-r1--u0"), None));
        assert_eq!(run.resources.unwrap().memory, Some(268_435_456.0));
    }

    #[test]
    fn unknown_statuses_and_both_forms_of_a_condition_are_read() {
        let text = r#"{"status":"on_schedule","status_conditions":[
            {"type":"created","status":"True","reason":"R","last_transition_time":"2026-11-29T23:12:28.636Z"},
            {"type":"running","status":true,"message":"m","last_transition_time":"2026-11-29T23:12:30.998Z"}]}"#;
        let statuses: Statuses = serde_json::from_str(text).unwrap();
        assert_eq!(statuses.status, Some(Status::Other));
        assert_eq!(statuses.status_conditions.unwrap().len(), 2);
    }
}
