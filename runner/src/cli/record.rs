//! `sandbox-bench record`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use sandbox_bench_reports::evidence::Run;

use crate::exit::{Exit, Fault};
use crate::recording;
use crate::say;
use crate::trial::TRAJECTORY;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// The steps, for `run --solver replay:FILE`.
    Recording,
    /// An agent's transcript in the Agent Trajectory Interchange Format (ATIF); of one task.
    Trajectory,
}

#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Run directory.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Task id, or a glob on task ids.
    #[arg(value_name = "TASK")]
    task: String,
    /// What to write.
    #[arg(long, value_enum, default_value = "recording")]
    form: Form,
    /// File to write [default: stdout].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Writes what a solver did in an earlier run: of each task the first accepted attempt, else the last one.
///
/// # Errors
/// The run cannot be read, has nothing of the kind, or the file cannot be written.
pub fn run(args: &RecordArgs) -> Result<Exit, Fault> {
    let text = text(args).map_err(Fault::usage)?;
    match &args.output {
        None => say::result(text)?,
        Some(path) => std::fs::write(path, text + "\n")
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(Fault::evidence)?,
    }
    Ok(Exit::Accepted)
}

fn text(args: &RecordArgs) -> anyhow::Result<String> {
    let run = Run::open(&args.run)?;
    match args.form {
        Form::Recording => Ok(serde_json::to_string_pretty(&recording::record(&run, &args.task)?)?),
        Form::Trajectory => {
            let found = recording::find(&run, &args.task, TRAJECTORY)?;
            let [(_, output)] = found.as_slice() else {
                bail!("{} tasks match {:?}; a trajectory is of one", found.len(), args.task);
            };
            Ok(String::from_utf8(recording::content(&run, output)?)?)
        }
    }
}
