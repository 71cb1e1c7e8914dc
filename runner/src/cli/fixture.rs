//! `sandbox-bench fixture`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sandbox_bench_core::evidence::Cleanup;
use sandbox_bench_reports::render::duration;

use super::options::{BackendOptions, OutputFormat};
use super::table::{self, print_json};
use super::track::TrackOption;
use crate::exit::{Exit, Fault};
use crate::fixture::{self, Cell, Mode, Request, Summary, Told, Trial};
use crate::{interrupt, say};

const AFTER: &str = "\
Exit codes:
  0    every total and every count was right, everything cleaned up
  1    some were wrong; nothing else went wrong
  2    wrong command line or configuration; nothing was run
  3    some trials failed for another reason
  4    an answer to create was lost, or a sandbox is not confirmed gone: run `sandbox-bench reap`
  5    the evidence could not be written or read
  130  interrupted";

#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct FixtureArgs {
    #[command(flatten)]
    backends: BackendOptions,
    /// Which sandbox a trial gets: fresh (a new one, count 1), reuse (that of the trial before, count 1, 2, 3, …; replaced
    /// after an error), separated by commas.
    #[arg(
        short,
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "fresh",
        hide_possible_values = true,
        value_name = "MODE,…"
    )]
    mode: Vec<Mode>,
    /// Trials of a batch.
    #[arg(short, long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repetitions: u32,
    /// Batches of each mode on each backend.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batches: u32,
    /// Take the modes in reverse order in every other round of batches.
    #[arg(long)]
    alternate: bool,
    /// A label for the evidence. It changes nothing of what is asked for.
    #[arg(long, value_name = "LABEL")]
    profile: Option<String>,
    /// Image to start from [default: the backend's base, or debian:bookworm-slim where it has none].
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Time limit for ending a sandbox, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    cleanup_timeout: u64,
    /// Where the run directory is made.
    #[arg(long, default_value = "results", value_name = "DIR")]
    results: PathBuf,
    #[command(flatten)]
    track: TrackOption,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "text")]
    format: OutputFormat,
    /// Show no progress.
    #[arg(short, long)]
    quiet: bool,
}

impl FixtureArgs {
    fn request(&self, backends: Vec<String>) -> Request {
        let mut modes = Vec::new();
        for mode in &self.mode {
            if !modes.contains(mode) {
                modes.push(*mode);
            }
        }
        Request {
            backends,
            modes,
            repetitions: self.repetitions,
            batches: self.batches,
            alternate: self.alternate,
            profile: self.profile.clone(),
            image: self.image.clone(),
            cleanup_limit: Duration::from_secs(self.cleanup_timeout),
            results: self.results.clone(),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The request is wrong, a submission of an earlier run is unresolved, a backend does not answer, or the evidence cannot
/// be written.
pub async fn run(args: FixtureArgs) -> Result<Exit, Fault> {
    let config = args.backends.config()?;
    let tracking = args.track.tracking(&config)?;
    let interrupt = interrupt::on_signals().map_err(Fault::infrastructure)?;
    let trial = |trial: &Trial| {
        if !args.quiet {
            say::aside(progress(trial));
        }
    };
    let begun = |directory: &Path| {
        if let Some(tracking) = &tracking {
            tracking.begin(directory);
        }
    };
    let told = Told { begun: &begun, trial: &trial };
    let request = args.request(args.backends.chosen(&config).await?);
    let (directory, summary) = fixture::run(&request, &config, interrupt, &told).await?;
    print(&summary, &directory, args.format)?;
    if let Some(tracking) = tracking {
        tracking.finish(&directory).await;
    }
    Ok(summary.exit())
}

/// A line for a trial that is over.
fn progress(trial: &Trial) -> String {
    let name = format!("{} {} {}.{}", trial.backend, trial.mode.name(), trial.batch, trial.repetition);
    let came = match (&trial.failure, trial.times.command_us) {
        (Some(failure), _) => format!("{}: {}", failure.class.name(), failure.message),
        (None, command) => format!("ok, count {}, {}", trial.expected.counter, duration(command.unwrap_or(0))),
    };
    match &trial.cleanup {
        Cleanup::Unconfirmed { why } => format!("{name}  {came}  (cleanup not confirmed: {why})"),
        _ => format!("{name}  {came}"),
    }
}

/// Prints a fixture's result on stdout, and what to do next.
///
/// # Errors
/// It cannot be written.
pub fn print(summary: &Summary, directory: &Path, format: OutputFormat) -> Result<(), Fault> {
    if format == OutputFormat::Json {
        return print_json(summary);
    }
    let header =
        ["backend", "mode", "succeeded", "failed", "not begun", "command p50", "p95", "n", "wall/success", "cleanup"];
    say::result(table::plain(header, summary.cells.iter().map(row)))?;
    for one in &summary.uncertain {
        say::result(format_args!("\nuncertain on {}: the sandbox {} may exist", one.backend, one.tag))?;
    }
    say::result(format_args!("\nevidence: {}", directory.display()))?;
    if summary.cleanup_unconfirmed > 0 {
        say::result(format_args!("next:     sandbox-bench reap {}", directory.display()))?;
    }
    Ok(())
}

fn row(cell: &Cell) -> [String; 10] {
    let none = || "-".to_owned();
    let failed = match cell.failures.is_empty() {
        true => none(),
        false => {
            let classes = cell.failures.iter().map(|(of, count)| format!("{count} {}", of.name()));
            classes.collect::<Vec<_>>().join(", ")
        }
    };
    let command = cell.command.as_ref();
    let wall = cell.wall_seconds_per_success.map(|seconds| duration((seconds * 1e6) as u64));
    [
        cell.backend.clone(),
        cell.mode.name().to_owned(),
        format!("{}/{}", cell.succeeded, cell.attempted),
        failed,
        cell.unattempted.to_string(),
        command.map_or_else(none, |command| duration(command.p50_us)),
        command.map_or_else(none, |command| duration(command.p95_us)),
        command.map_or_else(none, |command| command.n.to_string()),
        wall.unwrap_or_else(none),
        if cell.cleanup_unconfirmed == 0 {
            "ok".to_owned()
        } else {
            format!("{} unconfirmed", cell.cleanup_unconfirmed)
        },
    ]
}
