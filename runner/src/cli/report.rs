//! `sandbox-bench report`, and the result of every run: the table, where the evidence is, what to do next.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use sandbox_bench_reports::derived::{self, TableError};
use sandbox_bench_reports::evidence::Run;
use sandbox_bench_reports::render;
use sandbox_bench_reports::report;
use sandbox_bench_reports::summary::{Outcome, Summary};

use super::fixture as fixture_report;
use super::options::{OutputFormat, RatesOption};
use super::track::TrackOption;
use crate::config::Config;
use crate::exit::{Exit, Fault};
use crate::say;
use crate::{fixture, run};

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Run directories.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Directory of the report: index.html and Markdown pages [default: report in the run directory; of several runs,
    /// report beside the first of them].
    #[arg(long, value_name = "DIR")]
    html: Option<PathBuf>,
    #[command(flatten)]
    rates: RatesOption,
    #[command(flatten)]
    track: TrackOption,
    /// Configuration of the tracker [default: bench.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What is written to stdout.
    #[arg(long, value_enum, default_value = "text")]
    format: ReportFormat,
}

/// What `report` writes to stdout. The files in the directory of the report are the same for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// The table, for people.
    Text,
    /// The summary of each run.
    Json,
    /// The attempts of all runs, one line each, with the columns of trials.parquet.
    Csv,
    /// The same as Parquet.
    Parquet,
    /// The page of the report.
    Html,
    /// Its Markdown pages, one after the other.
    Markdown,
}

impl ReportFormat {
    /// The form of each run's result; none if what is written is one of all runs.
    fn of_each(self) -> Option<OutputFormat> {
        match self {
            Self::Text => Some(OutputFormat::Text),
            Self::Json => Some(OutputFormat::Json),
            Self::Csv | Self::Parquet | Self::Html | Self::Markdown => None,
        }
    }
}

/// Rebuilds the derived files of each run from its journal, prints its result, and writes one report of all of them that
/// have tasks (those of `fixture` have none). The exit code is that of the last run which is not accepted.
///
/// # Errors
/// A run directory cannot be read or written, or the report cannot.
pub async fn run(args: &ReportArgs) -> Result<Exit, Fault> {
    let rates = args.rates.card()?;
    if args.format == ReportFormat::Parquet && io::stdout().is_terminal() {
        return Err(Fault::usage(anyhow!("Parquet is not for a terminal: send it to a file with > trials.parquet")));
    }
    let tracking = match args.track.is_some() {
        true => args.track.tracking(&Config::read(args.config.as_deref()).map_err(Fault::usage)?)?,
        false => None,
    };
    let mut exit = Exit::Accepted;
    for directory in &args.runs {
        if fixture::is_fixture(directory) {
            let summary = fixture::derive_files(directory)?;
            if let Some(format) = args.format.of_each() {
                fixture_report::print(&summary, directory, format)?;
            }
            match summary.exit() {
                Exit::Accepted => {}
                other => exit = other,
            }
            continue;
        }
        Run::open(directory).map_err(Fault::usage)?;
        let summary = run::derive(directory, &rates)?;
        // Who reads the report of an interrupted run needs no advice to read it.
        let next = next(&summary, directory).filter(|_| summary.outcome != Outcome::Interrupted);
        if let Some(format) = args.format.of_each() {
            print(&summary, directory, format, next)?;
        }
        match self::exit(&summary) {
            Exit::Accepted => {}
            other => exit = other,
        }
    }
    let runs: Vec<PathBuf> = args.runs.iter().filter(|run| !fixture::is_fixture(run)).cloned().collect();
    if runs.is_empty() {
        if args.format.of_each().is_none() {
            return Err(Fault::usage(anyhow!("fixture runs have no attempts at tasks: see them as text or json")));
        }
    } else {
        args.write(&runs)?;
    }
    if let Some(tracking) = tracking {
        for directory in &args.runs {
            tracking.finish(directory).await;
        }
    }
    Ok(exit)
}

