//! What a behaviour works with: a backend behind the runner's layers, a run of its own, and short ways to use both.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use sandbox_bench_core::{
    Backend, Call, Capabilities, Created, Digest, ExecReport, ExecSpec, Grants, Input, NetworkPolicy, OutputSink,
    Result, Sandbox, SandboxSpec, Source, Stage, Stream, Tag, TagQuery, TailSink,
};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::adapter::{Adapter, Pace};
use crate::check::{Check, Stop};
use crate::ensure;
use crate::tree::Tree;

/// A handle to a sandbox.
pub type Handle = Arc<dyn Sandbox>;

/// What one behaviour works with. Everything it creates carries a tag of [`Harness::run`].
pub struct Harness {
    /// The backend, wrapped in the layers that the runner uses.
    pub backend: Arc<dyn Backend>,
    /// How patient to be.
    pub pace: Pace,
    /// The run that this behaviour is, for tags and searches.
    pub run: String,
    adapter: Arc<dyn Adapter>,
    units: AtomicU64,
    environments: Mutex<Vec<Digest>>,
    scratch: TempDir,
}

impl Harness {
    /// Connects to the adapter's backend for one behaviour.
    ///
    /// # Errors
    /// What connecting fails with.
    pub async fn new(adapter: Arc<dyn Adapter>) -> Check<Self> {
        let (pace, run) = (adapter.pace(), unique_run());
        let call = Call::new(Tag::new(&run, "connect"), pace.call, Arc::default());
        let backend = adapter.layered(adapter.connect(&call).await?);
        let (units, environments, scratch) = (AtomicU64::new(0), Mutex::default(), TempDir::new()?);
        Ok(Self { backend, pace, run, adapter, units, environments, scratch })
    }

    /// A second connection to the same backend, as another process would make it.
    ///
    /// # Errors
    /// What connecting fails with.
    pub async fn connect_again(&self) -> Check<Arc<dyn Backend>> {
        Ok(self.adapter.layered(self.adapter.connect(&self.call()).await?))
    }

    /// What the backend can do.
    #[must_use]
    pub fn can(&self) -> &Capabilities {
        &self.backend.info().capabilities
    }

    /// A tag that nothing carries yet.
    #[must_use]
    pub fn tag(&self) -> Tag {
        Tag::new(&self.run, &format!("u{}", self.units.fetch_add(1, Relaxed)))
    }

    /// A host path that does not exist yet, in a directory that goes with the behaviour.
    #[must_use]
    pub fn host_path(&self) -> PathBuf {
        self.scratch.path().join(format!("f{}", self.units.fetch_add(1, Relaxed)))
    }

    /// What sandboxes start from.
    #[must_use]
    pub fn source(&self) -> Source {
        self.adapter.source()
    }

    /// A call with the suite's usual limit, granting nothing but the default network.
    #[must_use]
    pub fn call(&self) -> Call {
        self.granting(Grants::default())
    }

    /// A call with these grants; the network is the default one.
    #[must_use]
    pub fn granting(&self, grants: Grants) -> Call {
        let grants = Grants { network: self.network(), ..grants };
        Call::new(self.tag(), self.pace.call, Arc::new(grants))
    }

    /// A request for an ordinary sandbox: off the network where that is possible, it being the quickest.
    #[must_use]
    pub fn spec(&self) -> SandboxSpec {
        SandboxSpec { network: self.network(), ..SandboxSpec::new(self.tag(), self.source()) }
    }

    fn network(&self) -> NetworkPolicy {
        if self.can().network_off { NetworkPolicy::NoNetwork } else { NetworkPolicy::Public }
    }

    /// A new ordinary sandbox.
    ///
    /// # Errors
    /// What `create` fails with.
    pub async fn sandbox(&self) -> Check<Handle> {
        Ok(self.create(&self.spec()).await?.sandbox)
    }

    /// A new sandbox as `spec` asks, on the network that it names.
    ///
    /// # Errors
    /// What `create` fails with.
    pub async fn create(&self, spec: &SandboxSpec) -> Result<Created> {
        let grants = Grants { network: spec.network.clone(), ..Grants::default() };
        let call = Call { tag: spec.tag.clone(), ..Call::new(self.tag(), self.pace.call, Arc::new(grants)) };
        self.backend.create(&call, spec, &TailSink::new(4096)).await
    }

    /// Destroys a sandbox, and fails unless that is confirmed.
    ///
    /// # Errors
    /// It was not confirmed.
    pub async fn destroy(&self, sandbox: &Handle) -> Check {
        let outcome = self.backend.destroy(&self.call(), sandbox.reference()).await?;
        crate::check::same("destroy", outcome, sandbox_bench_core::Destruction::Confirmed)
    }

