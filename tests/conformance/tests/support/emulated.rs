//! A target whose adapter runs over an emulator, or over the real service where `SANDBOX_BENCH_LIVE` names it.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_conformance::{Adapter, run_adapter};
use sandbox_bench_emulators::Server;

/// How long a build may take that nobody awaits any more.
const BUILD_LIMIT: Duration = Duration::from_secs(15);
/// Limit for ending the emulator.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(60);

/// True if the target `name` is to run over the real service.
pub(crate) fn live(name: &str) -> bool {
    std::env::var("SANDBOX_BENCH_LIVE").is_ok_and(|live| live.split(',').any(|one| one == name))
}

/// Runs the suite over the emulator that `serve` starts. It fails too if the emulator saw what a correct client does not
/// leave and does not do.
pub(crate) fn run<A: Adapter>(serve: impl Future<Output = anyhow::Result<(Server, A)>>) -> ExitCode {
    let served = tokio::runtime::Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| {
        let served = runtime.block_on(serve)?;
        Ok((runtime, served))
    });
    let (runtime, (server, adapter)) = match served {
        Ok(served) => served,
        Err(error) => {
            eprintln!("cannot start the emulator: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let code = run_adapter(Arc::new(adapter));
    let faults = runtime.block_on(faults(server));
    for fault in &faults {
        println!("FAILED   seen by the emulator: {fault}");
    }
    if faults.is_empty() { code } else { ExitCode::FAILURE }
}

async fn faults(server: Server) -> Vec<String> {
    let emulation = server.emulation();
    // An image that a cancelled create has asked for is built to its end, on a machine of the service's own.
    let patience = tokio::time::Instant::now() + BUILD_LIMIT;
    while !emulation.machines.alive().is_empty() && tokio::time::Instant::now() < patience {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let violations = emulation.violations.all().into_iter().map(|found| format!("{}: {}", found.request, found.what));
    let alive = emulation.machines.alive().into_iter().map(|id| format!("machine {id} is still there"));
    let mut faults: Vec<String> = violations.chain(alive).collect();
    faults.extend(server.shutdown(SHUTDOWN_LIMIT).await.err().map(|error| error.to_string()));
    faults
}
