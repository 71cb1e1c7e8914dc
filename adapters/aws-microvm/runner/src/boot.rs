//! Who this MicroVM is and whose it is: settled by the hook `run`, once.
//!
//! The process is part of a snapshot that many MicroVMs start from. What tells one from another is therefore made by the
//! hook, or by the first request, and never at the process's start.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::refusal::Refusal;
use crate::sys;

/// How far the stamps of files may lag behind the clock.
const STAMP_LAG: Duration = Duration::from_millis(20);

/// Identity and token.
#[derive(Debug)]
pub(crate) struct Boot {
    token_required: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Id and time of this MicroVM's start, as far as it is known here.
    boot: Option<(String, Instant)>,
    /// The same moment by the clock that files are stamped with.
    wall: Option<SystemTime>,
    microvm: Option<String>,
    payload: Option<String>,
    token: Option<[u8; 32]>,
    tag: Option<String>,
    hooks: Vec<&'static str>,
}

/// What the adapter sends: the digest of its token, so that the token itself never travels through the control plane.
#[derive(Debug, Deserialize)]
struct Payload {
    v: u32,
    token_sha256: String,
    /// Whose this MicroVM is: the service itself has no place to write that.
    tag: Option<String>,
}

impl Boot {
    pub(crate) fn new(token_required: bool) -> Self {
        Self { token_required, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a hook was called.
    pub(crate) fn called(&self, hook: &'static str) {
        let hooks = &mut self.state().hooks;
        if !hooks.contains(&hook) {
            hooks.push(hook);
        }
    }

    /// The hook `run`: the first payload wins, and the same again changes nothing.
    ///
    /// # Errors
    /// 400 for a payload that is not one, 409 for another one.
    pub(crate) fn run(&self, microvm: Option<String>, payload: Option<String>) -> Result<(), Refusal> {
        let payload = payload.unwrap_or_default();
        let (token, tag) = match payload.as_str() {
            "" => (None, None),
            text => read(text).map(|(token, tag)| (Some(token), tag)).ok_or_else(|| {
                Refusal::bad(r#"the payload is not {"v":1,"token_sha256":"<64 hexadecimal digits>"}"#)
            })?,
        };
        let mut state = self.state();
        match &state.payload {
            Some(first) if *first == payload => return Ok(()),
            Some(_) => return Err(Refusal::conflict("this MicroVM was run with another payload")),
            None => {}
        }
        state.boot = Some((sys::random_id().map_err(|e| Refusal::internal(e.to_string()))?, Instant::now()));
        state.wall = Some(SystemTime::now());
        state.microvm = microvm;
        state.payload = Some(payload);
        state.token = token;
        state.tag = tag;
        Ok(())
    }

    /// Lets a request in, or says why not. `authorization` is the header's value.
    ///
    /// # Errors
    /// 503 before a token has come, 401 for a wrong one.
    pub(crate) fn admit(&self, authorization: Option<&[u8]>) -> Result<(), Refusal> {
        let token = self.state().token;
        match (token, authorization) {
            (None, _) if self.token_required => Err(Refusal::not_bootstrapped()),
            (None, _) => Ok(()),
            (Some(expected), Some(given)) => {
                let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
                let given: [u8; 32] = Sha256::digest(given).into();
                if bool::from(expected.ct_eq(&given)) { Ok(()) } else { Err(Refusal::unauthorized()) }
            }
            (Some(_), None) => Err(Refusal::unauthorized()),
        }
    }

    /// Since when files that change do so in this MicroVM, as their stamps have it; none before anybody asked who it is.
    pub(crate) fn since(&self) -> Option<(i64, i64)> {
        // The kernel stamps files by a clock that lags a little behind.
        let since = self.state().wall?.checked_sub(STAMP_LAG)?.duration_since(UNIX_EPOCH).ok()?;
        Some((i64::try_from(since.as_secs()).ok()?, i64::from(since.subsec_nanos())))
    }

    /// The answer to `GET /v1/health`.
    ///
    /// # Errors
    /// 500 if there is no randomness.
    pub(crate) fn health(&self, jobs_running: usize) -> Result<Value, Refusal> {
        let mut state = self.state();
        let (id, since) = match &state.boot {
            Some((id, since)) => (id.clone(), *since),
            None => {
                let id = sys::random_id().map_err(|e| Refusal::internal(e.to_string()))?;
                let now = Instant::now();
                state.boot = Some((id.clone(), now));
                state.wall = Some(SystemTime::now());
                (id, now)
            }
        };
        Ok(json!({
            "runner": "sandbox-runner",
            "protocol": 1,
            "version": env!("CARGO_PKG_VERSION"),
            "boot_id": id,
            "microvm_id": state.microvm,
            "tag": state.tag,
            "bootstrapped": state.token.is_some(),
            "arch": std::env::consts::ARCH,
            "jobs_running": jobs_running,
            "uptime_ms": u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
            "hooks": state.hooks,
        }))
    }
}

/// Digest of the token, and the tag.
fn read(payload: &str) -> Option<([u8; 32], Option<String>)> {
    let payload: Payload = serde_json::from_str(payload).ok()?;
    (payload.v == 1).then_some(())?;
    Some((from_hex(&payload.token_sha256)?, payload.tag))
}

/// 32 bytes from 64 hexadecimal digits.
pub(crate) fn from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
