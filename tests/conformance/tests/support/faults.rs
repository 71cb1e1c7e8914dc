//! An adapter over its emulator, with the layers around it, on a bad day: faults are scripted in the emulator.
#![allow(dead_code, reason = "each target uses its part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use sandbox_bench_conformance::check::same;
use sandbox_bench_conformance::{Check, Stop, ensure};
use sandbox_bench_core::layers::{RetryPolicy, stack};
use sandbox_bench_core::{
    Backend, Call, Completion, Created, Destruction, Error, ExecSpec, Grants, NetworkPolicy, SandboxSpec, Source,
    Stream, Tag, TagQuery, TailSink,
};
use sandbox_bench_emulators::Server;
use sandbox_bench_emulators::faults::{Rule, Script};

/// Limit of one operation.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// The run in every tag.
const RUN: &str = "faults";
/// Bytes of a command's output that are kept.
const KEPT: usize = 8 << 20;

/// An emulator and a connection to it.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) backend: Arc<dyn Backend>,
    source: Source,
    tags: AtomicU32,
}

impl Bench {
    /// `backend`, connected to `server`, whose sandboxes start from `source`.
    pub(crate) fn over(server: Server, backend: Arc<dyn Backend>, source: Source) -> Self {
        let policy = RetryPolicy { max_retries: 2, min_wait: Duration::from_millis(50), ..RetryPolicy::default() };
        Self { server, backend: stack(backend, policy), source, tags: AtomicU32::new(0) }
    }

    pub(crate) fn faults(&self, rules: impl IntoIterator<Item = Rule>) -> Check {
        let script = Script { rules: rules.into_iter().collect() };
        self.server.emulation().faults.set(script).map_err(|e| Stop::Failed(e.to_string()))
    }

    pub(crate) fn call(&self) -> Call {
        let grants = Grants { network: NetworkPolicy::Public, ..Grants::default() };
        Call::new(self.tag(), LIMIT, Arc::new(grants))
    }

    pub(crate) fn tag(&self) -> Tag {
        Tag::new(RUN, &format!("u{}", self.tags.fetch_add(1, Relaxed)))
    }

    pub(crate) fn spec(&self) -> SandboxSpec {
        SandboxSpec::new(self.tag(), self.source.clone())
    }

    pub(crate) async fn create(&self, spec: &SandboxSpec) -> Result<Created, Error> {
        self.backend.create(&self.call(), spec, &TailSink::new(4096)).await
    }

    pub(crate) async fn found(&self, query: TagQuery) -> Result<usize, Error> {
        Ok(self.backend.find(&self.call(), &query).await?.len())
    }

    /// How a command ends, and what it printed.
    pub(crate) async fn run(&self, made: &Created, spec: &ExecSpec) -> Result<(Completion, String), Error> {
        let sink = TailSink::new(KEPT);
        let report = made.sandbox.exec(&self.call(), spec, &sink).await?;
        Ok((report.completion, sink.text(Stream::Stdout)))
    }

    pub(crate) async fn sh(&self, made: &Created, script: &str) -> Result<(Completion, String), Error> {
        self.run(made, &ExecSpec::sh(script).timeout(LIMIT)).await
    }

    /// A command whose sandbox meets these faults from soon after its start until past its time limit has not timed out: nobody
    /// saw it then.
    pub(crate) async fn away_at_the_limit(&self, rules: impl IntoIterator<Item = Rule>) -> Check {
        let made = self.create(&self.spec()).await?;
        self.sh(&made, "true").await?;
        let away = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.faults(rules)
        };
        let spec = ExecSpec::sh("sleep 60").timeout(Duration::from_secs(3));
        let (ran, away) = tokio::join!(self.run(&made, &spec), away);
        away?;
        same("a command", ran?.0, Completion::TransportLost)?;
        self.faults([])?;
        self.destroyed(&made).await
    }

    pub(crate) async fn destroyed(&self, made: &Created) -> Check {
        same("destroy", self.backend.destroy(&self.call(), made.sandbox.reference()).await?, Destruction::Confirmed)
    }

    /// Destroys what is still there, then as [`end`](Self::end).
    pub(crate) async fn clear(self) -> Check {
        self.faults([])?;
        for found in self.backend.find(&self.call(), &TagQuery::All).await? {
            same("destroy", self.backend.destroy(&self.call(), &found.reference).await?, Destruction::Confirmed)?;
        }
        self.end().await
    }

    /// All is well again: everything that was made is gone, and no request was malformed.
    pub(crate) async fn end(self) -> Check {
        self.faults([])?;
        same("what is left", self.found(TagQuery::All).await?, 0)?;
        let artifacts = self.backend.artifacts(&self.call(), &TagQuery::Run(RUN.to_owned())).await;
        same("artifacts that are left", artifacts.map_or(0, |artifacts| artifacts.len()), 0)?;
        let emulation = self.server.emulation();
        same("machines that run", emulation.machines.alive().len(), 0)?;
        same("requests that the vendor refuses", emulation.violations.all(), Vec::new())?;
        self.server.shutdown(LIMIT).await.map_err(|e| Stop::Failed(e.to_string()))
    }
}

/// The error of this kind that `result` has to be. It does not show `secret`.
pub(crate) fn refused<T>(secret: &str, what: &str, result: Result<T, Error>, expected: &str) -> Check<Error> {
    match result {
        Ok(_) => Err(Stop::Failed(format!("{what}: expected an error"))),
        Err(error) => {
            ensure!(!format!("{error} {error:?}").contains(secret), "{what}: the error shows the secret: {error}");
            same(&format!("{what} ({error})"), error.kind().name(), expected)?;
            Ok(error)
        }
    }
}
