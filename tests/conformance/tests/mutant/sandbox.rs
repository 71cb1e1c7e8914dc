//! A sandbox with one fault.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_conformance::tree::{Node, Tree};
use sandbox_bench_core::*;
use secrecy::ExposeSecret;

use super::Fault;
use super::backend::Memory;
use super::sink::{MutantSink, twist_report};
use crate::support::reference::Reference;

pub struct MutantSandbox {
    inner: Arc<dyn Sandbox>,
    backend: Arc<Reference>,
    memory: Arc<Memory>,
    fault: Fault,
    one_at_a_time: tokio::sync::Mutex<()>,
}

impl MutantSandbox {
    pub fn new(inner: Arc<dyn Sandbox>, backend: Arc<Reference>, memory: Arc<Memory>, fault: Fault) -> Self {
        Self { inner, backend, memory, fault, one_at_a_time: Default::default() }
    }

    /// The command as the fault has it.
    fn twisted(&self, call: &Call, spec: &ExecSpec) -> ExecSpec {
        let mut spec = spec.clone();
        match self.fault {
            Fault::ArgumentsAreSplit => {
                spec.argv = spec.argv.join(" ").split_whitespace().map(str::to_owned).collect();
            }
            Fault::VariablesAreLost => spec.env.clear(),
            Fault::HostVariablesEnter => spec.env.extend(std::env::vars()),
            Fault::DirectoryIsIgnored => spec.cwd = None,
            Fault::StdinIsLost => spec.stdin = None,
            Fault::BackgroundIsKilled => spec.keep_background = false,
            Fault::BackgroundIsKept => spec.keep_background = true,
            // The reference knows a command's processes by this variable.
            Fault::OnlyTheLeaderIsKilled => wrap(&mut spec, "unset REFERENCE_COMMAND; exec \"$@\"", "sh"),
            Fault::UserIsIgnored => spec.user = None,
            Fault::EveryoneIsNobody => spec.user = Some("nobody".into()),
            Fault::HomeIsRoots => drop(spec.env.insert("HOME".into(), "/root".into())),
            Fault::SecretsAreArguments => {
                let secret = spec.secret_env.values().next().and_then(|name| call.grants.secret(name).ok());
                if let Some(secret) = secret {
                    wrap(&mut spec, "\"$@\"; exit $?", secret.expose_secret());
                }
            }
            Fault::NoLayers => spec.secret_env.clear(),
            Fault::OutputIsUnbounded => spec.output_limit = u64::MAX,
            _ => {}
        }
        spec
    }

    /// Damages what an upload has placed.
    async fn spoil(&self, call: &Call, script: &str) -> Result<()> {
        self.inner.exec(call, &ExecSpec::sh(script), &TailSink::new(0)).await.map(drop)
    }
}

/// Runs the command by a script that gets it as its arguments.
fn wrap(spec: &mut ExecSpec, script: &str, name: &str) {
    let around = ["sh", "-c", script, name].map(str::to_owned);
    spec.argv.splice(..0, around);
}

