//! The reference backend as an adapter of the suite.
#![allow(unreachable_pub, reason = "shared by several test targets")]

pub mod reference;

use std::process::{Command, ExitCode};
use std::sync::Arc;

use async_trait::async_trait;
use sandbox_bench_conformance::Adapter;
use sandbox_bench_core::{Backend, Call, Error, Result, Source};
use tempfile::TempDir;

use reference::Reference;

/// The reference backend, with a state directory of its own.
pub struct ReferenceAdapter {
    state: TempDir,
}

#[async_trait]
impl Adapter for ReferenceAdapter {
    async fn connect(&self, _: &Call) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(Reference::new(self.state.path())))
    }

    fn source(&self) -> Source {
        Source::Base
    }

    /// Every process of a sandbox has its state directory's name in the command line of its `unshare`.
    async fn residue(&self, run: &str) -> Vec<String> {
        let left = |kind: &str| std::fs::read_dir(self.state.path().join(kind)).into_iter().flatten().flatten();
        let of_run =
            |path: &std::path::Path| std::fs::read_to_string(path.join("tag")).is_ok_and(|tag| tag.contains(run));
        ["sandboxes", "artifacts"]
            .into_iter()
            .flat_map(left)
            .map(|entry| entry.path())
            .filter(|path| of_run(path))
            .map(|path| path.display().to_string())
            .collect()
    }
}

/// Calls `run` with the reference backend where it can work: on Linux, as root.
pub fn with_reference(run: impl FnOnce(Arc<dyn Adapter>) -> ExitCode) -> ExitCode {
    let usable = Command::new("unshare").args(["--mount", "--pid", "--net", "--fork", "true"]).output();
    if !usable.is_ok_and(|output| output.status.success()) {
        println!("skipped: the reference backend needs root and unshare(1)");
        return ExitCode::SUCCESS;
    }
    match TempDir::new().map_err(|e| Error::invalid("no temporary directory").because(e)) {
        Ok(state) => run(Arc::new(ReferenceAdapter { state })),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
