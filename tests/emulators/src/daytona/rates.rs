//! Rate limits: one fixed window per counter; when it is full it stays full to its end.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::options::RateLimits;

/// The last parts of paths that count as lifecycle calls.
const LIFECYCLE: &[&str] = &["start", "stop", "archive", "recover", "resize", "pause", "snapshot", "backup"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    Authenticated,
    SandboxCreate,
    SandboxLifecycle,
}

impl Counter {
    /// The only counter of a request.
    pub(super) fn of(method: &Method, path: &str) -> Counter {
        let below = path.strip_prefix("/api/sandbox").unwrap_or_default();
        let last = below.rsplit('/').next().unwrap_or_default();
        let create = path == "/api/sandbox" || last == "fork";
        match *method {
            Method::POST if create => Counter::SandboxCreate,
            Method::POST if LIFECYCLE.contains(&last) => Counter::SandboxLifecycle,
            Method::DELETE if !below.is_empty() => Counter::SandboxLifecycle,
            _ => Counter::Authenticated,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Counter::Authenticated => "authenticated",
            Counter::SandboxCreate => "sandbox-create",
            Counter::SandboxLifecycle => "sandbox-lifecycle",
        }
    }
}

/// The windows of an organization.
pub(super) struct Rates {
    limits: RateLimits,
    windows: Mutex<[Option<(Instant, u64)>; 3]>,
}

/// What a counter says about a request.
pub(super) struct Count {
    pub(super) allowed: bool,
    pub(super) headers: HeaderMap,
}

impl Rates {
    pub(super) fn new(limits: RateLimits) -> Rates {
        Rates { limits, windows: Mutex::default() }
    }

    pub(super) fn count(&self, counter: Counter) -> Count {
        let (slot, limit) = match counter {
            Counter::Authenticated => (0, self.limits.authenticated),
            Counter::SandboxCreate => (1, self.limits.sandbox_create),
            Counter::SandboxLifecycle => (2, self.limits.sandbox_lifecycle),
        };
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let window = &mut windows[slot];
        let (start, used) = window.filter(|(start, _)| now - *start < self.limits.window).unwrap_or((now, 0));
        let used = used + 1;
        *window = Some((start, used));
        let allowed = used <= limit;
        let reset = (self.limits.window - (now - start)).as_secs_f64().ceil() as u64;
        let mut headers = HeaderMap::new();
        let mut set = |name: &str, value: u64| {
            if let Ok(name) = HeaderName::try_from(format!("{name}-{}", counter.name())) {
                headers.insert(name, HeaderValue::from(value));
            }
        };
        set("x-ratelimit-limit", limit);
        set("x-ratelimit-remaining", limit.saturating_sub(used));
        set("x-ratelimit-reset", reset);
        if !allowed {
            set("retry-after", reset);
        }
        Count { allowed, headers }
    }
}
