//! The context that every contract call carries: deadline, cancellation, correlation, grants, and a meter.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::input::{Grants, Stage};
use crate::tag::Tag;

/// The context of one call. Cheap to clone; derive narrower ones with the `with_*` methods.
#[derive(Debug, Clone)]
pub struct Call {
    /// When the call must have returned, on the monotonic clock. Adapters give inner waits less.
    pub deadline: Instant,
    /// Cancelled when the caller wants the call to end now. Adapters stop what they can and return
    /// [`crate::Completion::Cancelled`] or [`crate::ErrorKind::Cancelled`].
    pub cancel: CancellationToken,
    /// The tag of the unit of work that this call belongs to, for logs. What a call creates carries the tag of its spec.
    pub tag: Tag,
    /// What the unit of work may place, use and reach.
    pub grants: Arc<Grants>,
    /// The stage of the trial: inputs of other stages are denied.
    pub stage: Stage,
    /// Counts what the call costs in requests and bytes.
    pub meter: Arc<Meter>,
}

impl Call {
    /// A call for `tag` that must return within `limit`.
    #[must_use]
    pub fn new(tag: Tag, limit: Duration, grants: Arc<Grants>) -> Self {
        Self {
            deadline: Instant::now() + limit,
            cancel: CancellationToken::new(),
            tag,
            grants,
            stage: Stage::Setup,
            meter: Arc::default(),
        }
    }

    /// The same call, to return within `limit` from now and never later than this one.
    #[must_use]
    pub fn within(&self, limit: Duration) -> Self {
        Self { deadline: self.deadline.min(Instant::now() + limit), ..self.clone() }
    }

    /// The same context with a deadline of its own.
    #[must_use]
    pub fn with_limit(&self, limit: Duration) -> Self {
        Self { deadline: Instant::now() + limit, ..self.clone() }
    }

    /// The same call in another stage.
    #[must_use]
    pub fn in_stage(&self, stage: Stage) -> Self {
        Self { stage, ..self.clone() }
    }

    /// The same call with another cancellation token.
    #[must_use]
    pub fn with_cancel(&self, cancel: CancellationToken) -> Self {
        Self { cancel, ..self.clone() }
    }

    /// Time left before the deadline; zero when it has passed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// Counts what was asked of a backend. Adapters add to it for each request that they send.
#[derive(Debug, Default)]
pub struct Meter {
    api_calls: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
    retries: AtomicU64,
    cost: Mutex<BTreeMap<String, String>>,
}

impl Meter {
    /// One request was sent to the backend.
    pub fn api_call(&self) {
        self.api_calls.fetch_add(1, Relaxed);
    }

    /// Payload bytes were sent: file content and stdin, with the framing that carries them.
    pub fn sent(&self, bytes: u64) {
        self.bytes_up.fetch_add(bytes, Relaxed);
    }

    /// Payload bytes were received: file content and command output, with the framing that carries them.
    pub fn received(&self, bytes: u64) {
        self.bytes_down.fetch_add(bytes, Relaxed);
    }

    /// An operation was repeated.
    pub fn retried(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// A fact that bears on cost, by name, as the backend reports it. Some tell it only when something has ended, in the
    /// answer to [`crate::Backend::destroy`].
    pub fn cost_fact(&self, name: &str, value: impl Into<String>) {
        self.cost.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), value.into());
    }

    /// The facts that bear on cost, as far as they were told.
    #[must_use]
    pub fn cost_facts(&self) -> BTreeMap<String, String> {
        self.cost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The counts so far.
    #[must_use]
    pub fn read(&self) -> MeterReading {
        MeterReading {
            api_calls: self.api_calls.load(Relaxed),
            bytes_up: self.bytes_up.load(Relaxed),
            bytes_down: self.bytes_down.load(Relaxed),
            retries: self.retries.load(Relaxed),
        }
    }
}

/// What a meter showed at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MeterReading {
    /// Requests sent.
    pub api_calls: u64,
    /// Payload bytes sent.
    pub bytes_up: u64,
    /// Payload bytes received.
    pub bytes_down: u64,
    /// Operations repeated by the retry layer.
    pub retries: u64,
}

impl MeterReading {
    /// The difference to an earlier reading of the same meter.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            api_calls: self.api_calls.saturating_sub(earlier.api_calls),
            bytes_up: self.bytes_up.saturating_sub(earlier.bytes_up),
            bytes_down: self.bytes_down.saturating_sub(earlier.bytes_down),
            retries: self.retries.saturating_sub(earlier.retries),
        }
    }
}
