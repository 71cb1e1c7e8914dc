//! One sandbox as a [`Sandbox`].

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use sandbox_bench_core::{
    Artifact, Call, Downloaded, ExecReport, ExecSpec, Input, Observation, OutputSink, Result, Sandbox, SandboxRef,
    SnapshotSpec, Uploaded,
};
use sandbox_bench_kit::guest::Usage;

use crate::client::Api;
use crate::helper::Vm;
use crate::wire::{Session, Status};
use crate::{artifact, observe, transfer};

/// A sandbox and the one session of it that is ever used: never is it resumed.
pub(crate) struct VercelSandbox {
    api: Arc<Api>,
    reference: SandboxRef,
    session: String,
    /// Working directory of commands that name none; none: the session's own.
    workdir: Option<String>,
    /// False until the service has said that it runs.
    runs: AtomicBool,
    /// What it had used when its last command ended.
    usage: Mutex<Usage>,
}

impl VercelSandbox {
    /// The sandbox of this name.
    pub(crate) fn new(api: Arc<Api>, reference: SandboxRef, session: Session, workdir: Option<String>) -> Self {
        Self {
            api,
            reference,
            runs: AtomicBool::new(session.status == Status::Running),
            workdir: workdir.or(session.cwd),
            session: session.id,
            usage: Mutex::default(),
        }
    }

    /// The sandbox as requests name it, once it runs.
    async fn running(&self, call: &Call) -> Result<Vm<'_>> {
        let vm = Vm { api: &self.api, name: &self.reference.id, session: &self.session };
        if !self.runs.load(Relaxed) {
            vm.ready(call).await?;
            self.runs.store(true, Relaxed);
        }
        Ok(vm)
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sandbox for VercelSandbox {
    fn reference(&self) -> &SandboxRef {
        &self.reference
    }

    async fn exec(&self, call: &Call, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport> {
        let vm = self.running(call).await?;
        let (report, seen) = vm.run(call, spec, self.workdir.as_deref(), sink).await?;
        let mut usage = self.usage();
        usage.cpu_us = usage.cpu_us.max(seen.cpu_us);
        usage.peak_memory_bytes = usage.peak_memory_bytes.max(seen.peak_memory_bytes);
        drop(usage);
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

    async fn observe(&self, call: &Call) -> Result<Observation> {
        let usage = *self.usage();
        observe::observe(&self.api, call, (&self.reference.id, &self.session), usage).await
    }
}
