//! A sandbox of the reference backend.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_core::*;

use super::files;
use super::process;
use super::state::{Kept, new_id};

pub struct RefSandbox {
    pub kept: Kept,
    pub artifacts: PathBuf,
    pub reference: SandboxRef,
}

#[async_trait]
impl Sandbox for RefSandbox {
    fn reference(&self) -> &SandboxRef {
        &self.reference
    }

    async fn exec(&self, call: &Call, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport> {
        call.meter.api_call();
        process::check(spec)?;
        let marker = new_id();
        let mut command = process::command(&self.kept, call, spec, &marker)?;
        let child = command.spawn().map_err(|e| Error::new(ErrorKind::Failed, "cannot start nsenter").because(e))?;
        let mut report = process::run(child, call, spec, &marker, sink).await;
        call.meter.received(report.stdout.delivered_bytes + report.stderr.delivered_bytes);
        // What the end of the sandbox does to a command looks like a signal.
        let settled = matches!(report.completion, Completion::Exited { .. } | Completion::DeadlineExceeded { .. });
        if !settled && self.gone_soon().await {
            report.completion = Completion::SandboxLost;
        }
        Ok(report)
    }

    async fn upload(&self, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
        call.meter.api_call();
        let view = self.kept.view()?;
        inputs.iter().try_for_each(files::check)?;
        inputs.iter().try_for_each(|input| files::place(&view, input))?;
        let bytes = inputs.iter().map(|input| input.entry.size).sum();
        call.meter.sent(bytes);
        Ok(Uploaded { bytes, proof: UploadProof::Acknowledged })
    }

    async fn download(&self, call: &Call, from: &str, to: &Path, limit: u64) -> Result<Downloaded> {
        call.meter.api_call();
        let view = self.kept.view()?;
        let packed = files::pack(&view, from, to, limit);
        if packed.is_err() {
            std::fs::remove_file(to).ok();
        }
        let bytes = packed?;
        call.meter.received(bytes);
        Ok(Downloaded { bytes })
    }

    async fn snapshot(&self, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
        call.meter.api_call();
        self.kept.awake()?;
        let artifact = Kept(self.artifacts.join(new_id()));
        let failed = |e| Error::new(ErrorKind::Failed, "cannot write the artifact's state").because(e);
        std::fs::create_dir_all(&artifact.0).map_err(failed)?;
        artifact.write("tag", spec.tag.as_str()).map_err(failed)?;
        artifact.copy_root_from(&self.kept).await?;
        artifact.write("fingerprint", &spec.fingerprint.to_string()).map_err(failed)?;
        artifact.artifact().ok_or_else(|| Error::new(ErrorKind::Failed, "the artifact's state is unreadable"))
    }

    async fn suspend(&self, call: &Call) -> Result<()> {
        call.meter.api_call();
        if self.kept.read("resumable").is_none() {
            return Err(Error::invalid("the sandbox was not created to be suspended"));
        }
        self.kept.signal("-STOP").await?;
        let failed = |e| Error::new(ErrorKind::Failed, "cannot write the sandbox's state").because(e);
        self.kept.write("suspended", "").map_err(failed)
    }

    async fn resume(&self, call: &Call) -> Result<()> {
        call.meter.api_call();
        self.kept.signal("-CONT").await?;
        std::fs::remove_file(self.kept.0.join("suspended")).ok();
        Ok(())
    }

    async fn observe(&self, call: &Call) -> Result<Observation> {
        call.meter.api_call();
        self.kept.init().map(|_| Observation::default())
    }
}

impl RefSandbox {
    /// True if the sandbox is gone, or goes within the moment that the kernel needs for it.
    async fn gone_soon(&self) -> bool {
        for _ in 0..10 {
            if self.kept.init().is_err() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }
}
