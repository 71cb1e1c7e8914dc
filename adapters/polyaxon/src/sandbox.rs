//! One service run as a [`Sandbox`].

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use sandbox_bench_core::{
    Call, Downloaded, ErrorKind, ExecReport, ExecSpec, Input, Observation, OutputSink, Result, Sandbox, SandboxRef,
    Uploaded,
};
use sandbox_bench_kit::guest::Usage;

use crate::api::Api;
use crate::error::lost;
use crate::find::Start;
use crate::gateway::Gateway;
use crate::{exec, status, transfer};

/// A run whose main container takes commands.
pub(crate) struct PolyaxonSandbox {
    gateway: Gateway,
    reference: SandboxRef,
    start: Start,
    /// What it had used when its last command ended.
    usage: Mutex<Usage>,
}

impl PolyaxonSandbox {
    /// The sandbox of this name in a namespace.
    pub(crate) fn new(api: Arc<Api>, reference: SandboxRef, namespace: String, start: Start) -> Self {
        let gateway = Gateway::new(api, reference.id.clone(), namespace);
        Self { gateway, reference, start, usage: Mutex::default() }
    }

    fn usage(&self) -> std::sync::MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sandbox for PolyaxonSandbox {
    fn reference(&self) -> &SandboxRef {
        &self.reference
    }

    async fn exec(&self, call: &Call, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport> {
        let (report, seen) = exec::run(&self.gateway, &self.start, call, spec, sink).await?;
        let mut usage = self.usage();
        usage.cpu_us = usage.cpu_us.max(seen.cpu_us);
        usage.peak_memory_bytes = usage.peak_memory_bytes.max(seen.peak_memory_bytes);
        drop(usage);
        Ok(report)
    }

    async fn upload(&self, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
        transfer::upload(&self.gateway, call, inputs).await
    }

    async fn download(&self, call: &Call, from: &str, to: &Path, limit: u64) -> Result<Downloaded> {
        transfer::download(&self.gateway, call, from, (to, limit)).await
    }

    async fn observe(&self, call: &Call) -> Result<Observation> {
        let (api, id) = (&self.gateway.api, &self.reference.id);
        let gone = |e: sandbox_bench_core::Error| match e.kind() {
            ErrorKind::NotFound => lost(id, "it is gone"),
            _ => e,
        };
        let run = api.run(call, id).await.map_err(gone)?;
        let statuses = api.statuses(call, id).await.map_err(gone)?;
        if status::over(run.status) {
            return Err(lost(id, &format!("it does not run any more ({})", statuses.last())));
        }
        let Usage { cpu_us, peak_memory_bytes } = *self.usage();
        Ok(Observation {
            granted: status::granted(&run),
            cpu_us,
            peak_memory_bytes,
            provider_times: statuses.times(),
            cost_evidence: status::cost_evidence(&run),
        })
    }
}