    /// The ids of the sandboxes that a search finds.
    ///
    /// # Errors
    /// What `find` fails with.
    pub async fn found(&self, query: TagQuery) -> Check<Vec<String>> {
        let found = self.backend.find(&self.call(), &query).await?;
        Ok(found.into_iter().map(|found| found.reference.id).collect())
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// It was not started, or its report does not agree with what the sink got.
    pub async fn exec(&self, sandbox: &Handle, spec: &ExecSpec) -> Check<Ran> {
        self.exec_into(&self.call(), sandbox, spec, &Collected::default()).await
    }

    /// Runs a command to its end, as `call` has it; `sink` shows its output meanwhile.
    ///
    /// # Errors
    /// As [`Harness::exec`].
    pub async fn exec_into(&self, call: &Call, sandbox: &Handle, spec: &ExecSpec, sink: &Collected) -> Check<Ran> {
        let report = sandbox.exec(call, spec, sink).await?;
        let [stdout, stderr] = std::mem::take(&mut *sink.lock());
        for (name, said, got) in [("stdout", &report.stdout, &stdout), ("stderr", &report.stderr, &stderr)] {
            ensure!(
                said.delivered_bytes == got.len() as u64,
                "{name}: the report says that {} bytes were delivered, but the sink got {}",
                said.delivered_bytes,
                got.len()
            );
        }
        Ok(Ran { report, stdout, stderr })
    }

    /// Runs a shell script that must succeed. Returns what it printed, without the last line end.
    ///
    /// # Errors
    /// It failed.
    pub async fn sh(&self, sandbox: &Handle, script: &str) -> Check<String> {
        self.exec(sandbox, &ExecSpec::sh(script)).await?.text()
    }

    /// Uploads inputs, granting exactly them, in the stage of setting up.
    ///
    /// # Errors
    /// What `upload` fails with.
    pub async fn upload(&self, sandbox: &Handle, inputs: &[Input]) -> Result<()> {
        let grants = Grants { inputs: inputs.iter().map(|input| input.entry.clone()).collect(), ..Grants::default() };
        sandbox.upload(&self.granting(grants), inputs).await.map(drop)
    }

    /// Uploads one file with mode 0644.
    ///
    /// # Errors
    /// What `upload` fails with.
    pub async fn put(&self, sandbox: &Handle, path: &str, content: impl Into<bytes::Bytes>) -> Result<()> {
        self.upload(sandbox, &[Input::bytes("file", path, Stage::Setup, 0o644, content)]).await
    }

    /// Uploads a tree into a directory.
    ///
    /// # Errors
    /// What `upload` fails with.
    pub async fn put_tree(&self, sandbox: &Handle, path: &str, tree: &Tree) -> Check {
        let tar = self.host_path();
        tree.write(&tar)?;
        Ok(self.upload(sandbox, &[Input::tree("tree", path, Stage::Setup, tar)?]).await?)
    }

    /// Downloads a file or directory.
    ///
    /// # Errors
    /// What `download` fails with, or the result is not a tar file.
    pub async fn get(&self, sandbox: &Handle, path: &str) -> Check<Tree> {
        let to = self.host_path();
        let downloaded = sandbox.download(&self.call(), path, &to, 256 << 20).await?;
        crate::check::same("bytes of the download", downloaded.bytes, std::fs::metadata(&to)?.len())?;
        Ok(Tree::read(&to)?)
    }

    /// Notes an environment that the behaviour is about to build.
    pub fn builds(&self, fingerprint: &Digest) {
        self.environments.lock().unwrap_or_else(PoisonError::into_inner).push(fingerprint.clone());
    }

    /// Removes what the backend keeps of built environments.
    pub(crate) async fn forget_environments(&self) {
        let built = std::mem::take(&mut *self.environments.lock().unwrap_or_else(PoisonError::into_inner));
        for fingerprint in built {
            self.adapter.forget_environment(&fingerprint).await;
        }
    }

    /// What is left of the behaviour outside of the backend's own account.
    pub(crate) async fn residue(&self) -> Vec<String> {
        self.adapter.residue(&self.run).await
    }
}

/// A run name that no other process and no other behaviour has: no dashes, so that no run is a prefix of another.
fn unique_run() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    format!("conf{:x}p{:x}n{}", nanos & 0xffff_ffff_ffff, std::process::id(), COUNT.fetch_add(1, Relaxed))
}

/// A command that ended, with its output.
#[derive(Debug)]
pub struct Ran {
    /// The report.
    pub report: ExecReport,
    /// Standard output as delivered.
    pub stdout: Vec<u8>,
    /// Standard error as delivered.
    pub stderr: Vec<u8>,
}

impl Ran {
    /// Standard output without its last line end, of a command that must have succeeded.
    ///
    /// # Errors
    /// It did not succeed.
    pub fn text(&self) -> Check<String> {
        ensure!(
            self.report.completion.success(),
            "a command that should have succeeded ended with {}; stdout: {:.300}; stderr: {:.300}",
            self.report.completion,
            String::from_utf8_lossy(&self.stdout),
            String::from_utf8_lossy(&self.stderr)
        );
        Ok(String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned())
    }
}

/// A sink that keeps everything: what behaviours run is bounded.
#[derive(Debug, Default)]
pub struct Collected {
    streams: Mutex<[Vec<u8>; 2]>,
    arrived: Notify,
}

impl Collected {
    /// Waits until `text` has arrived on standard output.
    ///
    /// # Errors
    /// It did not arrive within `limit`.
    pub async fn shows(&self, text: &str, limit: Duration) -> Check {
        let seen = async {
            while !self.lock()[0].windows(text.len()).any(|window| window == text.as_bytes()) {
                self.arrived.notified().await;
            }
        };
        let late = |_| Stop::Failed(format!("{text:?} was written but did not arrive within {limit:?}"));
        tokio::time::timeout(limit, seen).await.map_err(late)
    }

    fn lock(&self) -> MutexGuard<'_, [Vec<u8>; 2]> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputSink for Collected {
    fn write(&self, stream: Stream, chunk: &[u8]) {
        let index = usize::from(stream == Stream::Stderr);
        self.lock()[index].extend_from_slice(chunk);
        self.arrived.notify_one();
    }
}
