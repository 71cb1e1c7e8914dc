//! The contract against Polyaxon: over the emulated gateway, with the API in memory, or a real installation.
//!
//! | variable | |
//! |---|---|
//! | `SANDBOX_BENCH_LIVE=polyaxon` | the installation and the project that the official client's configuration names |
//! | `SANDBOX_BENCH_POLYAXON_SERVER=URL` | the emulated gateway over the real open-source server at this address |

#[path = "support/emulated.rs"]
mod emulated;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_conformance::{Adapter, Pace, run_adapter};
use sandbox_bench_core::{Backend, Call, Result, Source};
use sandbox_bench_emulators::machine::{ImageTable, MachineOptions};
use sandbox_bench_emulators::polyaxon::{PolyaxonOptions, start};
use sandbox_bench_emulators::{Emulation, Listener, Machines, Server, Timing};
use sandbox_bench_polyaxon::{PolyaxonConfig, connect, connect_with};

/// A real installation, as the environment says.
struct Live;

#[async_trait]
impl Adapter for Live {
    async fn connect(&self, call: &Call) -> Result<Arc<dyn Backend>> {
        connect(&PolyaxonConfig::default(), call).await
    }

    fn source(&self) -> Source {
        Source::Base
    }

    fn pace(&self) -> Pace {
        Pace { call: Duration::from_secs(300), soon: Duration::from_secs(60), behaviour: Duration::from_secs(900) }
    }
}

/// The emulator.
struct Emulated {
    config: PolyaxonConfig,
    token: String,
}

#[async_trait]
impl Adapter for Emulated {
    async fn connect(&self, call: &Call) -> Result<Arc<dyn Backend>> {
        let variable = |name: &str| (name == "POLYAXON_AUTH_TOKEN").then(|| self.token.clone());
        connect_with(&self.config, &variable, call).await
    }

    fn source(&self) -> Source {
        Source::Image("debian:bookworm-slim".into())
    }
}

async fn serve() -> anyhow::Result<(Server, Emulated)> {
    let images = ImageTable::new(Default::default(), &["**no-such-image**".into()])?;
    let machines = Machines::open(MachineOptions { images, host_network: true, ..MachineOptions::default() }).await?;
    let emulation = Arc::new(Emulation::new(machines, Timing::default()));
    let upstream = std::env::var("SANDBOX_BENCH_POLYAXON_SERVER").ok();
    let options = PolyaxonOptions { upstream, ..PolyaxonOptions::default() };
    let (token, project) = (options.token.clone(), options.project.clone());
    let server = start(Listener::bind(0).await?, emulation, options);
    let config = PolyaxonConfig {
        host: Some(server.base_url().to_owned()),
        project: Some(format!("default/{project}")),
        architecture: std::env::consts::ARCH.into(),
        ..PolyaxonConfig::default()
    };
    Ok((server, Emulated { config, token }))
}

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    if emulated::live("polyaxon") { run_adapter(Arc::new(Live)) } else { emulated::run(serve()) }
}
