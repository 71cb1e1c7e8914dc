//! Policy as layers: each wraps a whole backend, its sandboxes included, so that adapters stay free of policy.
//!
//! A layer is written once, as a function *around* an operation ([`Layer::around`]); [`Layered`] puts it around every
//! operation of [`Backend`] and [`crate::Sandbox`]. [`stack`] gives the order that the runner uses, from the outside in:
//! tracing, authorization, deadline, retry, rate limit, and innermost the place for fault injection.

mod deadline;
mod guard;
mod layered;
mod rate_limit;
mod retry;
mod trace;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use deadline::DeadlineLayer;
pub use guard::GuardLayer;
pub use layered::Layered;
pub use rate_limit::RateLimitLayer;
pub use retry::{RetryLayer, RetryPolicy};
pub use trace::TraceLayer;

use crate::artifact::ArtifactSpec;
use crate::backend::{Backend, SandboxSpec};
use crate::call::Call;
use crate::error::Result;
use crate::input::Input;
use crate::sandbox::{ExecSpec, SnapshotSpec};
use crate::tag::Tag;

/// A boxed future, as the traits' methods return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An operation of the contract, with the arguments that policy may look at.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// [`Backend::preflight`].
    Preflight,
    /// [`Backend::create`].
    Create(&'a SandboxSpec),
    /// [`Backend::attach`].
    Attach,
    /// [`Backend::find`].
    Find,
    /// [`Backend::destroy`].
    Destroy,
    /// [`Backend::build_artifact`].
    BuildArtifact(&'a ArtifactSpec),
    /// [`Backend::artifact`].
    Artifact,
    /// [`Backend::artifacts`].
    Artifacts,
    /// [`Backend::delete_artifact`].
    DeleteArtifact,
    /// [`crate::Sandbox::exec`].
    Exec(&'a ExecSpec),
    /// [`crate::Sandbox::upload`].
    Upload(&'a [Input]),
    /// [`crate::Sandbox::download`].
    Download,
    /// [`crate::Sandbox::snapshot`].
    Snapshot(&'a SnapshotSpec),
    /// [`crate::Sandbox::suspend`].
    Suspend,
    /// [`crate::Sandbox::resume`].
    Resume,
    /// [`crate::Sandbox::observe`].
    Observe,
}

impl Operation<'_> {
    /// The name in logs and receipts.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Preflight => "preflight",
            Self::Create(_) => "create",
            Self::Attach => "attach",
            Self::Find => "find",
            Self::Destroy => "destroy",
            Self::BuildArtifact(_) => "build_artifact",
            Self::Artifact => "artifact",
            Self::Artifacts => "artifacts",
            Self::DeleteArtifact => "delete_artifact",
            Self::Exec(_) => "exec",
            Self::Upload(_) => "upload",
            Self::Download => "download",
            Self::Snapshot(_) => "snapshot",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Observe => "observe",
        }
    }

    /// True if a repetition after an unknown outcome is harmless.
    #[must_use]
    pub fn idempotent(&self) -> bool {
        !matches!(self, Self::Create(_) | Self::BuildArtifact(_) | Self::Exec(_) | Self::Snapshot(_))
    }

    /// The tag of what the operation makes at the backend, which must not be forgotten; none if it makes nothing.
    #[must_use]
    pub fn creates(&self) -> Option<&Tag> {
        match self {
            Self::Create(spec) => Some(&spec.tag),
            Self::BuildArtifact(spec) => Some(&spec.tag),
            Self::Snapshot(spec) => Some(&spec.tag),
            _ => None,
        }
    }
}

/// Policy around every operation.
pub trait Layer: Send + Sync + 'static {
    /// Runs the operation by calling `run`, once, several times or not at all.
    fn around<'a, T, F>(
        &'a self,
        operation: Operation<'a>,
        call: &'a Call,
        run: F,
    ) -> impl Future<Output = Result<T>> + Send + 'a
    where
        T: Send + 'a,
        F: Fn(Call) -> BoxFuture<'a, Result<T>> + Send + Sync + 'a;
}

/// The layers of the runner around `backend`.
#[must_use]
pub fn stack(backend: Arc<dyn Backend>, retry: RetryPolicy) -> Arc<dyn Backend> {
    let backend = Layered::wrap(backend, RateLimitLayer::default());
    let backend = Layered::wrap(backend, RetryLayer::new(retry));
    let backend = Layered::wrap(backend, DeadlineLayer);
    let backend = Layered::wrap(backend, GuardLayer);
    Layered::wrap(backend, TraceLayer)
}

#[cfg(test)]
mod tests;
