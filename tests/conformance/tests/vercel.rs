//! The contract against Vercel Sandbox: over its emulator, or over the real service with `SANDBOX_BENCH_LIVE=vercel` and
//! credentials in the environment (see the adapter's README).

#[path = "support/emulated.rs"]
mod emulated;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_conformance::{Adapter, Pace, run_adapter};
use sandbox_bench_core::{Backend, Call, Result, Source};
use sandbox_bench_emulators::machine::MachineOptions;
use sandbox_bench_emulators::{Emulation, Listener, Machines, Server, Timing, vercel};
use sandbox_bench_vercel::{VercelConfig, connect, connect_with};

/// The real service, as the environment says.
struct Live;

#[async_trait]
impl Adapter for Live {
    async fn connect(&self, _: &Call) -> Result<Arc<dyn Backend>> {
        connect(&VercelConfig::default())
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
    variables: Vec<(&'static str, String)>,
}

#[async_trait]
impl Adapter for Emulated {
    async fn connect(&self, _: &Call) -> Result<Arc<dyn Backend>> {
        let variable =
            |name: &str| self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        connect_with(&VercelConfig::default(), variable)
    }

    fn source(&self) -> Source {
        Source::Base
    }
}

async fn serve() -> anyhow::Result<(Server, Emulated)> {
    let options = MachineOptions { host_network: true, ..MachineOptions::default() };
    let emulation = Emulation::new(Machines::open(options).await?, Timing::default());
    let account = vercel::VercelOptions::default();
    let (team, project) = (account.team_id.clone(), account.project_id.clone());
    let token = account.tokens.first().cloned().unwrap_or_default();
    let server = vercel::start(Listener::bind(0).await?, Arc::new(emulation), account);
    let variables = vec![
        ("VERCEL_API_URL", format!("{}/api", server.base_url())),
        ("VERCEL_TOKEN", token),
        ("VERCEL_TEAM_ID", team),
        ("VERCEL_PROJECT_ID", project),
    ];
    Ok((server, Emulated { variables }))
}

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    if emulated::live("vercel") { run_adapter(Arc::new(Live)) } else { emulated::run(serve()) }
}
