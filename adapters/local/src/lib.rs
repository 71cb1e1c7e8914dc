//! The embedded `local` backend: sandboxes from Linux namespaces, without a daemon and without credentials.
//!
//! Two layers: [`engine`] builds sandboxes and knows nothing of the contract; the rest makes it fulfil
//! [`sandbox_bench_core::Backend`]. See the crate's README for set-up, limits and what it does not protect against.

mod config;

#[cfg(target_os = "linux")]
mod artifact;
#[cfg(target_os = "linux")]
mod backend;
#[cfg(target_os = "linux")]
pub mod engine;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod exec;
#[cfg(target_os = "linux")]
mod sandbox;
#[cfg(target_os = "linux")]
mod upload;

use std::sync::Arc;

use sandbox_bench_core::{Backend, Result};

pub use self::config::LocalConfig;

/// The name of this backend.
pub const NAME: &str = "local";

/// Opens the state directory and finds out, by trying, what this machine allows.
///
/// The program must call [`engine::helper_main_if_requested`] first in `main`, or name a helper in the configuration.
///
/// # Errors
/// `Unsupported`, with cause and remedy, if sandboxes cannot be built on this machine; `InvalidRequest` for a
/// configuration that makes no sense.
#[cfg(target_os = "linux")]
pub async fn connect(config: LocalConfig) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(backend::LocalBackend::connect(config).await?))
}

/// Says that this operating system has no namespaces.
///
/// # Errors
/// Always `Unsupported`.
#[cfg(not(target_os = "linux"))]
pub async fn connect(_: LocalConfig) -> Result<Arc<dyn Backend>> {
    Err(sandbox_bench_core::Error::unsupported("the local backend needs Linux").hint("use the docker backend"))
}
