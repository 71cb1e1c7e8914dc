//! The contract against the adapter to copy, over the example service of `tests/emulators`; once it is yours, over the
//! real service with `SANDBOX_BENCH_LIVE=template` and credentials in the environment (see the adapter's README).

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_conformance::{Adapter, Pace, run_adapter};
use sandbox_bench_core::{Backend, Call, Result, Source};
use sandbox_bench_emulators::machine::MachineOptions;
use sandbox_bench_emulators::{Emulation, Listener, Machines, Server, Timing};
use sandbox_bench_template::{TemplateConfig, connect, connect_with};

/// Limit for ending the emulator.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(60);
/// The key that the emulator accepts.
const KEY: &str = "emulator-key";

/// The real service, as the environment says.
struct Live;

#[async_trait]
impl Adapter for Live {
    async fn connect(&self, _: &Call) -> Result<Arc<dyn Backend>> {
        connect(&TemplateConfig::default())
    }

    fn source(&self) -> Source {
        Source::Base
    }

    fn pace(&self) -> Pace {
        Pace { call: Duration::from_secs(180), soon: Duration::from_secs(30), behaviour: Duration::from_secs(600) }
    }
}

/// The emulator, by the variables that a user would set.
struct Emulated {
    url: String,
}

#[async_trait]
impl Adapter for Emulated {
    async fn connect(&self, _: &Call) -> Result<Arc<dyn Backend>> {
        connect_with(&TemplateConfig::default(), |name| match name {
            "TEMPLATE_API_URL" => Some(self.url.clone()),
            "TEMPLATE_API_KEY" => Some(KEY.to_owned()),
            _ => None,
        })
    }

    fn source(&self) -> Source {
        Source::Base
    }
}

async fn serve() -> anyhow::Result<Server> {
    let options = MachineOptions { host_network: true, ..MachineOptions::default() };
    let emulation = Emulation::new(Machines::open(options).await?, Timing::default());
    Ok(sandbox_bench_emulators::template::start(Listener::bind(0).await?, Arc::new(emulation), KEY))
}

/// What a correct client does not leave, and does not do.
async fn faults(server: Server) -> Vec<String> {
    let emulation = server.emulation();
    let violations = emulation.violations.all().into_iter().map(|found| format!("{}: {}", found.request, found.what));
    let alive = emulation.machines.alive().into_iter().map(|id| format!("machine {id} is still there"));
    let mut faults: Vec<String> = violations.chain(alive).collect();
    faults.extend(server.shutdown(SHUTDOWN_LIMIT).await.err().map(|error| error.to_string()));
    faults
}

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    if std::env::var("SANDBOX_BENCH_LIVE").is_ok_and(|live| live.split(',').any(|name| name == "template")) {
        return run_adapter(Arc::new(Live));
    }
    let served = tokio::runtime::Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| {
        let server = runtime.block_on(serve())?;
        Ok((runtime, server))
    });
    let (runtime, server) = match served {
        Ok(served) => served,
        Err(error) => {
            eprintln!("cannot start the emulator: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let code = run_adapter(Arc::new(Emulated { url: server.base_url().to_owned() }));
    let faults = runtime.block_on(faults(server));
    for fault in &faults {
        println!("FAILED   seen by the emulator: {fault}");
    }
    if faults.is_empty() { code } else { ExitCode::FAILURE }
}
