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
    match TempDir::new() {
        Ok(state) => run_adapter(Arc::new(Local { state })),
        Err(error) => {
            eprintln!("no directory for the state: {error}");
            ExitCode::FAILURE
        }
    }
}
