//! The contract against Daytona: over the emulator of its protocol, or with `SANDBOX_BENCH_LIVE=daytona` and the
//! credentials of an account (see the adapter's README) the real thing.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_conformance::{Adapter, Pace, run_adapter};
use sandbox_bench_core::{Backend, Call, Error, ErrorKind, Result, Source};
use sandbox_bench_daytona::{Account, Credential, DaytonaConfig, connect, connect_as};
use sandbox_bench_emulators::daytona::{DaytonaOptions, start};
use sandbox_bench_emulators::machine::{ImageTable, MachineOptions};
use sandbox_bench_emulators::{Emulation, Listener, Machines, Server, Timing};
use secrecy::SecretString;

/// The vendor's protocol on a port of this process.
#[derive(Default)]
struct Emulated {
    server: tokio::sync::OnceCell<()>,
    running: Mutex<Option<Server>>,
    address: Mutex<String>,
}

impl Emulated {
    async fn start(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let images = ImageTable::new(Default::default(), &["sandbox-bench-conformance.invalid/*".to_owned()])?;
        let machines =
            Machines::open(MachineOptions { images, host_network: true, ..MachineOptions::default() }).await?;
        let emulation = Arc::new(Emulation::new(machines, Timing::default()));
        let server = start(Listener::bind(0).await?, emulation, DaytonaOptions::default());
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = server.base_url().to_owned();
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        Ok(())
    }

    /// What the emulator has to complain about, and what is left in it.
    fn complaints(&self) -> Vec<String> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(server) = running.as_ref() else { return Vec::new() };
        let violations = server.emulation().violations.all().into_iter();
        let violations = violations.map(|violation| format!("a request that the vendor refuses: {violation:?}"));
        let left = server.emulation().machines.alive().into_iter().map(|id| format!("left running: {id}"));
        violations.chain(left).collect()
    }
}

#[async_trait]
impl Adapter for Emulated {
    async fn connect(&self, call: &Call) -> Result<Arc<dyn Backend>> {
        let failed = |e| Error::new(ErrorKind::Failed, "the emulator cannot be started").because(e);
        self.server.get_or_try_init(|| self.start()).await.map_err(failed)?;
        let address = self.address.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let account = Account {
            api_url: format!("{address}/api"),
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

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    if std::env::var_os("SANDBOX_BENCH_LIVE").is_some_and(|value| value == "daytona") {
        return run_adapter(Arc::new(Live));
    }
    let emulated = Arc::new(Emulated::default());
    let code = run_adapter(emulated.clone());
    let complaints = emulated.complaints();
    for complaint in &complaints {
        println!("FAILED   {complaint}");
    }
    if complaints.is_empty() { code } else { ExitCode::FAILURE }
}