/// Runs a command where it should never run.
async fn on_the_host(spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport> {
    let failed = |e| Error::new(ErrorKind::Failed, "cannot start").because(e);
    let (program, arguments) = spec.argv.split_first().ok_or_else(|| Error::invalid("no program"))?;
    let output = tokio::process::Command::new(program).args(arguments).output().await.map_err(failed)?;
    sink.write(Stream::Stdout, &output.stdout);
    let stdout = StreamReport { delivered_bytes: output.stdout.len() as u64, ..StreamReport::default() };
    Ok(ExecReport { stdout, ..ExecReport::bare(Completion::Exited { code: output.status.code().unwrap_or(255) }) })
}

#[async_trait]
impl Sandbox for MutantSandbox {
    fn reference(&self) -> &SandboxRef {
        self.inner.reference()
    }

    async fn exec(&self, call: &Call, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport> {
        let twisted = self.twisted(call, spec);
        let call = match self.fault {
            Fault::NothingIsCounted => &Call { meter: Arc::default(), ..call.clone() },
            _ => call,
        };
        let _slot = match self.fault {
            Fault::OneCommandAtATime => Some(self.one_at_a_time.lock().await),
            _ => None,
        };
        if self.fault == Fault::RunsOnTheHost {
            return on_the_host(spec, sink).await;
        }
        let sink = MutantSink::new(sink, self.fault);
        let result = self.inner.exec(call, &twisted, &sink).await;
        match (self.fault, result) {
            (Fault::NothingIsRefused, Err(_)) => Ok(ExecReport::bare(Completion::Exited { code: 0 })),
            (Fault::LossIsAnExit, Err(_)) => Ok(ExecReport::bare(Completion::Exited { code: 0 })),
            (fault, Ok(mut report)) => {
                let out_of_time = matches!(report.completion, Completion::DeadlineExceeded { .. });
                sink.finish(&mut report, out_of_time);
                twist_report(fault, &mut report);
                if fault == Fault::TimeLimitEndsTheSandbox && out_of_time {
                    self.backend.destroy(call, self.reference()).await?;
                }
                Ok(report)
            }
            (_, Err(error)) => Err(error),
        }
    }

    async fn upload(&self, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
        let tree = inputs.iter().any(|input| matches!(input.payload, Payload::Tree { .. }));
        match self.fault {
            Fault::TreesReplace if tree => self.spoil(call, "rm -rf /conformance/merged").await?,
            Fault::EmptyUploadsAreRefused if inputs.is_empty() => return Err(Error::invalid("nothing to upload")),
            _ => {}
        }
        let result = self.inner.upload(call, inputs).await;
        let script = match self.fault {
            Fault::ModesAreLost => "find /conformance -type f -exec chmod 644 {} +",
            Fault::LinksAreLost => "find /conformance -type l -exec rm {} +",
            Fault::LargeFilesAreCut => "find /conformance -size +1000k -exec truncate -s -1 {} +",
            Fault::SmallFilesAreLost => "rm -f /conformance/many/7/1007",
            Fault::LinksAreFollowed => "test -e /conformance/target && cp /conformance/f /conformance/target",
            Fault::ParentsArePrivate => "chmod 700 /conformance",
            Fault::BadUploadsAreAccepted => return result.or(Ok(Uploaded { bytes: 0, proof: UploadProof::Size })),
            _ => return result,
        };
        self.spoil(call, script).await?;
        result
    }

    async fn download(&self, call: &Call, from: &str, to: &Path, limit: u64) -> Result<Downloaded> {
        if self.fault == Fault::FifosBlock {
            let fifo = ExecSpec::sh("cat /conformance/fifo").timeout(Duration::from_secs(15));
            self.inner.exec(call, &fifo, &TailSink::new(0)).await?;
        }
        let result = self.inner.download(call, from, to, limit).await;
        let host = |e: std::io::Error| Error::new(ErrorKind::Failed, "on the host").because(e);
        match (self.fault, &result) {
            (Fault::FailedDownloadsLeaveAFile, Err(_)) => std::fs::write(to, "half").map_err(host)?,
            (Fault::DownloadsAreCut, Ok(done)) => {
                let file = std::fs::File::options().write(true).open(to).map_err(host)?;
                file.set_len(done.bytes / 2 + 7).map_err(host)?;
            }
            (Fault::DownloadModesAreLost | Fault::DownloadNamesHaveADot, Ok(_)) => {
                let nodes = Tree::read(to).map_err(host)?.0.into_iter();
                let twisted = nodes.map(|(path, node)| match (self.fault, node) {
                    (Fault::DownloadModesAreLost, Node::File(_, content)) => (path, Node::File(0o644, content)),
                    (Fault::DownloadModesAreLost, node) => (path, node),
                    (_, node) => (format!("below/{path}"), node),
                });
                Tree(twisted.collect()).write(to).map_err(host)?;
                return Ok(Downloaded { bytes: std::fs::metadata(to).map_err(host)?.len() });
            }
            _ => {}
        }
        result
    }

    async fn snapshot(&self, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
        let listed = self.backend.artifacts(call, &TagQuery::All).await?;
        if let (Fault::SecondSnapshotIsTheFirst, Some(first)) = (self.fault, listed.into_iter().next()) {
            return Ok(first);
        }
        self.memory.snapshot_of(self.reference());
        let mut artifact = self.inner.snapshot(call, spec).await?;
        if self.fault == Fault::FingerprintIsLost {
            artifact.fingerprint = None;
        }
        Ok(artifact)
    }

    async fn suspend(&self, call: &Call) -> Result<()> {
        match self.fault {
            Fault::SuspensionIsPretended => Ok(()),
            _ => self.inner.suspend(call).await,
        }
    }

    async fn resume(&self, call: &Call) -> Result<()> {
        self.inner.resume(call).await?;
        if self.fault == Fault::ResumptionStartsAnew {
            self.spoil(call, "kill -9 -1").await?;
        }
        Ok(())
    }

    async fn observe(&self, call: &Call) -> Result<Observation> {
        self.inner.observe(call).await
    }
}

impl Drop for MutantSandbox {
    fn drop(&mut self) {
        let (backend, reference) = (self.backend.clone(), self.inner.reference().clone());
        if let (Fault::DropEnds, Ok(runtime)) = (self.fault, tokio::runtime::Handle::try_current()) {
            let call = Call::new(reference.tag.clone(), Duration::from_secs(10), Arc::default());
            runtime.spawn(async move { backend.destroy(&call, &reference).await });
        }
    }
}
