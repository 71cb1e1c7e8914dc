//! The contract against Modal: over the emulator of its protocol, or with `SANDBOX_BENCH_LIVE=modal` and the credentials of an
//! account (see the adapter's README) the real thing.

#[path = "support/emulated.rs"]
mod emulated;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_conformance::{Adapter, Pace, run_adapter};
use sandbox_bench_core::{Backend, Call, Result, Source};
use sandbox_bench_emulators::machine::{ImageTable, MachineOptions};
use sandbox_bench_emulators::modal::{ModalOptions, start};
use sandbox_bench_emulators::{Emulation, Listener, Machines, Server, Timing};
use sandbox_bench_modal::{Account, ModalConfig, connect, connect_as};
use secrecy::SecretString;

/// The emulator, by its address.
struct Emulated {
    url: String,
    options: ModalOptions,
}

#[async_trait]
impl Adapter for Emulated {
    async fn connect(&self, _: &Call) -> Result<Arc<dyn Backend>> {
        let account = Account {
            server_url: self.url.clone(),
            token_id: SecretString::from(self.options.token_id.clone()),
            token_secret: SecretString::from(self.options.token_secret.clone()),
            environment: String::new(),
            builder_version: None,
        };
        connect_as(account, &ModalConfig::default())
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
    async fn connect(&self, _: &Call) -> Result<Arc<dyn Backend>> {
        connect(&ModalConfig::default())
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
    let options = ModalOptions::default();
    let server = start(Listener::bind(0).await?, emulation, options.clone());
    let url = server.base_url().to_owned();
    Ok((server, Emulated { url, options }))
}

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    if emulated::live("modal") { run_adapter(Arc::new(Live)) } else { emulated::run(serve()) }
}
