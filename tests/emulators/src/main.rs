//! `sandbox-emulator VENDOR`: one vendor's wire protocol on a local port.

use clap::{Parser, Subcommand};
use sandbox_bench_emulators::{cli, vercel};

#[derive(Parser)]
#[command(version, about = "Emulates a sandbox vendor's wire protocol; sandboxes really execute")]
struct Arguments {
    #[command(subcommand)]
    vendor: Vendor,
}

#[derive(Subcommand)]
enum Vendor {
    /// Vercel Sandbox
    Vercel {
        #[command(flatten)]
        options: cli::Options,
        #[command(flatten)]
        account: vercel::Account,
    },
}

fn main() -> anyhow::Result<()> {
    sandbox_bench_local::engine::helper_main_if_requested();
    let arguments = Arguments::parse();
    tokio::runtime::Runtime::new()?.block_on(run(arguments.vendor))
}

async fn run(vendor: Vendor) -> anyhow::Result<()> {
    match vendor {
        Vendor::Vercel { options, account } => {
            let config = account.config();
            let (listener, emulation) = (options.listener().await?, options.emulation().await?);
            let variables = config.variables(&listener.base_url());
            cli::serve(vercel::serve(listener, emulation, config), &variables).await
        }
    }
}
