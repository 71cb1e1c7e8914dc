//! The contract against Daytona: over the emulator of its protocol, or with `SANDBOX_BENCH_LIVE=daytona` and the
//! credentials of an account (see the adapter's README) the real thing.

#[path = "support/emulated.rs"]
mod emulated;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_conformance::{Adapter, Pace, run_adapter};
use sandbox_bench_core::{Backend, Call, Result, Source};
use sandbox_bench_daytona::{Account, Credential, DaytonaConfig, connect, connect_as};
use sandbox_bench_emulators::daytona::{DaytonaOptions, start};
use sandbox_bench_emulators::machine::{ImageTable, MachineOptions};
use sandbox_bench_emulators::{Emulation, Listener, Machines, Server, Timing};
use secrecy::SecretString;

/// The emulator, by its address.
struct Emulated {
    url: String,
}

#[async_trait]
impl Adapter for Emulated {
    async fn connect(&self, call: &Call) -> Result<Arc<dyn Backend>> {
        let account = Account {
            api_url: format!("{}/api", self.url),
            credential: Credential::Key(SecretString::from("dtn_emulator")),
            target: None,
        };
        connect_as(&account, &DaytonaConfig::default(), call).await
    }

    fn source(&self) -> Source {
        // The emulator has no registry: any image is this host's own programs.
        Source::Image("debian:bookworm-slim".into())
    }
}

/// The real thing.
struct Live;

#[async_trait]
impl Adapter for Live {
    async fn connect(&self, call: &Call) -> Result<Arc<dyn Backend>> {
        connect(&DaytonaConfig::default(), call).await
    }

    fn source(&self) -> Source {
        Source::Image("debian:bookworm-slim".into())
    }

    fn pace(&self) -> Pace {
        let seconds = Duration::from_secs;
        Pace { call: seconds(300), soon: seconds(30), behaviour: seconds(900) }
    }
}

async fn serve() -> anyhow::Result<(Server, Emulated)> {
    let images = ImageTable::new(Default::default(), &["sandbox-bench-conformance.invalid/*".to_owned()])?;
    let machines = Machines::open(MachineOptions { images, host_network: true, ..MachineOptions::default() }).await?;
    let emulation = Arc::new(Emulation::new(machines, Timing::default()));
    let server = start(Listener::bind(0).await?, emulation, DaytonaOptions::default());
    let url = server.base_url().to_owned();
    Ok((server, Emulated { url }))
}

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    if emulated::live("daytona") { run_adapter(Arc::new(Live)) } else { emulated::run(serve()) }
}
