//! `sandbox-emulator VENDOR`: one vendor's wire protocol on a local port.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use sandbox_bench_emulators::cli::{self, Options};
use sandbox_bench_emulators::polyaxon::{self, PolyaxonOptions};

#[derive(Parser)]
#[command(version, about = "Emulates a sandbox vendor's wire protocol; sandboxes really execute")]
struct Arguments {
    #[command(subcommand)]
    vendor: Vendor,
}

#[derive(Subcommand)]
enum Vendor {
    /// Polyaxon: the sandbox gateway, over an API in memory or a real server
    Polyaxon(Polyaxon),
}

#[derive(Args)]
struct Polyaxon {
    #[command(flatten)]
    options: Options,
    /// The token that is accepted
    #[arg(long, default_value = "emulator-token")]
    token: String,
    /// A project that exists from the start
    #[arg(long, default_value = "bench")]
    project: String,
    /// Forward /api and /streams to a real server at this address
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
}

fn main() -> ExitCode {
    // Before anything else: a helper of the engine must have one thread.
    sandbox_bench_local::engine::helper_main_if_requested();
    let result = tokio::runtime::Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(run(Arguments::parse()));
        // A read of standard input may still wait; nothing depends on it.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbox-emulator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.vendor {
        Vendor::Polyaxon(polyaxon) => serve_polyaxon(polyaxon).await,
    }
}

async fn serve_polyaxon(arguments: Polyaxon) -> anyhow::Result<()> {
    let Polyaxon { options, token, project, upstream } = arguments;
    let (listener, emulation) = (options.listener().await?, options.emulation().await?);
    let settings = PolyaxonOptions { token: token.clone(), project: project.clone(), upstream };
    let server = polyaxon::start(listener, emulation, settings);
    let variables = [
        ("POLYAXON_HOST", server.base_url().to_owned()),
        ("POLYAXON_AUTH_TOKEN", token),
        ("POLYAXON_EMULATOR_PROJECT", format!("default/{project}")),
    ];
    cli::serve(server, &variables).await
}
