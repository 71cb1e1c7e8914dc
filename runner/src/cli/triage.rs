//! `sandbox-bench triage`: why trials failed.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use sandbox_bench_reports::evidence::Run;
use sandbox_bench_reports::triage::{self, Baseline, BaselineError, Quarantine};

use super::options::{OutputFormat, RatesOption};
use super::table;
use crate::exit::{Exit, Fault};
use crate::{run, say};

const AFTER: &str = "\
Typed evidence decides first: the failure's class, the verifier's end, its tests, and what the reference
solution came to on other backends. Only then do words in the outputs. Every cause is shown with the line
that decided it. Nothing in a report follows from it.

Causes: environment, startup, transport, patch, timeout, solver, verifier, flaky, task (the reference
solution passes nowhere), rejected (the verifier's word), unavailable, interrupted

Exit codes:
  0  the runs were looked at, whatever came of them
  2  wrong command line, or a directory that is no run
  5  the evidence or the baseline could not be read or written";

#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct TriageArgs {
    /// Run directories.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// What reference solutions came to in earlier runs: a file that `--record` writes.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Add those of RUN whose solver is gold to the baseline; each run counts once.
    #[arg(long, requires = "baseline")]
    record: bool,
    /// Write the tasks that are not to be trusted, one line each: data set, task, digest, why. `run --quarantine` leaves
    /// them out.
    #[arg(long, value_name = "FILE")]
    quarantine: Option<PathBuf>,
    #[command(flatten)]
    rates: RatesOption,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "text")]
    format: OutputFormat,
}

/// Looks at the runs and prints what is found.
///
/// # Errors
/// A run or the baseline cannot be read or written.
pub fn run(args: &TriageArgs) -> Result<Exit, Fault> {
    let rates = args.rates.card()?;
    for directory in &args.runs {
        Run::open(directory).map_err(Fault::usage)?;
        run::derive(directory, &rates)?;
    }
    let mut baseline = match &args.baseline {
        Some(path) => Baseline::read(path).map_err(fault)?,
        None => Baseline::default(),
    };
    let result = triage::triage(&args.runs, &baseline).map_err(Fault::evidence)?;
    if let (true, Some(path)) = (args.record, &args.baseline) {
        let added = triage::learn(&args.runs, &mut baseline).map_err(Fault::evidence)?;
        baseline.write(path).map_err(fault)?;
        say::aside(format_args!("{}: {added} runs added, {} in it", path.display(), baseline.runs.len()));
    }
    if let Some(path) = &args.quarantine {
        let written = std::fs::write(path, Quarantine::write(&result.quarantine));
        written.with_context(|| format!("cannot write {}", path.display())).map_err(Fault::evidence)?;
    }
    match args.format {
        OutputFormat::Json => table::print_json(&result)?,
        OutputFormat::Text => say::result(triage::text(&result).trim_end())?,
    }
    Ok(Exit::Accepted)
}

fn fault(error: BaselineError) -> Fault {
    Fault::evidence(error)
}
