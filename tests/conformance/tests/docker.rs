//! The contract against a real Docker Engine: the one that `DOCKER_HOST` names, or the local socket.
//!
//! `SANDBOX_BENCH_NO_DOCKER=1` skips it; otherwise an engine must answer and have the image `debian:bookworm-slim`.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use sandbox_bench_conformance::{Adapter, run_adapter};
use sandbox_bench_core::{Backend, Call, Result, Source};
use sandbox_bench_docker::{DockerConfig, connect};

struct Docker;

#[async_trait]
impl Adapter for Docker {
    async fn connect(&self, call: &Call) -> Result<Arc<dyn Backend>> {
        connect(&DockerConfig::default(), call).await
    }

    fn source(&self) -> Source {
        Source::Image("debian:bookworm-slim".into())
    }
}

fn main() -> ExitCode {
    if std::env::var_os("SANDBOX_BENCH_NO_DOCKER").is_some_and(|value| value == "1") {
        println!("skipped: SANDBOX_BENCH_NO_DOCKER=1");
        return ExitCode::SUCCESS;
    }
    run_adapter(Arc::new(Docker))
}
