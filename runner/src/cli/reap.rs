//! `sandbox-bench reap`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;

use super::table;
use crate::config::Config;
use crate::connect;
use crate::exit::{Exit, Fault};
use crate::reap::{self, Reaped};
use crate::say;

#[derive(Debug, Args)]
pub struct ReapArgs {
    /// Run directories [default: all runs below the results directory that are not going on].
    #[arg(value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Results directory.
    #[arg(long, default_value = "results", value_name = "DIR")]
    results: PathBuf,
    /// End every sandbox of ours on these backends, whichever run created it, also those of runs that are going on.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", conflicts_with = "runs")]
    all_on: Vec<String>,
    /// Configuration of the backends [default: bench.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// A run is still going on, its evidence cannot be read or written, or a backend does not answer.
pub async fn run(args: ReapArgs) -> Result<Exit, Fault> {
    let config = Config::read(args.config.as_deref()).map_err(Fault::usage)?;
    let mut reaped = Vec::new();
    for name in &args.all_on {
        let backend = connect::connect_one(name, &config, "reap").await;
        let backend = backend.map_err(|error| Fault::infrastructure(anyhow!("backend {name}: {error}")))?;
        reaped.extend(reap::sweep(name, &backend).await?);
    }
    if args.all_on.is_empty() {
        let given = !args.runs.is_empty();
        let runs = if given { args.runs } else { reap::runs_below(&args.results)? };
        for directory in runs {
            match reap::run_directory(&directory, &config).await {
                Ok(more) => reaped.extend(more),
                Err(fault) if given => return Err(fault),
                Err(fault) => say::aside(format_args!("left alone: {fault}")),
            }
        }
    }
    print(&reaped)?;
    let left = reaped.iter().any(|one| one.left.is_some());
    Ok(if left { Exit::Cleanup } else { Exit::Accepted })
}

fn print(reaped: &[Reaped]) -> Result<(), Fault> {
    if reaped.is_empty() {
        return say::result("nothing to clean up");
    }
    let rows = reaped.iter().map(|one| {
        let state = one.left.as_ref().map_or_else(|| "gone".to_owned(), |why| format!("may still exist: {why}"));
        [one.backend.clone(), one.tag.clone(), state, one.origin.clone()]
    });
    say::result(table::plain(["backend", "tag", "state", "from"], rows))
}
