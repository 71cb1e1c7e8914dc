//! What goes over the wire, as the official clients (JavaScript 3.5.0, Python 0.10.0) send and read it: times and durations
//! in milliseconds, memory in MB, sizes in bytes. Only what the adapter uses is read; everything else is let pass.

use std::collections::BTreeMap;

use sandbox_bench_core::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The body of a create request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Create<'a> {
    pub(crate) project_id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) ports: [u16; 0],
    /// Life of the session in milliseconds.
    pub(crate) timeout: u64,
    pub(crate) resources: Vcpus,
    /// False: stopping would otherwise save the files, which is billed.
    pub(crate) persistent: bool,
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) network_policy: Value,
    #[serde(flatten)]
    pub(crate) start: Start<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) region: Option<&'a str>,
}

/// The size of a sandbox. Memory follows from it: 2048 MB for each.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Vcpus {
    pub(crate) vcpus: u32,
}

/// What a sandbox starts from: exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Start<'a> {
    /// A reference in the vendor's registry.
    Image(&'a str),
    /// A legacy runtime.
    Runtime(&'a str),
    /// A snapshot.
    #[serde(rename = "source")]
    Source(Source<'a>),
}

/// A snapshot as a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub(crate) enum Source<'a> {
    /// By its id.
    Snapshot { snapshot_id: &'a str },
}

/// The body of a command's start.
#[derive(Debug, Serialize)]
pub(crate) struct Exec<'a> {
    pub(crate) command: &'a str,
    pub(crate) args: &'a [String],
    pub(crate) cwd: &'a str,
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) sudo: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) wait: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) logs: bool,
    /// Milliseconds after which the service kills it; at least 100.
    pub(crate) timeout: u64,
}

/// The answer to create and get.
#[derive(Debug, Deserialize)]
pub(crate) struct Opened {
    pub(crate) sandbox: Sandbox,
    pub(crate) session: Session,
}

/// The answer to what changes a sandbox.
#[derive(Debug, Deserialize)]
pub(crate) struct OfSandbox {
    pub(crate) sandbox: Sandbox,
}

/// The answer about a session.
#[derive(Debug, Deserialize)]
pub(crate) struct OfSession {
    pub(crate) session: Session,
}

/// The answer about a snapshot.
#[derive(Debug, Deserialize)]
pub(crate) struct OfSnapshot {
    pub(crate) snapshot: Snapshot,
}

/// The answer about a command.
#[derive(Debug, Deserialize)]
pub(crate) struct OfCommand {
    pub(crate) command: Command,
}

/// The commands of a session.
#[derive(Debug, Deserialize)]
pub(crate) struct Commands {
    pub(crate) commands: Vec<Command>,
}

/// A named, durable sandbox.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sandbox {
    pub(crate) name: String,
    pub(crate) status: Status,
    pub(crate) created_at: Option<i64>,
    /// Digest-pinned.
    pub(crate) image: Option<String>,
    pub(crate) runtime: Option<String>,
    pub(crate) tags: Option<BTreeMap<String, String>>,
}

/// One run of its microVM.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) status: Status,
    pub(crate) memory: Option<u64>,
    pub(crate) vcpus: Option<f64>,
    pub(crate) region: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) requested_at: Option<i64>,
    pub(crate) started_at: Option<i64>,
    pub(crate) stopped_at: Option<i64>,
    /// Wall clock.
    pub(crate) duration: Option<u64>,
    /// Only once it has stopped.
    pub(crate) active_cpu_duration_ms: Option<u64>,
    /// Only once it has stopped.
    pub(crate) network_transfer: Option<Transfer>,
}

/// Bytes into and out of a sandbox.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) ingress: u64,
    pub(crate) egress: u64,
}

/// The state of a session, and of a sandbox through its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Pending,
    Running,
    Stopping,
    Snapshotting,
    Stopped,
    Failed,
    Aborted,
    /// A word that is not documented.
    #[serde(other)]
    Unknown,
}

impl Status {
    /// True if nothing runs any more, and never will again.
    pub(crate) fn over(self) -> bool {
        matches!(self, Self::Stopped | Self::Failed | Self::Aborted)
    }
}

/// A saved file system.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Snapshot {
    pub(crate) id: String,
    /// `created`, `deleted`, `failed`, or a word for one that is still being made.
    pub(crate) status: String,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) created_at: Option<i64>,
    pub(crate) expires_at: Option<i64>,
}

/// A command of a session.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Command {
    pub(crate) id: String,
    pub(crate) exit_code: Option<i32>,
    #[serde(default)]
    pub(crate) args: Vec<String>,
}

