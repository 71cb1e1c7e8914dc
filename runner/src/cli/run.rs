//! `sandbox-bench run`.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::models::{Chosen, ModelOptions};
use super::options::{self, BackendOptions, ConditionName, OutputFormat, Pair, RatesOption, TaskOptions};
use super::{report, table};
use crate::exit::{Exit, Fault};
use crate::plan::Order;
use crate::progress::Progress;
use crate::run::{self, Request};
use crate::say;
use crate::trial::Limits;
use crate::{interrupt, plan};

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    backends: BackendOptions,
    #[command(flatten)]
    tasks: TaskOptions,
    /// How sandboxes come to be, separated by commas.
    #[arg(short, long, value_enum, value_delimiter = ',', default_value = "cold", value_name = "CONDITION,…")]
    condition: Vec<ConditionName>,
    /// What does the tasks: none, gold (the reference solution), command:TEXT or command-file:PATH (a script run in the
    /// sandbox, with BENCH_TASK_ID, BENCH_TASK_FILE, BENCH_TASK_WORKDIR, BENCH_TASK_ENV_TYPE, BENCH_TASK_DOCKER_IMAGE), agent
    /// (a model behind a gateway, driven from the host), or replay:FILE (what `sandbox-bench record` wrote, or you did).
    #[arg(short, long, default_value = "gold")]
    solver: String,
    /// Trials of each task in each cell.
    #[arg(short, long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    replicates: u32,
    /// Order of the trials: interleaved, random or sequential.
    #[arg(long, default_value = "interleaved")]
    order: Order,
    /// Seed of the order.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Most trials at one time [default: 1 for comparable times].
    #[arg(short = 'j', long, default_value_t = 1, hide_default_value = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
    /// Most trials at one time on a backend, as NAME=N, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAME=N,…")]
    backend_concurrency: Vec<Pair<NonZeroU32>>,
    /// Most attempts of a trial. Only failures of the infrastructure are repeated; every attempt is kept.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    attempts: u32,
    /// Start no more trials after so many were accepted.
    #[arg(long, value_name = "N")]
    stop_after_passes: Option<NonZeroU64>,
    /// Host variables to give to a command or replay solver, separated by commas. Values of six bytes and more are overwritten where
    /// they show up in the output of commands or in the logs.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    forward_env: Vec<String>,
    /// Warm artifact to start from, as BACKEND=ID; may be repeated [default: the backend's variable, such as
    /// DOCKER_SNAPSHOT, then whatever fits at the backend, else one is made].
    #[arg(long, value_name = "BACKEND=ID")]
    artifact: Vec<Pair<String>>,
    /// Time limit of the solver in seconds [default: the task's].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    solver_timeout: Option<u64>,
    /// Time limit of the verifier in seconds [default: the task's].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    verifier_timeout: Option<u64>,
    /// Where the run directory is made.
    #[arg(long, default_value = "results", value_name = "DIR")]
    results: PathBuf,
    #[command(flatten)]
    rates: RatesOption,
    /// Print the plan and run nothing.
    #[arg(long)]
    dry_run: bool,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "text")]
    format: OutputFormat,
    /// Show no progress.
    #[arg(short, long)]
    quiet: bool,
    // Last: what follows would be under its heading.
    #[command(flatten)]
    models: ModelOptions,
}

impl RunArgs {
    fn request(&self) -> Result<Request, Fault> {
        let mut conditions = Vec::new();
        for condition in self.condition.iter().map(|name| (*name).into()) {
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
        let Chosen { solver, models, budget_usd } = self.models.choose(&self.solver)?;
        let backends = self.backends.names();
        options::only_for(
            "--backend-concurrency",
            self.backend_concurrency.iter().map(|Pair(name, _)| name),
            &backends,
        )?;
        options::only_for("--artifact", self.artifact.iter().map(|Pair(name, _)| name), &backends)?;
        Ok(Request {
            backends,
            tasks: self.tasks.selection()?,
            conditions,
            solver,
            models,
            replicates: self.replicates,
            order: self.order,
            seed: self.seed,
            concurrency: self.concurrency,
            backend_concurrency: self.backend_concurrency.iter().map(|Pair(name, n)| (name.clone(), n.get())).collect(),
            max_attempts: self.attempts,
            stop_after_passes: self.stop_after_passes.map(NonZeroU64::get),
            model_budget_usd: budget_usd,
            forward: self.forward_env.clone(),
            artifacts: BTreeMap::new(),
            limits: Limits {
                solve: self.solver_timeout.map(Duration::from_secs),
                verify: self.verifier_timeout.map(Duration::from_secs),
            },
            results: self.results.clone(),
        })
    }
}

/// Runs the command.
///
/// # Errors
/// The request is wrong, a backend does not answer, or the evidence cannot be written.
pub async fn run(args: RunArgs) -> Result<Exit, Fault> {
    let mut request = args.request()?;
    let config = args.backends.config()?;
    let rates = args.rates.card()?;
    let interrupt = interrupt::on_signals().map_err(Fault::infrastructure)?;
    let planned = run::plan(&request, &config).await?;
    request.artifacts = options::artifacts(&args.artifact, &planned.artifact_variables());
    for problem in &planned.problems {
        say::aside(format_args!("left out: {problem}"));
    }
    if args.dry_run {
        table::print_plan(&planned, &request, args.format)?;
        return Ok(Exit::Accepted);
    }
    let progress = Progress::new(&plan::by_backend(&planned.trials), args.quiet);
    let open = run::begin(&request, &planned, progress.clone(), interrupt).await?;
    let warm = run::prewarm(&request, &planned, &open, &progress, false).await;
    let ran = match warm {
        Ok(warm) => run::execute(&request, &planned, &open, warm, &progress).await,
        Err(fault) => Err(fault),
    };
    progress.end();
    let directory = open.directory.clone();
    let summary = run::finish(open, &rates).await;
    let summary = ran.and(summary).inspect_err(|_| {
        // The journal ends before the run did: only a look at the backends can tell what is left.
        say::aside(format_args!("next: make room, then sandbox-bench reap {}", directory.display()));
    })?;
    report::print(&summary, &directory, args.format, report::next(&summary, &directory))?;
    let exit = report::exit(&summary);
    // Who names tasks has chosen; who takes a whole data set must hear that it was not whole.
    if exit == Exit::Accepted && !planned.problems.is_empty() && request.tasks.include.is_empty() {
        return Ok(Exit::Rejected);
    }
    Ok(exit)
}
