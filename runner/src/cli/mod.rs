//! The command line.

mod artifacts;
mod backends;
mod compare;
mod dataset;
mod doctor;
mod estimate;
mod fixture;
mod import;
mod models;
mod options;
mod prewarm;
mod reap;
mod record;
mod report;
mod run;
mod table;
mod track;
mod triage;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::{Exit, Fault};
use crate::say;

const AFTER: &str = "\
Exit codes:
  0    every trial accepted, everything cleaned up
  1    some trials rejected by their verifier, or some tasks invalid; nothing else went wrong
  2    wrong command line, configuration or data set; nothing was run
  3    some trials failed for another reason, or nothing could be run
  4    something that the run created is not confirmed gone: run `sandbox-bench reap`
  5    the evidence could not be written or read
  130  interrupted

Start with:
  sandbox-bench run --backend local --dataset smoke --solver gold";

/// Runs the same verified tasks on the sandboxes that coding agents use, cold and warm, and keeps the evidence.
#[derive(Debug, Parser)]
#[command(name = "sandbox-bench", version, after_help = AFTER)]
struct Cli {
    /// Show more of what happens (-v: info, -vv: debug). RUST_LOG, where set, wins.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run tasks on backends and record the results.
    Run(Box<run::RunArgs>),
    /// Measure execution itself with a small fixed program, in fresh sandboxes or in one that is used again.
    Fixture(fixture::FixtureArgs),
    /// Make the warm artifacts of a data set's environments, for `run --condition warm`.
    Prewarm(prewarm::PrewarmArgs),
    /// List, inspect, check, convert and download data sets.
    Dataset(dataset::DatasetArgs),
    /// Publish the evidence of runs to a tracker, or what of it is missing there.
    Track(track::TrackArgs),
    /// Show the result of runs again, from their evidence, and write their report.
    Report(report::ReportArgs),
    /// Take in runs of code-sandbox-bench or Harbor.
    Import(import::ImportArgs),
    /// Write a run as result files of code-sandbox-bench.
    Export(import::ExportArgs),
    /// Write what a solver did in an earlier run as a recording, to repeat it on any backend.
    Record(record::RecordArgs),
    /// Tell why trials failed, across backends, and which tasks are not to be trusted.
    Triage(triage::TriageArgs),
    /// Tell what changed between two runs, or two cells of a run.
    Compare(compare::CompareArgs),
    /// End what dead runs left behind at the backends.
    Reap(reap::ReapArgs),
    /// List and delete warm artifacts.
    Artifacts(artifacts::ArtifactsArgs),
    /// Show the backends of this build, what they can do, and whether they answer.
    Backends(backends::BackendsArgs),
    /// Check whether backends can be used from here: configuration, credentials, clock, quota, one command in a sandbox.
    Doctor(doctor::DoctorArgs),
}

/// Parses the command line, runs the command, and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    log(cli.verbose);
    // One TLS provider for all that speak TLS; a second installation would be the only error.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return end(Err(Fault::infrastructure(error))),
    };
    let result = runtime.block_on(async {
        match cli.command {
            Command::Run(args) => run::run(*args).await,
            Command::Fixture(args) => fixture::run(args).await,
            Command::Prewarm(args) => prewarm::run(args).await,
            Command::Dataset(args) => dataset::run(args).await,
            Command::Track(args) => track::run(args).await,
            Command::Report(args) => report::run(&args).await,
            Command::Import(args) => import::import(&args),
            Command::Export(args) => import::export(&args),
            Command::Record(args) => record::run(&args),
            Command::Triage(args) => triage::run(&args),
            Command::Compare(args) => compare::run(&args),
            Command::Reap(args) => reap::run(args).await,
            Command::Artifacts(args) => artifacts::run(args).await,
            Command::Backends(args) => backends::run(args).await,
            Command::Doctor(args) => doctor::run(args).await,
        }
    });
    // Blocking work that nobody waits for any more must not hold the process.
    runtime.shutdown_background();
    end(result)
}

fn end(result: Result<Exit, Fault>) -> ExitCode {
    match result {
        Ok(exit) => exit.into(),
        Err(fault) => {
            say::aside(format_args!("error: {fault}"));
            fault.exit.into()
        }
    }
}

fn log(verbose: u8) {
    use tracing_subscriber::EnvFilter;
    let default = match verbose {
        0 => "error",
        1 => "info",
        _ => "debug",
    };
    let ours = ["", "_core", "_datasets", "_docker", "_local", "_reports"];
    let directives: Vec<String> = ours.iter().map(|part| format!("sandbox_bench{part}={default}")).collect();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(directives.join(",")));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // It would complain about a lost line on stderr, and panic if that is what is lost.
    log.log_internal_errors(false).init();
}