/// A part of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct Page<T> {
    #[serde(alias = "sandboxes", alias = "snapshots")]
    pub(crate) items: Vec<T>,
    pub(crate) pagination: Pagination,
}

/// Where the list goes on.
#[derive(Debug, Deserialize)]
pub(crate) struct Pagination {
    pub(crate) next: Option<String>,
}

/// One line of an answer that streams.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Line {
    /// A piece of output, as text: bytes that were not UTF-8 are gone.
    Output(Stream, String),
    /// The command; with its exit code, once it has ended.
    Command { id: String, exit_code: Option<i32> },
    /// The stream failed; the command may go on. The service's code for why.
    Broken(String),
    /// Something that is not documented.
    Other,
}

impl Line {
    /// Reads one line.
    pub(crate) fn parse(line: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Raw {
            command: Option<Command>,
            stream: Option<String>,
            data: Option<Value>,
        }
        let Ok(Raw { command, stream, data }) = serde_json::from_slice(line) else { return Self::Other };
        match (stream.as_deref(), data, command) {
            (Some("stdout"), Some(Value::String(text)), _) => Self::Output(Stream::Stdout, text),
            (Some("stderr"), Some(Value::String(text)), _) => Self::Output(Stream::Stderr, text),
            (Some("error"), data, _) => {
                let code = data.as_ref().and_then(|data| data.get("code")?.as_str());
                Self::Broken(code.unwrap_or("unknown").to_owned())
            }
            (None, None, Some(Command { id, exit_code, .. })) => Self::Command { id, exit_code },
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_what_the_official_client_sends() {
        let env = BTreeMap::from([("DEF".to_owned(), "1".to_owned())]);
        let mut create = Create {
            project_id: "prj_abc",
            name: "tb-1",
            ports: [],
            timeout: 600_000,
            resources: Vcpus { vcpus: 4 },
            persistent: false,
            env: &env,
            tags: BTreeMap::from([("run".to_owned(), "r1".to_owned())]),
            network_policy: json!({"mode": "allow-all"}),
            start: Start::Image("task:1"),
            region: None,
        };
        let mut expected = json!({"projectId": "prj_abc", "ports": [], "timeout": 600_000, "resources": {"vcpus": 4},
            "name": "tb-1", "persistent": false, "networkPolicy": {"mode": "allow-all"}, "env": {"DEF": "1"},
            "tags": {"run": "r1"}, "image": "task:1"});
        assert_eq!(json!(create), expected);
        create.start = Start::Source(Source::Snapshot { snapshot_id: "snap_1" });
        expected.as_object_mut().unwrap().remove("image");
        expected["source"] = json!({"type": "snapshot", "snapshotId": "snap_1"});
        assert_eq!(json!(create), expected);
    }

    #[test]
    fn lines_of_every_kind_are_read() {
        let output = |stream, text: &str| Line::Output(stream, text.to_owned());
        let parse = |line: &str| Line::parse(line.as_bytes());
        assert_eq!(parse(r#"{"stream":"stdout","data":"a\n","more":1}"#), output(Stream::Stdout, "a\n"));
        assert_eq!(parse(r#"{"stream":"stderr","data":"\u001e"}"#), output(Stream::Stderr, "\u{1e}"));
        let ended = r#"{"command":{"id":"cmd_1","name":"sh","args":[],"cwd":"/","exitCode":3,"startedAt":1}}"#;
        assert_eq!(parse(ended), Line::Command { id: "cmd_1".into(), exit_code: Some(3) });
        let running = ended.replace("3,", "null,");
        assert_eq!(parse(&running), Line::Command { id: "cmd_1".into(), exit_code: None });
        let broken = r#"{"stream":"error","data":{"code":"sandbox_stream_closed","message":"closed"}}"#;
        assert_eq!(parse(broken), Line::Broken("sandbox_stream_closed".into()));
        for odd in ["", "{}", "[]", "<html>", r#"{"stream":"stdmix","data":"a"}"#, r#"{"stream":"stdout"}"#] {
            assert_eq!(parse(odd), Line::Other, "{odd}");
        }
    }

    #[test]
    fn an_answer_is_read_also_if_it_holds_nulls_and_new_words() {
        let session = json!({"id": "sbx_1", "status": "hibernating", "startedAt": null, "vcpus": 2, "memory": 4096});
        let session: Session = serde_json::from_value(session).unwrap();
        assert_eq!((session.status, session.started_at, session.vcpus), (Status::Unknown, None, Some(2.0)));
    }

    proptest! {
        #[test]
        fn any_line_is_taken(line in prop::collection::vec(any::<u8>(), 0..200)) {
            Line::parse(&line);
        }
    }
}
