//! `sandbox-bench prewarm`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::Args;
use sandbox_bench_core::{Artifact, Condition, FailureClass};
use sandbox_bench_reports::cost::RateCard;
use sandbox_bench_reports::files::replace_json;
use serde::Serialize;

use super::options::{BackendOptions, OutputFormat, TaskOptions};
use super::report;
use super::table::print_json;
use crate::exit::{Exit, Fault};
use crate::interrupt;
use crate::plan::Order;
use crate::progress::Progress;
use crate::run::{self, Plan, Request, Shape};
use crate::say;
use crate::solver::Solver;
use crate::trial::Limits;
use crate::warm::WarmSet;

#[derive(Debug, Args)]
pub struct PrewarmArgs {
    #[command(flatten)]
    backends: BackendOptions,
    #[command(flatten)]
    tasks: TaskOptions,
    /// For aws-microvm: bucket for build contexts [default: AWS_MICROVM_ARTIFACT_BUCKET].
    #[arg(long, value_name = "NAME")]
    aws_bucket: Option<String>,
    /// For aws-microvm: role that the service assumes to build images [default: AWS_MICROVM_BUILD_ROLE_ARN].
    #[arg(long, value_name = "ARN")]
    aws_build_role_arn: Option<String>,
    /// Make new artifacts also where fitting ones are there.
    #[arg(long)]
    rebuild: bool,
    /// Where the run directory is made.
    #[arg(long, default_value = "results", value_name = "DIR")]
    results: PathBuf,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "text")]
    format: OutputFormat,
    /// Show no progress.
    #[arg(short, long)]
    quiet: bool,
}

/// What prewarm made on one backend: printed, and stored as `prewarm-<backend>-<run>.json` in the run directory.
#[derive(Debug, Serialize)]
struct Prewarmed {
    backend: String,
    /// The variable that `run` reads, ready for a shell.
    env: Option<String>,
    artifacts: Vec<Made>,
    failures: Vec<String>,
    /// True if one of them is more than that the backend has no warm artifacts at all.
    #[serde(skip)]
    failed: bool,
}

#[derive(Debug, Serialize)]
struct Made {
    #[serde(flatten)]
    artifact: Artifact,
    /// How long it took to make, in microseconds; none if it was there already.
    built_us: Option<u64>,
}

/// Runs the command.
///
/// # Errors
/// The request is wrong, a backend does not answer, or the evidence cannot be written.
pub async fn run(args: PrewarmArgs) -> Result<Exit, Fault> {
    let mut config = args.backends.config()?;
    for (setting, value) in [("bucket", &args.aws_bucket), ("build_role_arn", &args.aws_build_role_arn)] {
        if let Some(value) = value {
            let table = config.backend.entry("aws-microvm".to_owned()).or_default();
            table.insert(setting.to_owned(), value.as_str().into());
        }
    }
    let request = request(&args, args.backends.chosen(&config).await?)?;
    let rates = RateCard::named(None).map_err(Fault::infrastructure)?;
    let interrupt = interrupt::on_signals().map_err(Fault::infrastructure)?;
    let plan = run::plan(&request, &config).await?;
    plan.apart.told().for_each(say::aside);
    let progress = Progress::new(&BTreeMap::new(), args.quiet);
    let open = run::begin(&request, &plan, progress.clone(), interrupt).await?;
    let directory = open.directory.clone();
    let warm = run::prewarm(&request, &plan, &open, &progress, args.rebuild).await;
    progress.end();
    let summary = run::finish(open, &rates).await;
    let warm = warm?;
    let summary = summary?;
    let made: Vec<Prewarmed> = plan.backends.keys().map(|name| prewarmed(name, &plan, &warm)).collect();
    for one in &made {
        let path = directory.join(format!("prewarm-{}-{}.json", one.backend, plan.run));
        replace_json(&path, one).with_context(|| path.display().to_string()).map_err(Fault::evidence)?;
    }
    match args.format {
        OutputFormat::Json => print_json(&made)?,
        OutputFormat::Text => print(&made)?,
    }
    if summary.cleanup.unconfirmed > 0 {
        say::aside(format_args!("next: sandbox-bench reap {}", directory.display()));
        return Ok(report::exit(&summary));
    }
    if summary.interrupted {
        return Ok(Exit::Interrupted);
    }
    let nothing = made.iter().all(|one| one.artifacts.is_empty());
    if nothing || made.iter().any(|one| one.failed) {
        return Err(Fault::infrastructure(anyhow!("some environments have no warm artifact")));
    }
    Ok(Exit::Accepted)
}

fn request(args: &PrewarmArgs, backends: Vec<String>) -> Result<Request, Fault> {
    Ok(Request {
        backends,
        tasks: args.tasks.selection()?,
        conditions: vec![Condition::Warm],
        solver: Solver::None,
        models: Vec::new(),
        // The tasks are there for their environments: no trial of them is planned.
        shape: Shape { warm_up: 1, ..Shape::default() },
        replicates: 0,
        order: Order::Sequential,
        seed: 0,
        concurrency: 1,
        backend_concurrency: BTreeMap::new(),
        max_attempts: 1,
        stop_after_passes: None,
        model_budget_usd: None,
        forward: Vec::new(),
        artifacts: BTreeMap::new(),
        limits: Limits::default(),
        results: args.results.clone(),
    })
}

fn prewarmed(name: &str, plan: &Plan, warm: &WarmSet) -> Prewarmed {
    let (ready, failed) = warm.by_backend(name);
    let ids: Vec<&str> = ready.iter().map(|one| one.artifact.id.as_str()).collect();
    let variable = plan.artifact_variables().remove(name);
    Prewarmed {
        backend: name.to_owned(),
        env: variable.filter(|_| !ids.is_empty()).map(|variable| format!("{variable}={}", ids.join(","))),
        artifacts: ready
            .into_iter()
            .map(|one| Made { artifact: one.artifact.clone(), built_us: one.built_us })
            .collect(),
        failed: failed.iter().any(|failure| failure.class != FailureClass::Unavailable),
        failures: failed.into_iter().map(|failure| failure.message.clone()).collect(),
    }
}

fn print(made: &[Prewarmed]) -> Result<(), Fault> {
    for one in made {
        let new = one.artifacts.iter().filter(|artifact| artifact.built_us.is_some()).count();
        let count = one.artifacts.len();
        let noun = if count == 1 { "artifact" } else { "artifacts" };
        say::result(format_args!("{}: {count} warm {noun}, {new} new", one.backend))?;
        if let Some(env) = &one.env {
            say::result(env)?;
        }
    }
    Ok(())
}
