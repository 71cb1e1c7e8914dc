//! One container as a [`Sandbox`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use sandbox_bench_core::{
    Artifact, Call, Downloaded, ExecReport, ExecSpec, Input, Observation, OutputSink, Result, Sandbox, SandboxRef,
    SnapshotSpec, Uploaded,
};
use sandbox_bench_kit::guest::Usage;

use crate::client::Engine;
use crate::exec::Target;
use crate::{artifact, observe, transfer};

/// A running container.
pub(crate) struct DockerSandbox {
    engine: Arc<Engine>,
    reference: SandboxRef,
    /// Environment variables of every command.
    variables: BTreeMap<String, String>,
    /// What it had used when its last command ended.
    usage: Mutex<Usage>,
}

impl DockerSandbox {
    /// The sandbox of this name, whose commands all have these environment variables.
    pub(crate) fn new(engine: Arc<Engine>, reference: SandboxRef, variables: BTreeMap<String, String>) -> Self {
        Self { engine, reference, variables, usage: Mutex::default() }
    }

    fn usage(&self) -> std::sync::MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sandbox for DockerSandbox {
    fn reference(&self) -> &SandboxRef {
        &self.reference
    }

    async fn exec(&self, call: &Call, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport> {
        let target = Target { engine: &self.engine, container: &self.reference.id, variables: &self.variables };
        let (report, seen) = target.run(call, spec, sink).await?;
        let mut usage = self.usage();
        usage.cpu_us = usage.cpu_us.max(seen.cpu_us);
        usage.peak_memory_bytes = usage.peak_memory_bytes.max(seen.peak_memory_bytes);
        drop(usage);
        Ok(report)
    }

    async fn upload(&self, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
        transfer::upload(&self.engine, call, &self.reference.id, inputs).await
    }

    async fn download(&self, call: &Call, from: &str, to: &Path, limit: u64) -> Result<Downloaded> {
        transfer::download(&self.engine, call, &self.reference.id, from, (to, limit)).await
    }

    async fn snapshot(&self, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
        artifact::commit(&self.engine, call, &self.reference.id, spec).await
    }

    async fn observe(&self, call: &Call) -> Result<Observation> {
        let seen = observe::inspect_held(&self.engine, call, &self.reference.id).await?;
        let Usage { cpu_us, peak_memory_bytes } = *self.usage();
        Ok(Observation {
            granted: observe::granted(&self.engine, &seen),
            cpu_us,
            peak_memory_bytes,
            provider_times: observe::times(&seen),
            ..Observation::default()
        })
    }
}
