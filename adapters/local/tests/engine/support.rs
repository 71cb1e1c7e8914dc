//! What the tests share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sandbox_bench_local::engine::{Base, Command, Engine, EngineOptions, EngineSandbox, Outcome, SandboxConfig};
use tempfile::TempDir;

/// An engine on a state directory of its own, which must be empty of sandboxes when the test is over.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) dir: TempDir,
}

/// Somewhere that is not an overlay file system, also when the tests run in a container.
pub(crate) fn scratch() -> TempDir {
    let usual = if Path::new("/.dockerenv").exists() { "/dev/shm" } else { "/var/tmp" };
    let base = std::env::var_os("TEST_STATE_DIR").map_or_else(|| PathBuf::from(usual), PathBuf::from);
    tempfile::Builder::new().prefix("sandbox-bench-test-").tempdir_in(base).unwrap()
}

pub(crate) fn helper() -> PathBuf {
    env!("CARGO_BIN_EXE_sandbox-bench-local-helper").into()
}

pub(crate) async fn open(dir: &Path) -> Engine {
    Engine::open(dir, EngineOptions { helper: Some(helper()) }).await.unwrap()
}

pub(crate) async fn bench() -> Bench {
    let dir = scratch();
    Bench { engine: open(dir.path()).await, dir }
}

pub(crate) fn config() -> SandboxConfig {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let id = format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    SandboxConfig::new(id, Base::Host)
}

impl Bench {
    pub(crate) async fn sandbox(&self) -> EngineSandbox {
        self.engine.create(config()).await.unwrap()
    }

    /// Destroys everything and checks that nothing is left.
    pub(crate) async fn close(self) {
        for listed in self.engine.list().unwrap() {
            self.engine.destroy(&listed.id).await.unwrap();
        }
        for snapshot in self.engine.snapshots().unwrap() {
            self.engine.delete_snapshot(&snapshot.id).await.unwrap();
        }
        for directory in ["sandboxes", "layers", "snapshots", "scratch"] {
            let left: Vec<_> = std::fs::read_dir(self.dir.path().join(directory)).unwrap().collect();
            assert!(left.is_empty(), "left in {directory}: {left:?}");
        }
    }
}

/// Outcome, standard output and standard error of a command.
pub(crate) async fn run(sandbox: &EngineSandbox, command: Command) -> (Outcome, String, String) {
    let running = sandbox.exec(command).unwrap();
    let limit = Duration::from_secs(60);
    let (outcome, stdout, stderr) = tokio::time::timeout(limit, running.output()).await.unwrap().unwrap();
    (outcome, String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned())
}

/// Standard output of a script that must succeed.
pub(crate) async fn sh(sandbox: &EngineSandbox, script: &str) -> String {
    let (outcome, stdout, stderr) = run(sandbox, Command::shell(script)).await;
    assert_eq!(outcome.end, sandbox_bench_local::engine::End::Exited(0), "{script}\n{stdout}\n{stderr}");
    stdout
}

/// How many processes of the sandbox have a command line that begins like this.
pub(crate) async fn count(sandbox: &EngineSandbox, start: &str) -> usize {
    let lines = sh(sandbox, "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f 2>/dev/null; echo; done").await;
    lines.lines().filter(|line| line.starts_with(start)).count()
}

/// Waits for something that must come true, with a bound for a machine in trouble.
pub(crate) async fn wait_until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came true");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
