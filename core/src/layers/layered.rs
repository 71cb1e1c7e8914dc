//! Puts one layer around every operation of a backend and of the sandboxes that it hands out.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Layer, Operation};
use crate::artifact::{Artifact, ArtifactSpec};
use crate::backend::{Backend, BackendInfo, Created, Destruction, Found, Preflight, SandboxSpec};
use crate::call::Call;
use crate::completion::ExecReport;
use crate::error::Result;
use crate::input::Input;
use crate::output::OutputSink;
use crate::sandbox::{Downloaded, ExecSpec, Observation, Sandbox, SandboxRef, SnapshotSpec, Uploaded};
use crate::tag::TagQuery;

/// A backend with one layer around it.
pub struct Layered<L> {
    inner: Arc<dyn Backend>,
    layer: Arc<L>,
}

struct LayeredSandbox<L> {
    inner: Arc<dyn Sandbox>,
    layer: Arc<L>,
}

impl<L: Layer> Layered<L> {
    /// `backend` with `layer` around it.
    #[must_use]
    pub fn wrap(backend: Arc<dyn Backend>, layer: L) -> Arc<dyn Backend> {
        Arc::new(Self { inner: backend, layer: Arc::new(layer) })
    }

    fn sandbox(&self, inner: Arc<dyn Sandbox>) -> Arc<dyn Sandbox> {
        Arc::new(LayeredSandbox { inner, layer: self.layer.clone() })
    }
}

/// Runs `$inner.$method(&call, $args…)` inside the layer.
macro_rules! around {
    ($self:ident, $operation:expr, $call:ident, $method:ident($($arg:ident),*)) => {{
        let inner = &$self.inner;
        $self
            .layer
            .around($operation, $call, move |call: Call| Box::pin(async move { inner.$method(&call, $($arg),*).await }))
            .await
    }};
}

#[async_trait]
impl<L: Layer> Backend for Layered<L> {
    fn info(&self) -> &BackendInfo {
        self.inner.info()
    }

    async fn preflight(&self, call: &Call) -> Result<Preflight> {
        around!(self, Operation::Preflight, call, preflight())
    }

    async fn create(&self, call: &Call, spec: &SandboxSpec, log: &dyn OutputSink) -> Result<Created> {
        let Created { sandbox, facts } = around!(self, Operation::Create(spec), call, create(spec, log))?;
        Ok(Created { sandbox: self.sandbox(sandbox), facts })
    }

    async fn attach(&self, call: &Call, reference: &SandboxRef) -> Result<Arc<dyn Sandbox>> {
        around!(self, Operation::Attach, call, attach(reference)).map(|sandbox| self.sandbox(sandbox))
    }

    async fn find(&self, call: &Call, query: &TagQuery) -> Result<Vec<Found>> {
        around!(self, Operation::Find, call, find(query))
    }

    async fn destroy(&self, call: &Call, reference: &SandboxRef) -> Result<Destruction> {
        around!(self, Operation::Destroy, call, destroy(reference))
    }

    async fn build_artifact(&self, call: &Call, spec: &ArtifactSpec, log: &dyn OutputSink) -> Result<Artifact> {
        around!(self, Operation::BuildArtifact(spec), call, build_artifact(spec, log))
    }

    async fn artifact(&self, call: &Call, id: &str) -> Result<Artifact> {
        around!(self, Operation::Artifact, call, artifact(id))
    }

    async fn artifacts(&self, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
        around!(self, Operation::Artifacts, call, artifacts(query))
    }

    async fn delete_artifact(&self, call: &Call, id: &str) -> Result<Destruction> {
        around!(self, Operation::DeleteArtifact, call, delete_artifact(id))
    }
}

#[async_trait]
impl<L: Layer> Sandbox for LayeredSandbox<L> {
    fn reference(&self) -> &SandboxRef {
        self.inner.reference()
    }

    async fn exec(&self, call: &Call, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport> {
        around!(self, Operation::Exec(spec), call, exec(spec, sink))
    }

    async fn upload(&self, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
        around!(self, Operation::Upload(inputs), call, upload(inputs))
    }

    async fn download(&self, call: &Call, from: &str, to: &Path, limit: u64) -> Result<Downloaded> {
        around!(self, Operation::Download, call, download(from, to, limit))
    }

    async fn snapshot(&self, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
        around!(self, Operation::Snapshot(spec), call, snapshot(spec))
    }

    async fn suspend(&self, call: &Call) -> Result<()> {
        around!(self, Operation::Suspend, call, suspend())
    }

    async fn resume(&self, call: &Call) -> Result<()> {
        around!(self, Operation::Resume, call, resume())
    }

    async fn observe(&self, call: &Call) -> Result<Observation> {
        around!(self, Operation::Observe, call, observe())
    }
}
