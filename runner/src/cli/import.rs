//! `sandbox-bench import` and `export`: runs of other programs as runs of ours, and back.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sandbox_bench_reports::csb;
use sandbox_bench_reports::evidence::{EvidenceError, Run};

use super::options::{ConditionName, OutputFormat, RatesOption};
use super::report;
use crate::exit::{Exit, Fault};
use crate::import::{self, ImportError, Options};
use crate::{run, say};

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Result, matrix and prewarm files of code-sandbox-bench, or job directories of Harbor. All become one run.
    #[arg(required = true, value_name = "FILE|JOB")]
    sources: Vec<PathBuf>,
    /// Condition of files that tell none, in themselves or by their name.
    #[arg(long, value_enum)]
    condition: Option<ConditionName>,
    /// Name of the data set of files that tell none.
    #[arg(long, value_name = "NAME")]
    dataset: Option<String>,
    /// Directory of the run directories.
    #[arg(long, default_value = "results", value_name = "DIR")]
    results: PathBuf,
    #[command(flatten)]
    rates: RatesOption,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "text")]
    format: OutputFormat,
}

/// Imports and prints the result. The exit code says whether the import succeeded, whatever the run came to.
///
/// # Errors
/// The sources cannot be imported, or the run cannot be written.
pub fn import(args: &ImportArgs) -> Result<Exit, Fault> {
    let rates = args.rates.card()?;
    let options = Options { condition: args.condition.map(Into::into), dataset: args.dataset.clone() };
    let directory = import::import(&args.sources, &options, &args.results).map_err(fault)?;
    let summary = run::derive(&directory, &rates)?;
    report::print(&summary, &directory, args.format, None)?;
    Ok(Exit::Accepted)
}

fn fault(error: ImportError) -> Fault {
    match error {
        ImportError::Io { .. } => Fault::evidence(error),
        _ => Fault::usage(error),
    }
}

/// What a run is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Result files of code-sandbox-bench: one for each backend, condition, model and replicate.
    Csb,
    /// The rollup of that harness's report, on stdout: totals, means, medians, p95 by nearest rank, means of phases.
    CsbRollup,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Run directory.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// What to write.
    #[arg(long, value_enum, default_value = "csb")]
    format: Form,
    /// Directory of the files [default: export in the run directory].
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Writes a run in the form of another program. A run that was imported from it comes out as it went in.
///
/// # Errors
/// The run cannot be read, or the files cannot be written.
pub fn export(args: &ExportArgs) -> Result<Exit, Fault> {
    let run = Run::open(&args.run).map_err(|error| match error {
        EvidenceError::NoRun(_) | EvidenceError::OtherKind { .. } => Fault::usage(error),
        _ => Fault::evidence(error),
    })?;
    if args.format == Form::CsbRollup {
        say::result(csb::rollup(&run).map_err(Fault::evidence)?.markdown().trim_end())?;
        return Ok(Exit::Accepted);
    }
    let directory = args.output.clone().unwrap_or_else(|| args.run.join("export"));
    let exported = csb::write(&run, &directory).map_err(Fault::evidence)?;
    for file in &exported.files {
        say::result(file.display())?;
    }
    if exported.unfinished > 0 {
        say::aside(format_args!("{} trials were not finished and are in no file", exported.unfinished));
    }
    Ok(Exit::Accepted)
}
