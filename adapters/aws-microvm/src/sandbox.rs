//! One sandbox as a [`Sandbox`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_core::{
    Artifact, Call, Downloaded, ErrorKind, ExecReport, ExecSpec, Grants, Input, Observation, OutputSink, Result,
    Sandbox, SandboxRef, SnapshotSpec, Uploaded,
};
use sandbox_bench_kit::guest::Usage;
use tokio::task::JoinHandle;

use crate::backend::reference;
use crate::vm::Vm;
use crate::{artifact, observe, suspend, transfer};

/// How often a MicroVM that somebody holds is spoken to: without traffic the service ends it.
const BEAT: Duration = Duration::from_secs(25);
const BEAT_LIMIT: Duration = Duration::from_secs(10);

/// What commands of a sandbox have that name nothing of their own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Defaults {
    /// Directory; none: the image's own.
    pub(crate) workdir: Option<String>,
    /// Variables.
    pub(crate) env: BTreeMap<String, String>,
}

/// A handle to a MicroVM, which lives at least for as long as somebody holds one.
pub(crate) struct MicrovmSandbox {
    vm: Arc<Vm>,
    reference: SandboxRef,
    defaults: Defaults,
    /// What it had used when its last command ended.
    usage: Mutex<Usage>,
    heart: JoinHandle<()>,
}

impl Drop for MicrovmSandbox {
    fn drop(&mut self) {
        self.heart.abort();
    }
}

impl MicrovmSandbox {
    pub(crate) fn new(vm: Arc<Vm>, defaults: Defaults) -> Self {
        let reference = reference(&vm.id, &vm.tag);
        let heart = tokio::spawn(beat(Arc::downgrade(&vm)));
        Self { vm, reference, defaults, usage: Mutex::default(), heart }
    }

    /// The MicroVM, once it can run commands.
    async fn running(&self, call: &Call) -> Result<&Vm> {
        self.vm.awake()?;
        self.vm.ready(call).await?;
        Ok(&self.vm)
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Speaks to a MicroVM now and then, until it is gone or nobody holds it.
async fn beat(vm: Weak<Vm>) {
    loop {
        tokio::time::sleep(BEAT).await;
        let Some(vm) = vm.upgrade() else { return };
        // A suspended one does not answer, and its idle time does not count.
        if vm.rest().resting {
            continue;
        }
        let call = Call::new(vm.tag.clone(), BEAT_LIMIT, Arc::new(Grants::default()));
        match vm.health(&call).await {
            Ok(_) => {}
            // Whoever uses it next will learn more.
            Err(error) => {
                tracing::debug!(id = vm.id, %error, "a MicroVM was not reached");
                if vm.look(&call).await.is_err_and(|error| *error.kind() == ErrorKind::SandboxLost) {
                    return;
                }
            }
        }
    }
}

#[async_trait]
impl Sandbox for MicrovmSandbox {
    fn reference(&self) -> &SandboxRef {
        &self.reference
    }

    async fn exec(&self, call: &Call, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport> {
        let vm = self.running(call).await?;
        let defaults = (self.defaults.workdir.as_deref(), &self.defaults.env);
        let (report, seen) = vm.run(call, spec, defaults, sink).await?;
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

    async fn suspend(&self, call: &Call) -> Result<()> {
        suspend::suspend(&self.vm, call).await
    }

    async fn resume(&self, call: &Call) -> Result<()> {
        suspend::resume(&self.vm, call).await
    }

    async fn observe(&self, call: &Call) -> Result<Observation> {
        let usage = *self.usage();
        observe::observe(&self.vm, call, usage).await
    }
}
