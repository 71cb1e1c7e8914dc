//! What the suite has to know of an adapter.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_core::layers::{RetryPolicy, stack};
use sandbox_bench_core::{Backend, Call, Digest, Result, Source};

/// One adapter under test.
#[async_trait]
pub trait Adapter: Send + Sync + 'static {
    /// Connects anew. Each connection is independent of the others, as if another process had made it.
    async fn connect(&self, call: &Call) -> Result<Arc<dyn Backend>>;

    /// What sandboxes start from: something small with a POSIX shell, coreutils-like tools and a user `nobody`.
    fn source(&self) -> Source;

    /// Puts the layers around a connected backend that its users put around it. The promises hold for the two together.
    fn layered(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        stack(backend, RetryPolicy { max_retries: 2, min_wait: Duration::from_millis(100), ..RetryPolicy::default() })
    }

    /// Behaviours that what is tested cannot show although the backend promises them, with the reason: an emulator is not
    /// all of its vendor.
    fn not_shown(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// How patient the suite is.
    fn pace(&self) -> Pace {
        Pace::default()
    }

    /// Removes what the backend keeps of a built environment as a cache. The contract has no operation for that, and
    /// the suite builds a new one each time.
    async fn forget_environment(&self, fingerprint: &Digest) {
        let _ = fingerprint;
    }

    /// Names of things that the run `run` left where [`Backend::find`] does not look: processes, directories, networks.
    async fn residue(&self, run: &str) -> Vec<String> {
        let _ = run;
        Vec::new()
    }
}

/// How long things may take. Wide bounds: they end what hangs and measure nothing.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// For one call of the contract.
    pub call: Duration,
    /// For what has to happen "soon": the return after a deadline, a cancellation or a destruction.
    pub soon: Duration,
    /// For one behaviour.
    pub behaviour: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { call: Duration::from_secs(60), soon: Duration::from_secs(12), behaviour: Duration::from_secs(120) }
    }
}
