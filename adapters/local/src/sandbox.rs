//! [`Sandbox`] for a sandbox of the embedded engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use sandbox_bench_core::{
    Artifact, Call, Downloaded, Error, ErrorKind, ExecReport, ExecSpec, Input, Observation, OutputSink, Resources,
    Result, Sandbox, SandboxRef, SnapshotSpec, Uploaded,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::backend::bounded;
use crate::engine::{EngineSandbox, ImageConfig};
use crate::{artifact, exec, upload};

/// The label that carries [`Notes`].
const NOTES: &str = "notes";

/// What the adapter must know of a sandbox beyond what the engine does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Notes {
    pub(crate) image: ImageConfig,
    pub(crate) workdir: String,
    pub(crate) granted: Resources,
}

impl Notes {
    /// Reads them back; a label of another version gives the defaults.
    pub(crate) fn of(labels: &BTreeMap<String, String>) -> Notes {
        labels.get(NOTES).and_then(|notes| serde_json::from_str(notes).ok()).unwrap_or_default()
    }

    pub(crate) fn label(&self) -> (String, String) {
        (NOTES.to_owned(), serde_json::to_string(self).unwrap_or_default())
    }
}

pub(crate) struct LocalSandbox {
    sandbox: EngineSandbox,
    reference: SandboxRef,
    notes: Notes,
}

impl LocalSandbox {
    pub(crate) fn new(sandbox: EngineSandbox, reference: SandboxRef, notes: Notes) -> LocalSandbox {
        LocalSandbox { sandbox, reference, notes }
    }

    pub(crate) fn workdir(&self) -> &str {
        &self.notes.workdir
    }
}

#[async_trait]
impl Sandbox for LocalSandbox {
    fn reference(&self) -> &SandboxRef {
        &self.reference
    }

    async fn exec(&self, call: &Call, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport> {
        call.meter.api_call();
        exec::run(&self.sandbox, &self.notes, call, spec, sink).await
    }

    async fn upload(&self, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
        call.meter.api_call();
        let uploaded = bounded(call, upload::place(&self.sandbox, inputs)).await?;
        call.meter.sent(uploaded.bytes);
        Ok(uploaded)
    }

    async fn download(&self, call: &Call, from: &str, to: &Path, limit: u64) -> Result<Downloaded> {
        call.meter.api_call();
        if !from.starts_with('/') || from.contains('\0') {
            return Err(Error::invalid(format!("local: {from:?} is not an absolute path")));
        }
        let bytes = bounded(call, self.fetch(from, to, limit)).await?;
        call.meter.received(bytes);
        Ok(Downloaded { bytes })
    }

    async fn snapshot(&self, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
        call.meter.api_call();
        let id = Uuid::now_v7().simple().to_string();
        let mut labels = artifact::labels(spec);
        // What the image says about commands is part of it; what the sandbox was asked for is not.
        labels.extend([Notes { image: self.notes.image.clone(), ..Notes::default() }.label()]);
        let snapshot = bounded(call, async { Ok(self.sandbox.snapshot(&id, labels).await?) }).await?;
        Ok(artifact::artifact(&snapshot))
    }

    async fn observe(&self, call: &Call) -> Result<Observation> {
        call.meter.api_call();
        if self.sandbox.ended() {
            let message = format!("local: sandbox {} has ended", self.reference.id);
            return Err(Error::new(ErrorKind::SandboxLost, message));
        }
        let usage = self.sandbox.usage();
        Ok(Observation {
            granted: self.notes.granted.clone(),
            cpu_us: usage.cpu.map(|cpu| cpu.as_micros() as u64),
            peak_memory_bytes: usage.peak_memory,
            ..Observation::default()
        })
    }
}

impl LocalSandbox {
    /// Writes beside `to` and renames, so that a half-written file never has its name.
    async fn fetch(&self, from: &str, to: &Path, limit: u64) -> Result<u64> {
        let cannot = |error: std::io::Error| {
            Error::new(ErrorKind::Failed, format!("local: cannot write {}", to.display())).because(error)
        };
        let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.map_or_else(|| PathBuf::from("."), Path::to_owned);
        let _ = std::fs::remove_file(to);
        let draft = tempfile::NamedTempFile::new_in(directory).map_err(cannot)?;
        let file = tokio::fs::File::from_std(draft.reopen().map_err(cannot)?);
        let bytes = self.sandbox.read_tar(from, limit, file).await?;
        draft.persist(to).map_err(|error| cannot(error.error))?;
        Ok(bytes)
    }
}
