//! The form of fault scripts: TOML in files, the same as JSON at the admin route.

use std::collections::BTreeMap;
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

/// A script that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault script: {0}")]
pub struct ScriptError(pub(crate) String);

/// A list of rules; each request meets the effects of all that match, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The rules; `[[rule]]` in TOML.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Script, ScriptError> {
        toml::from_str(text).map_err(|error| ScriptError(error.to_string()))
    }
}

/// Which requests meet which effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Any method if absent.
    #[serde(default)]
    pub method: Option<String>,
    /// A glob for the whole path, without query: `*` stays within a segment, `**` does not.
    pub path: String,
    /// A part that the query must contain.
    #[serde(default)]
    pub query: Option<String>,
    /// So many matching requests go by unharmed first.
    #[serde(default)]
    pub skip: u64,
    /// Then so many meet the effect; all if absent.
    #[serde(default)]
    pub times: Option<u64>,
    /// What happens.
    pub effect: Effect,
}

impl Rule {
    /// Every request of this method and path meets the effect.
    pub fn new(method: &str, path: &str, effect: Effect) -> Rule {
        Rule { method: Some(method.into()), path: path.into(), query: None, skip: 0, times: None, effect }
    }

    /// Only the first `times` matching requests.
    #[must_use]
    pub fn times(self, times: u64) -> Rule {
        Rule { times: Some(times), ..self }
    }

    /// Not the first `skip` matching requests.
    #[must_use]
    pub fn skip(self, skip: u64) -> Rule {
        Rule { skip, ..self }
    }
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Effect {
    /// This answer, without asking the emulator: a rate limit, a gateway's HTML page, an empty 500.
    Answer {
        /// HTTP status.
        status: u16,
        /// Added to it.
        #[serde(default)]
        headers: BTreeMap<String, String>,
        /// As it is.
        #[serde(default)]
        body: String,
    },
    /// The emulator is asked this much later.
    Delay {
        /// Milliseconds.
        ms: u64,
    },
    /// The connection is reset; the emulator never hears of the request.
    Reset,
    /// The emulator does what is asked, then the connection is closed without an answer.
    LoseResponse,
    /// The emulator does what is asked at once, and its answer comes this much later.
    LateResponse {
        /// Milliseconds.
        ms: u64,
    },
    /// The answer ends early. On an upgraded connection (WebSocket), after so many bytes of frames.
    Cut {
        /// Bytes of the body that still arrive.
        after: u64,
        /// How it ends.
        ending: Ending,
    },
    /// The emulator itself behaves differently, if it knows the flag.
    Flag {
        /// One of the names that the vendor's module documents.
        name: String,
        /// Its meaning depends on the flag.
        #[serde(default)]
        value: u64,
    },
}

impl Effect {
    /// Refuses an answer that HTTP cannot carry.
    pub(super) fn check(&self) -> Result<(), ScriptError> {
        let Effect::Answer { status, headers, .. } = self else { return Ok(()) };
        StatusCode::from_u16(*status).map_err(|error| ScriptError(format!("status {status}: {error}")))?;
        header_map(headers).map(drop)
    }

    /// An answer with nothing but a status.
    pub fn status(status: u16) -> Effect {
        Effect::Answer { status, headers: BTreeMap::new(), body: String::new() }
    }

    /// A flag without a value.
    pub fn flag(name: &str) -> Effect {
        Effect::Flag { name: name.into(), value: 0 }
    }
}

/// How an answer ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// As if it were complete: a well-formed body that is too short.
    Clean,
    /// The connection is closed in the middle of the body.
    Close,
    /// The connection is reset.
    Reset,
}

/// Headers as HTTP has them.
pub(crate) fn header_map(headers: &BTreeMap<String, String>) -> Result<HeaderMap, ScriptError> {
    let bad = |name: &str| ScriptError(format!("header {name:?}: HTTP cannot carry it"));
    let parse = |(name, value): (&String, &String)| {
        let parsed = (HeaderName::try_from(name), HeaderValue::try_from(value));
        if let (Ok(name), Ok(value)) = parsed { Ok((name, value)) } else { Err(bad(name)) }
    };
    headers.iter().map(parse).collect()
}
