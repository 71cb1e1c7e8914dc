//! REPLACE: requests and answers as the service has them. A fact that is not obvious says where it comes from ("as the
//! official client 1.2.3 sends it"). Unknown fields of answers are ignored; unknown values are `Unknown`, never an
//! error.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use sandbox_bench_core::Stream;
use serde::{Deserialize, Serialize};

/// `GET /account`.
#[derive(Debug, Deserialize)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) sandboxes: u64,
    pub(crate) limit: u64,
}

/// `POST /sandboxes`.
#[derive(Debug, Serialize)]
pub(crate) struct Create<'a> {
    pub(crate) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<&'a str>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) lifetime_seconds: u64,
    pub(crate) offline: bool,
}

/// A sandbox.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Sandbox {
    pub(crate) name: String,
    pub(crate) state: State,
    pub(crate) source: String,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) created_at: Option<Timestamp>,
}

/// Its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Starting,
    Running,
    Ending,
    Ended,
    #[serde(other)]
    Unknown,
}

/// A snapshot.
#[derive(Debug, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) size_bytes: Option<u64>,
}

/// A list.
#[derive(Debug, Deserialize)]
pub(crate) struct Items<T> {
    pub(crate) items: Vec<T>,
}

/// `POST /sandboxes/{name}/commands`. It may hold secrets: no `Debug`.
#[derive(Serialize)]
pub(crate) struct Start<'a> {
    pub(crate) argv: &'a [String],
    pub(crate) env: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stdin: Option<String>,
}

/// A command that was started.
#[derive(Debug, Deserialize)]
pub(crate) struct Started {
    pub(crate) id: String,
}

/// One line of a command's output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Output(Stream, Bytes),
    Exit(i32),
    Other,
}

impl Line {
    pub(crate) fn parse(line: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Wire {
            stream: Option<Stream>,
            data: Option<String>,
            exit: Option<i32>,
        }
        match serde_json::from_slice(line) {
            Ok(Wire { stream: Some(stream), data: Some(data), .. }) => {
                STANDARD.decode(data).map_or(Self::Other, |bytes| Self::Output(stream, bytes.into()))
            }
            Ok(Wire { exit: Some(code), .. }) => Self::Exit(code),
            _ => Self::Other,
        }
    }
}

/// Bytes as the service wants them in JSON.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_read() {
        let output = Line::parse(br#"{"stream":"stderr","data":"b29wcwA="}"#);
        assert_eq!(output, Line::Output(Stream::Stderr, Bytes::from_static(b"oops\0")));
        assert_eq!(Line::parse(br#"{"exit":7}"#), Line::Exit(7));
        for odd in ["", "{}", "[]", r#"{"stream":"stdmix","data":"eA=="}"#, r#"{"stream":"stdout","data":"?"}"#] {
            assert_eq!(Line::parse(odd.as_bytes()), Line::Other, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn any_output_comes_back(bytes in any::<Vec<u8>>()) {
            let line = serde_json::json!({ "stream": "stdout", "data": encoded(&bytes) }).to_string();
            prop_assert_eq!(Line::parse(line.as_bytes()), Line::Output(Stream::Stdout, bytes.into()));
        }
    }
}
