//! `sandbox-bench dataset`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use sandbox_bench_datasets::fetch::{self, FetchSpec};
use sandbox_bench_datasets::{self as datasets, Dataset, Format, Problem, Severity, Target};
use serde::Serialize;

use super::options::OutputFormat;
use super::table::{self, print_json};
use crate::exit::{Exit, Fault};
use crate::run::{self, DatasetChoice};
use crate::say;

#[derive(Debug, Args)]
pub struct DatasetArgs {
    #[command(subcommand)]
    command: Command,
}

/// A data set on the command line.
#[derive(Debug, Args)]
struct Source {
    /// `smoke` (bundled), a directory, or a .jsonl, .json, .parquet or .tar.gz file.
    #[arg(value_name = "NAME|PATH")]
    dataset: String,
    /// Form of the data set, where it is not to be detected.
    #[arg(long, value_name = "FORMAT")]
    dataset_format: Option<Format>,
    /// Environments of SWE-smith repositories: a directory with <repository key>/Dockerfile or swesmith_env_manifests.json,
    /// or a file of such manifests.
    #[arg(long, value_name = "PATH")]
    environments: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the tasks.
    List {
        #[command(flatten)]
        source: Source,
        /// Form of the result on stdout.
        #[arg(long, value_enum, default_value = "text")]
        format: OutputFormat,
    },
    /// Show what is known of one task, as JSON.
    Inspect {
        #[command(flatten)]
        source: Source,
        /// Its id.
        task: String,
    },
    /// Check every task and list what is wrong. Exits with 1 if a task cannot be used.
    Validate {
        #[command(flatten)]
        source: Source,
        /// Form of the result on stdout.
        #[arg(long, value_enum, default_value = "text")]
        format: OutputFormat,
    },
    /// Write the tasks in another form. Exits with 1 if some have none and were left out.
    Convert {
        #[command(flatten)]
        source: Source,
        /// The form.
        #[arg(long, value_enum)]
        to: TargetName,
        /// The directory to write into.
        #[arg(short, long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Download files of a data set from Hugging Face (HF_ENDPOINT, HF_TOKEN), going on where an earlier download ended.
    Fetch {
        /// The data set, as OWNER/NAME.
        #[arg(value_name = "OWNER/NAME")]
        dataset: String,
        /// Globs on its files, separated by commas [default: all .parquet and .jsonl files].
        #[arg(long, value_delimiter = ',', value_name = "GLOB,…")]
        file: Vec<String>,
        /// Branch, tag or commit.
        #[arg(long, default_value = "main", value_name = "REVISION")]
        revision: String,
        /// The directory to write into.
        #[arg(short, long, value_name = "DIR")]
        out: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TargetName {
    Jsonl,
    Parquet,
    Directories,
}

impl From<TargetName> for Target {
    fn from(name: TargetName) -> Self {
        match name {
            TargetName::Jsonl => Self::Jsonl,
            TargetName::Parquet => Self::Parquet,
            TargetName::Directories => Self::Directories,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The data set is not there or not readable, or the result cannot be written.
pub async fn run(args: DatasetArgs) -> Result<Exit, Fault> {
    match args.command {
        Command::List { source, format } => list(&open(&source)?, format),
        Command::Inspect { source, task } => inspect(&open(&source)?, &task),
        Command::Validate { source, format } => validate(&open(&source)?, format),
        Command::Fetch { dataset, file, revision, out } => fetch(dataset, file, revision, out).await,
        Command::Convert { source, to, out } => convert(&open(&source)?, to.into(), &out),
    }
}

fn open(source: &Source) -> Result<Dataset, Fault> {
    run::open(&DatasetChoice {
        path: source.dataset.clone(),
        format: source.dataset_format,
        environments: source.environments.clone(),
        include: Vec::new(),
        limit: None,
    })
}

#[derive(Serialize)]
struct Listed {
    id: String,
    family: &'static str,
    solution: bool,
    digest: String,
}

fn list(dataset: &Dataset, format: OutputFormat) -> Result<Exit, Fault> {
    let mut listed = Vec::new();
    for task in dataset.entries().map(|entry| entry.and_then(|entry| dataset.load(&entry))) {
        match task {
            Ok(task) => listed.push(Listed {
                solution: task.solution.is_some(),
                family: task.family.name(),
                digest: task.digest.to_string(),
                id: task.id,
            }),
            Err(problem) => say::aside(format_args!("left out: {problem}")),
        }
    }
    if format == OutputFormat::Json {
        print_json(&listed)?;
    } else {
        let rows = listed.into_iter().map(|task| {
            let solution = if task.solution { "yes" } else { "no" };
            [task.id, task.family.to_owned(), solution.to_owned(), task.digest.chars().take(19).collect()]
        });
        say::result(table::plain(["task", "form", "solution", "digest"], rows))?;
    }
    Ok(Exit::Accepted)
}

fn inspect(dataset: &Dataset, id: &str) -> Result<Exit, Fault> {
    let entry = dataset.entries().filter_map(Result::ok).find(|entry| entry.id == id);
    let entry = entry.ok_or_else(|| {
        Fault::usage(anyhow!(
            "data set {} has no task {id}; `sandbox-bench dataset list` shows its tasks",
            dataset.name()
        ))
    })?;
    let inspection = datasets::inspect(dataset, &entry).map_err(Fault::usage)?;
    print_json(&inspection)?;
    Ok(Exit::Accepted)
}

fn validate(dataset: &Dataset, format: OutputFormat) -> Result<Exit, Fault> {
    let mut problems: Vec<Problem> = Vec::new();
    let (mut errors, mut warnings) = (0_u64, 0_u64);
    for problem in datasets::validate(dataset) {
        match problem.severity {
            Severity::Error => errors += 1,
            Severity::Warning => warnings += 1,
        }
        match format {
            OutputFormat::Text => {
                let severity = if problem.severity == Severity::Error { "error" } else { "warning" };
                say::result(format_args!("{severity}: {problem}"))?;
            }
            OutputFormat::Json => problems.push(problem),
        }
    }
    match format {
        OutputFormat::Json => print_json(&problems)?,
        OutputFormat::Text => say::result(format_args!("{}: {errors} errors, {warnings} warnings", dataset.name()))?,
    }
    Ok(if errors == 0 { Exit::Accepted } else { Exit::Rejected })
}

fn convert(dataset: &Dataset, to: Target, out: &Path) -> Result<Exit, Fault> {
    let converted = datasets::convert(dataset, to, out, |problem| say::aside(format_args!("left out: {problem}")));
    let converted = converted.map_err(|error| {
        let there = error.source.kind() == ErrorKind::AlreadyExists;
        let hint = if there { " (nothing is overwritten: choose another directory)" } else { "" };
        Fault::usage(anyhow!("{error}{hint}"))
    })?;
    say::result(format_args!("wrote {} tasks", converted.tasks))?;
    for path in &converted.written {
        say::result(path.display())?;
    }
    if converted.left_out == 0 {
        return Ok(Exit::Accepted);
    }
    say::aside(format_args!("{} tasks were left out: see above", converted.left_out));
    Ok(Exit::Rejected)
}

async fn fetch(dataset: String, files: Vec<String>, revision: String, out: PathBuf) -> Result<Exit, Fault> {
    let mut spec = FetchSpec::new(dataset, out);
    spec.revision = revision;
    if !files.is_empty() {
        spec.paths = files;
    }
    let style = ProgressStyle::with_template("{prefix} {bar:20} {bytes}/{total_bytes} {bytes_per_sec}");
    let bar = ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let fetched = fetch::fetch(&spec, |progress| {
        bar.set_prefix(progress.path);
        if let Some(total) = progress.total {
            bar.set_length(total);
        }
        bar.set_position(progress.bytes);
    });
    let fetched = fetched.await;
    bar.finish_and_clear();
    for file in fetched.map_err(Fault::infrastructure)? {
        let checked = if file.verified { "checksum right" } else { "size right; the hub gives no checksum" };
        let there = if file.already_there { ", was there already" } else { "" };
        say::result(format_args!("{} ({} bytes, {checked}{there})", file.file.display(), file.bytes))?;
    }
    Ok(Exit::Accepted)
}
