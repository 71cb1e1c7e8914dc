//! The contract against the adapter to copy, over the example service of `tests/emulators`; once it is yours, over the
//! real service with `SANDBOX_BENCH_LIVE=template` and credentials in the environment (see the adapter's README).

#[path = "support/emulated.rs"]
mod emulated;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_conformance::{Adapter, Pace, run_adapter};
use sandbox_bench_core::{Backend, Call, Result, Source};
use sandbox_bench_emulators::machine::MachineOptions;
use sandbox_bench_emulators::{Emulation, Listener, Machines, Server, Timing};
use sandbox_bench_template::{TemplateConfig, connect, connect_with};

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

async fn serve() -> anyhow::Result<(Server, Emulated)> {
    let options = MachineOptions { host_network: true, ..MachineOptions::default() };
    let emulation = Emulation::new(Machines::open(options).await?, Timing::default());
    let server = sandbox_bench_emulators::template::start(Listener::bind(0).await?, Arc::new(emulation), KEY);
    let url = server.base_url().to_owned();
    Ok((server, Emulated { url }))
}

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    if emulated::live("template") { run_adapter(Arc::new(Live)) } else { emulated::run(serve()) }
}
