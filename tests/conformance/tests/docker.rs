//! The contract against a real Docker Engine: the one that `DOCKER_HOST` names, or the local socket.
//!
//! `SANDBOX_BENCH_NO_DOCKER=1` skips it; otherwise an engine must answer and have the image `debian:bookworm-slim`.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use sandbox_bench_conformance::{Adapter, run_adapter};
use sandbox_bench_core::{Backend, Call, Digest, Result, Source};
use sandbox_bench_docker::{DockerConfig, connect};
use tokio::process::Command;

struct Docker;

#[async_trait]
impl Adapter for Docker {
    async fn connect(&self, call: &Call) -> Result<Arc<dyn Backend>> {
        connect(&DockerConfig::default(), call).await
    }

    async fn forget_environment(&self, fingerprint: &Digest) {
        // By the command line client, which must not fail a test: it only keeps the engine's disk from filling up.
        let image = format!("sandbox-bench/env:{}", fingerprint.short(24));
        Command::new("docker").args(["image", "rm", "--force", &image]).output().await.ok();
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
