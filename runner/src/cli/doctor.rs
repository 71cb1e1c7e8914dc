//! `sandbox-bench doctor`.

use clap::Args;
use sandbox_bench_core::ErrorKind;

use super::options::{BackendOptions, OutputFormat};
use super::table::{self, print_json};
use crate::connect;
use crate::doctor::{self, Diagnosis, State};
use crate::exit::{Exit, Fault};
use crate::{interrupt, run, say};

const AFTER: &str = "\
Exit codes:
  0    everything works, perhaps with warnings
  2    the configuration is wrong, or names an unknown backend
  3    credentials, connection, sandbox or a hard case failed
  4    the sandbox is not confirmed gone: run `sandbox-bench reap --all-on NAME`
  130  interrupted";

#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct DoctorArgs {
    #[command(flatten)]
    backends: BackendOptions,
    /// Also try hard cases: a normal task, oversized output, a denied data request, a client that leaves, a time limit, two
    /// sandboxes apart, one in place of another. Makes two sandboxes more, and takes half a minute.
    #[arg(long)]
    hard: bool,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "text")]
    format: OutputFormat,
}

/// Runs the command.
///
/// # Errors
/// The configuration file cannot be read.
pub async fn run(args: DoctorArgs) -> Result<Exit, Fault> {
    let config = args.backends.config()?;
    let interrupt = interrupt::on_signals().map_err(Fault::infrastructure)?;
    let unit = run::new_run_id();
    let mut diagnoses = Vec::new();
    for name in connect::compiled(args.backends.names()) {
        if interrupt.is_cancelled() {
            break;
        }
        let diagnosis = doctor::examine(&name, &config, &unit, args.hard, &interrupt).await;
        if args.format == OutputFormat::Text {
            print(&diagnosis)?;
        }
        diagnoses.push(diagnosis);
    }
    if args.format == OutputFormat::Json {
        print_json(&diagnoses)?;
    }
    Ok(exit(&diagnoses, interrupt.is_cancelled()))
}

fn print(diagnosis: &Diagnosis) -> Result<(), Fault> {
    let rows = diagnosis
        .checks
        .iter()
        .map(|check| [check.name.to_owned(), word(check.state).to_owned(), one_line(&check.found)]);
    say::result(table::plain([diagnosis.backend.as_str(), "", ""], rows))?;
    if !diagnosis.hard.is_empty() {
        let rows = diagnosis.hard.iter().map(|case| {
            let (name, expected, afterwards) = (case.name, case.expected, case.afterwards);
            [name, word(case.state), expected, &one_line(&case.observed), afterwards].map(str::to_owned)
        });
        let header = [&format!("{}, hard", diagnosis.backend), "", "expected", "observed", "afterwards"];
        say::result(format_args!("\n{}", table::plain(header, rows)))?;
    }
    let failed = diagnosis.checks.iter().any(|check| check.state == State::Failed);
    let next = match (&diagnosis.error, failed) {
        _ if !diagnosis.clean => format!("sandbox-bench reap --all-on {}", diagnosis.backend),
        (Some(kind), _) => next(kind).to_owned(),
        (None, _) => format!("sandbox-bench run --backend {} --dataset smoke --solver gold", diagnosis.backend),
    };
    say::result(format_args!("next: {next}\n"))
}

fn word(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Warning => "warning",
        State::Failed => "failed",
        State::Skipped => "-",
    }
}

/// Words of a backend on one line, which cannot drive a terminal.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    lines.chars().filter(|c| !c.is_control()).collect()
}

/// What a person can do about an error of this kind, beyond what its own words say.
fn next(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidRequest => "correct the configuration (docs/configuration.md), and ask the doctor again",
        ErrorKind::Credentials | ErrorKind::Denied => {
            "give credentials that may do this (the adapter's README names the variables), and ask the doctor again"
        }
        ErrorKind::RateLimited { .. } | ErrorKind::Capacity => {
            "wait, or free some of the quota, and ask the doctor again"
        }
        ErrorKind::Cancelled => "interrupted: ask the doctor again",
        ErrorKind::Unavailable | ErrorKind::Transport | ErrorKind::DeadlineExceeded => {
            "see that the backend runs and can be reached from here, and ask the doctor again"
        }
        _ => "see the adapter's README for what the backend needs, and ask the doctor again",
    }
}

fn exit(diagnoses: &[Diagnosis], interrupted: bool) -> Exit {
    let any = |wrong: fn(&Diagnosis) -> bool| diagnoses.iter().any(wrong);
    match () {
        () if any(|one| !one.clean) => Exit::Cleanup,
        () if interrupted => Exit::Interrupted,
        () if any(|one| one.error.as_ref().is_some_and(|kind| *kind != ErrorKind::InvalidRequest)) => {
            Exit::Infrastructure
        }
        () if any(|one| one.error.is_some()) => Exit::Usage,
        () => Exit::Accepted,
    }
}
