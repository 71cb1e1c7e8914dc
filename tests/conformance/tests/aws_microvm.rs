//! The contract against AWS Lambda MicroVMs: over their emulator, or over the real service with
//! `SANDBOX_BENCH_LIVE=aws-microvm` and settings in the environment (see the adapter's README).

#[path = "support/aws_microvm.rs"]
mod account;
#[path = "support/emulated.rs"]
mod emulated;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_aws_microvm::{AwsMicrovmConfig, connect, connect_with};
use sandbox_bench_conformance::{Adapter, Pace, run_adapter};
use sandbox_bench_core::{Backend, Call, Result, Source};

/// The real service, as the environment says.
struct Live;

#[async_trait]
impl Adapter for Live {
    async fn connect(&self, _: &Call) -> Result<Arc<dyn Backend>> {
        connect(&AwsMicrovmConfig::default()).await
    }

    fn source(&self) -> Source {
        Source::Base
    }

    fn pace(&self) -> Pace {
        // An image takes minutes to build.
        Pace { call: Duration::from_secs(900), soon: Duration::from_secs(30), behaviour: Duration::from_secs(3600) }
    }
}

/// The emulator, by the variables that a user would set.
struct Emulated {
    variables: account::Variables,
}

#[async_trait]
impl Adapter for Emulated {
    async fn connect(&self, _: &Call) -> Result<Arc<dyn Backend>> {
        connect_with(&AwsMicrovmConfig::default(), |name| account::read(&self.variables, name)).await
    }

    fn source(&self) -> Source {
        Source::Base
    }

    fn not_shown(&self) -> &'static [(&'static str, &'static str)] {
        // On this host's network they would all listen on one port.
        &[("network::public_has_a_way_out", "MicroVMs of the emulator have a network of their own, without a way out")]
    }

    fn pace(&self) -> Pace {
        // Every artifact is an image that is built.
        Pace { call: Duration::from_secs(120), soon: Duration::from_secs(15), behaviour: Duration::from_secs(300) }
    }
}

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    if emulated::live("aws-microvm") {
        return run_adapter(Arc::new(Live));
    }
    emulated::run(async {
        let (server, variables) = account::serve(Default::default()).await?;
        Ok((server, Emulated { variables }))
    })
}