/// A reader that has gone has seen enough.
fn written(result: Result<(), TableError>) -> Result<(), Fault> {
    match result {
        Err(TableError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(Fault::evidence),
    }
}

/// Copies a file of the report to stdout.
fn copy(path: &Path) -> Result<(), Fault> {
    let copied = fs::read(path).and_then(|text| {
        let mut stdout = io::stdout().lock();
        stdout.write_all(&text)?;
        stdout.flush()
    });
    written(copied.map_err(TableError::Write))
}

/// Writes the report of a run for whoever reads it elsewhere. It can be written again at any time: a failure is only told.
pub fn write_page(directory: &Path) {
    if let Err(error) = report::write_report(&[directory.to_owned()], &directory.join(report::DIRECTORY)) {
        say::aside(format_args!("the report is not written: {error}"));
    }
}

impl ReportArgs {
    /// Writes the report of `runs`, and what of it was asked for to stdout.
    fn write(&self, runs: &[PathBuf]) -> Result<(), Fault> {
        let page = report::write_report(runs, &self.directory(runs)).map_err(Fault::evidence)?;
        match self.format {
            ReportFormat::Text => say::result(format_args!("report:   {}", page.display()))?,
            ReportFormat::Json => {}
            ReportFormat::Csv => written(derived::write_csv(runs, io::stdout().lock()))?,
            ReportFormat::Parquet => written(derived::write_parquet(runs, io::stdout()))?,
            ReportFormat::Html => copy(&page)?,
            ReportFormat::Markdown => {
                for name in report::MARKDOWN {
                    copy(&page.with_file_name(name))?;
                }
            }
        }
        Ok(())
    }

    /// Where the report of `runs` goes.
    fn directory(&self, runs: &[PathBuf]) -> PathBuf {
        let default = || match runs {
            [run] => run.join(report::DIRECTORY),
            [first, ..] => match (first.file_name(), first.parent()) {
                (Some(_), Some(above)) => above.join(report::DIRECTORY),
                // Of a path like `..`, only the system knows the directory above.
                _ => first.join("..").join(report::DIRECTORY),
            },
            [] => PathBuf::from(report::DIRECTORY),
        };
        self.html.clone().unwrap_or_else(default)
    }
}

/// Prints a run's result on stdout, and what to do `next`.
///
/// # Errors
/// The summary cannot be written as JSON.
pub fn print(summary: &Summary, directory: &Path, format: OutputFormat, next: Option<String>) -> Result<(), Fault> {
    match format {
        OutputFormat::Json => {
            say::result(serde_json::to_string_pretty(summary).map_err(Fault::evidence)?)?;
        }
        OutputFormat::Text => {
            say::result(render::table(summary).trim_end())?;
            say::result(format_args!("\nevidence: {}", directory.display()))?;
            if let Some(next) = next {
                say::result(format_args!("next:     {next}"))?;
            }
        }
    }
    Ok(())
}

/// What a person can do after a run.
#[must_use]
pub fn next(summary: &Summary, directory: &Path) -> Option<String> {
    let directory = directory.display();
    Some(match summary.outcome {
        Outcome::Accepted => return None,
        Outcome::Cleanup => format!("sandbox-bench reap {directory}"),
        Outcome::Interrupted => format!("sandbox-bench report {directory} shows what was finished"),
        Outcome::Infrastructure | Outcome::Rejected => {
            format!("{directory}/trials.jsonl has, for each trial, the failure and its outputs")
        }
    })
}

/// The exit code that a summary means.
#[must_use]
pub fn exit(summary: &Summary) -> Exit {
    match summary.outcome {
        Outcome::Accepted => Exit::Accepted,
        Outcome::Rejected => Exit::Rejected,
        Outcome::Infrastructure => Exit::Infrastructure,
        Outcome::Cleanup => Exit::Cleanup,
        Outcome::Interrupted => Exit::Interrupted,
    }
}
