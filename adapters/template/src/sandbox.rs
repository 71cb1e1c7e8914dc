//! One sandbox as a [`Sandbox`].

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_core::{
    Artifact, Call, Downloaded, ExecReport, ExecSpec, Input, Observation, OutputSink, Result, Sandbox, SandboxRef,
    SnapshotSpec, Uploaded,
};
use sandbox_bench_kit::guest::Usage;
use sandbox_bench_kit::wait::bounded;

use crate::client::Api;
use crate::exec::Guest;
use crate::labels::Labels;
use crate::wire::State;
use crate::{artifact, error, transfer};

/// Pause between two looks at a sandbox that starts.
const POLL: Duration = Duration::from_millis(50);

/// A handle.
pub(crate) struct TemplateSandbox {
    api: Arc<Api>,
    reference: SandboxRef,
    labels: Labels,
    /// False until the service has said that it runs.
    runs: AtomicBool,
    /// What it had used when its last command ended.
    usage: Mutex<Usage>,
}

impl TemplateSandbox {
    pub(crate) fn new(api: Arc<Api>, reference: SandboxRef, labels: Labels) -> Self {
        Self { api, reference, labels, runs: AtomicBool::new(false), usage: Mutex::default() }
    }

    /// The sandbox as requests name it, once it runs.
    async fn running(&self, call: &Call) -> Result<Guest<'_>> {
        let name = self.reference.id.as_str();
        while !self.runs.load(Relaxed) {
            match self.api.sandbox(call, name).await?.map(|sandbox| sandbox.state) {
                Some(State::Running) => self.runs.store(true, Relaxed),
                Some(State::Starting | State::Unknown) => {
                    bounded(call, &format!("sandbox {name}: start"), tokio::time::sleep(POLL)).await?;
                }
                Some(State::Ending | State::Ended) | None => return Err(error::lost(name)),
            }
        }
        Ok(Guest { api: &self.api, name })
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sandbox for TemplateSandbox {
    fn reference(&self) -> &SandboxRef {
        &self.reference
    }

    async fn exec(&self, call: &Call, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport> {
        let (report, used) = self.running(call).await?.run(call, spec, &self.labels, sink).await?;
        let mut usage = self.usage();
        usage.cpu_us = usage.cpu_us.max(used.cpu_us);
        usage.peak_memory_bytes = usage.peak_memory_bytes.max(used.peak_memory_bytes);
        Ok(report)
    }

    async fn upload(&self, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
        transfer::upload(self.running(call).await?, call, inputs).await
    }

    async fn download(&self, call: &Call, from: &str, to: &Path, limit: u64) -> Result<Downloaded> {
        transfer::download(self.running(call).await?, call, from, (to, limit)).await
    }

    async fn snapshot(&self, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
        artifact::snapshot(self.running(call).await?, call, spec).await
    }

    /// REPLACE: what the service says is granted, when things happened by its clock, and what it bills.
    async fn observe(&self, call: &Call) -> Result<Observation> {
        let name = self.reference.id.as_str();
        let seen = self.api.sandbox(call, name).await?.filter(|seen| seen.state != State::Ended);
        let seen = seen.ok_or_else(|| error::lost(name))?;
        let Usage { cpu_us, peak_memory_bytes } = *self.usage();
        let provider_times = seen.created_at.map(|at| ("created".to_owned(), at)).into_iter().collect();
        Ok(Observation { cpu_us, peak_memory_bytes, provider_times, ..Observation::default() })
    }
}
