//! One sandbox as a [`Sandbox`].

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use sandbox_bench_core::{
    Artifact, Call, Downloaded, ExecReport, ExecSpec, Input, Observation, OutputSink, Resources, Result, Sandbox,
    SandboxRef, SnapshotSpec, Uploaded,
};
use sandbox_bench_kit::guest::Usage;

use crate::router::Router;
use crate::{artifact, exec, observe, transfer};

/// A sandbox and its router.
pub(crate) struct ModalSandbox {
    router: Router,
    reference: SandboxRef,
    /// What it got, as far as that is known here: the service does not tell.
    granted: Resources,
    /// What it had used when its last command ended.
    usage: Mutex<Usage>,
}

impl ModalSandbox {
    /// The sandbox behind this router.
    pub(crate) fn new(router: Router, reference: SandboxRef, granted: Resources) -> Self {
        Self { router, reference, granted, usage: Mutex::default() }
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sandbox for ModalSandbox {
    fn reference(&self) -> &SandboxRef {
        &self.reference
    }

    async fn exec(&self, call: &Call, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport> {
        let (report, seen) = exec::run(&self.router, call, spec, sink).await?;
        let mut usage = self.usage();
        usage.cpu_us = usage.cpu_us.max(seen.cpu_us);
        usage.peak_memory_bytes = usage.peak_memory_bytes.max(seen.peak_memory_bytes);
        drop(usage);
        Ok(report)
    }

    async fn upload(&self, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
        transfer::upload(&self.router, call, inputs).await
    }

    async fn download(&self, call: &Call, from: &str, to: &Path, limit: u64) -> Result<Downloaded> {
        transfer::download(&self.router, call, from, (to, limit)).await
    }

    async fn snapshot(&self, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
        artifact::save(&self.router, call, spec).await
    }

    async fn observe(&self, call: &Call) -> Result<Observation> {
        let usage = *self.usage();
        observe::observe(self.router.client(), call, &self.reference, (self.granted.clone(), usage)).await
    }
}
