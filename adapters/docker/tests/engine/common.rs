//! What the tests against a real engine share.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use sandbox_bench_core::{
    Backend, Call, Completion, Created, Destruction, ExecReport, ExecSpec, Grants, Sandbox, SandboxSpec, Source,
    Stream, Tag, TagQuery, TailSink,
};
use sandbox_bench_docker::{DockerConfig, connect};

/// An image that is on every machine prepared for the tests.
pub(crate) const IMAGE: &str = "debian:bookworm-slim";

static UNITS: AtomicU32 = AtomicU32::new(0);

/// A connected backend and a run of its own; removes what the run left behind, also when the test fails.
pub(crate) struct Engine {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) run: String,
}

/// Connects, or says why not. Without an engine the test fails, unless `SANDBOX_BENCH_NO_DOCKER=1` says that there is
/// none on purpose.
pub(crate) async fn engine() -> Option<Engine> {
    let run = format!("t{}-{}", std::process::id(), UNITS.fetch_add(1, Relaxed));
    let call = Call::new(Tag::new(&run, "connect"), Duration::from_secs(30), Arc::new(Grants::default()));
    match connect(&DockerConfig::default(), &call).await {
        Ok(backend) => Some(Engine { backend, run }),
        Err(error) if std::env::var_os("SANDBOX_BENCH_NO_DOCKER").is_some_and(|value| value == "1") => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("no Docker engine answers (set SANDBOX_BENCH_NO_DOCKER=1 to skip): {error}"),
    }
}

impl Engine {
    pub(crate) fn tag(&self) -> Tag {
        Tag::new(&self.run, &format!("u{}", UNITS.fetch_add(1, Relaxed)))
    }

    pub(crate) fn call(&self) -> Call {
        Call::new(self.tag(), Duration::from_secs(120), Arc::new(Grants::default()))
    }

    pub(crate) fn spec(&self) -> SandboxSpec {
        SandboxSpec::new(self.tag(), Source::Image(IMAGE.into()))
    }

    pub(crate) async fn create(&self, spec: &SandboxSpec) -> Created {
        self.backend.create(&self.call(), spec, &TailSink::new(1000)).await.unwrap()
    }

    pub(crate) async fn sandbox(&self) -> Arc<dyn Sandbox> {
        self.create(&self.spec()).await.sandbox
    }

    pub(crate) async fn exec(&self, sandbox: &Arc<dyn Sandbox>, spec: &ExecSpec) -> Ran {
        let sink = TailSink::new(1 << 20);
        let report = sandbox.exec(&self.call(), spec, &sink).await.unwrap();
        Ran { report, stdout: sink.text(Stream::Stdout), stderr: sink.text(Stream::Stderr) }
    }

    /// stdout of a script that must succeed.
    pub(crate) async fn sh(&self, sandbox: &Arc<dyn Sandbox>, script: &str) -> String {
        let ran = self.exec(sandbox, &ExecSpec::sh(script)).await;
        assert!(ran.report.completion.success(), "{script}: {:?} {}", ran.report.completion, ran.stderr);
        ran.stdout
    }

    pub(crate) async fn destroy(&self, sandbox: &Arc<dyn Sandbox>) {
        let gone = self.backend.destroy(&self.call(), sandbox.reference()).await.unwrap();
        assert_eq!(gone, Destruction::Confirmed);
        let left = self.backend.find(&self.call(), &TagQuery::Exact(sandbox.reference().tag.clone())).await.unwrap();
        assert_eq!(left, []);
    }
}

/// A command that exited by itself.
pub(crate) fn exited(code: i32) -> Completion {
    Completion::Exited { code }
}

/// One command's report and output.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) report: ExecReport,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // By the engine's own tool, since a destructor cannot wait for a future; nothing to do is the normal case.
        let names = |args: &[&str]| {
            let out = Command::new("docker").args(args).output().map(|out| out.stdout).unwrap_or_default();
            String::from_utf8_lossy(&out).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let prefix = format!("sbx-{}-", self.run);
        let containers = names(&["ps", "-aq", "--filter", &format!("name={prefix}")]);
        let images = names(&["images", "-q", &format!("sandbox-bench/artifact:{prefix}*")]);
        for (verb, ids) in [("rm", containers), ("rmi", images)] {
            if !ids.is_empty() {
                let _ = Command::new("docker").args([verb, "-f"]).args(ids).output();
            }
        }
    }
}
