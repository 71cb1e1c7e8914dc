//! `sandbox-emulator VENDOR`: one vendor's wire protocol on a local port.

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about = "Emulates a sandbox vendor's wire protocol; sandboxes really execute")]
struct Arguments {
    #[command(subcommand)]
    vendor: Option<Vendor>,
}

#[derive(Subcommand)]
enum Vendor {}

fn main() {
    sandbox_bench_local::engine::helper_main_if_requested();
    if let Some(vendor) = Arguments::parse().vendor {
        match vendor {}
    }
}
