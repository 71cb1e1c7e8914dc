//! The contract against the embedded `local` backend.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use sandbox_bench_conformance::{Adapter, run_adapter};
use sandbox_bench_core::{Backend, Call, Result, Source};
use sandbox_bench_local::{LocalConfig, connect};
use tempfile::TempDir;

struct Local {
    state: TempDir,
}

#[async_trait]
impl Adapter for Local {
    async fn connect(&self, _: &Call) -> Result<Arc<dyn Backend>> {
        connect(LocalConfig { state_dir: Some(self.state.path().to_owned()), ..LocalConfig::default() }).await
    }

    fn source(&self) -> Source {
        Source::Base
    }
}

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    let state = match TempDir::new() {
        Ok(state) => state,
        Err(error) => {
            eprintln!("no directory for the state: {error}");
            return ExitCode::FAILURE;
        }
    };
    let kept = ["sandboxes", "layers", "snapshots", "scratch"].map(|kind| state.path().join(kind));
    let local = Arc::new(Local { state });
    let code = run_adapter(local.clone());
    let left = kept.iter().flat_map(std::fs::read_dir).flatten().flatten();
    let left: Vec<_> = left.map(|entry| entry.path()).collect();
    drop(local);
    if !left.is_empty() {
        println!("FAILED   left in the state directory: {left:?}");
        return ExitCode::FAILURE;
    }
    code
}
