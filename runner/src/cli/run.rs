//! `sandbox-bench run`.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use sandbox_bench_core::Condition;
use sandbox_bench_core::evidence::Bounds;
use sandbox_bench_reports::triage::Quarantine;

use super::estimate::Estimate;
use super::models::{Chosen, ModelOptions};
use super::options::{self, ConditionName, OutputFormat, Pair, RatesOption, TaskFilter};
use super::track::TrackOption;
use super::{report, table};
use crate::config::Config;
use crate::connect;
use crate::exit::{Exit, Fault};
use crate::plan::Order;
use crate::plan_file::{PlanFile, Size};
use crate::progress::Progress;
use crate::run::{self, Request, Shape, TaskSelection};
use crate::say;
use crate::trial::Limits;
use crate::{interrupt, plan};

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Backends, separated by commas; `all` takes every one that can be used.
    #[arg(short, long, value_delimiter = ',', value_name = "NAME,…", required_unless_present = "plan")]
    backend: Vec<String>,
    /// Configuration of the backends [default: the plan's file, or bench.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Take the run from the table [plan] of this file. What the command line says wins over it.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    plan: Option<PathBuf>,
    /// Data sets, separated by commas: `smoke` (bundled), a directory, or a .jsonl, .json, .parquet or .tar.gz file.
    #[arg(short, long, value_delimiter = ',', value_name = "NAME|PATH,…", required_unless_present = "plan")]
    dataset: Vec<String>,
    #[command(flatten)]
    filter: TaskFilter,
    /// How sandboxes come to be, separated by commas [default: cold].
    #[arg(short, long, value_enum, value_delimiter = ',', value_name = "CONDITION,…")]
    condition: Vec<ConditionName>,
    /// What does the tasks: none, gold (the reference solution), command:TEXT or command-file:PATH (a script run in the
    /// sandbox, with BENCH_TASK_ID, BENCH_TASK_FILE, BENCH_TASK_WORKDIR, BENCH_TASK_ENV_TYPE, BENCH_TASK_DOCKER_IMAGE), agent
    /// (a model behind a gateway, driven from the host), or replay:FILE (what `sandbox-bench record` wrote, or you did)
    /// [default: gold].
    #[arg(short, long)]
    solver: Option<String>,
    /// Trials of each task in each cell [default: 1].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    replicates: Option<u32>,
    /// Order of the trials: interleaved, random or sequential [default: interleaved].
    #[arg(long)]
    order: Option<Order>,
    /// Seed of the order [default: 1].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Most trials at one time [default: 1 for comparable times].
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: Option<u32>,
    /// Most trials at one time on a backend, as NAME=N, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAME=N,…")]
    backend_concurrency: Vec<Pair<NonZeroU32>>,
    /// Most attempts of a trial. Only failures of the infrastructure are repeated; every attempt is kept [default: 2].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    attempts: Option<u32>,
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
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_622_400))]
    solver_timeout: Option<u64>,
    /// Time limit of the verifier in seconds [default: the task's].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_622_400))]
    verifier_timeout: Option<u64>,
    /// Where the run directory is made.
    #[arg(long, default_value = "results", value_name = "DIR")]
    results: PathBuf,
    #[command(flatten)]
    rates: RatesOption,
    #[command(flatten)]
    track: TrackOption,
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
    /// The configuration, with the plan if there is one.
    fn configuration(&self) -> Result<Config, Fault> {
        let config = Config::read(self.plan.as_deref().or(self.config.as_deref())).map_err(Fault::usage)?;
        if let (Some(path), None) = (&self.plan, &config.plan) {
            return Err(Fault::usage(anyhow!("{}: it has no table [plan]", path.display())));
        }
        Ok(config)
    }

    /// The request: what the command line says, else what the plan says, else the usual.
    async fn request(&self, config: &Config) -> Result<Request, Fault> {
        let none = PlanFile::default();
        let plan = config.plan.as_ref().filter(|_| self.plan.is_some()).unwrap_or(&none);
        let named = if self.backend.is_empty() { &plan.backends } else { &self.backend };
        let backends = connect::chosen(options::distinct(named), config).await?;
        if backends.is_empty() {
            return Err(Fault::usage(anyhow!("no backend is named: --backend, or `backends` of the plan")));
        }
        let mut conditions = Vec::new();
        let named = self.condition.iter().map(|name| Condition::from(*name));
        let named: Vec<Condition> = if self.condition.is_empty() { plan.conditions.clone() } else { named.collect() };
        for condition in named {
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
        if conditions.is_empty() {
            conditions.push(Condition::Cold);
        }
        let solver = self.solver.as_deref().or(plan.solver.as_deref()).unwrap_or("gold");
        let Chosen { solver, models, budget_usd } = self.models.choose(solver, &plan.models, plan.stop.model_usd)?;
        let on_command_line = self.backend_concurrency.iter().map(|Pair(name, most)| (name.clone(), most.get()));
        let mut backend_concurrency = plan.backend_concurrency.clone();
        backend_concurrency.extend(on_command_line);
        options::only_for("--backend-concurrency", backend_concurrency.keys(), &backends)?;
        options::only_for("--artifact", self.artifact.iter().map(|Pair(name, _)| name), &backends)?;
        let order = match (&self.order, &plan.order) {
            (Some(order), _) => *order,
            (None, Some(text)) => text.parse().map_err(|why: String| Fault::usage(anyhow!(why)))?,
            (None, None) => Order::Interleaved,
        };
        let stop_after_passes = self.stop_after_passes.map(NonZeroU64::get).or(plan.stop.after_passes);
        let seconds = |given: Option<u64>, planned: Option<u64>| given.or(planned).map(Duration::from_secs);
        Ok(Request {
            backends,
            tasks: self.tasks(plan)?,
            conditions,
            solver,
            models,
            shape: self.shape(plan),
            replicates: self.replicates.or(plan.replicates).unwrap_or(1),
            order,
            seed: self.seed.or(plan.seed).unwrap_or(1),
            concurrency: self.concurrency.or(plan.levels().first().copied()).unwrap_or(1),
            backend_concurrency,
            max_attempts: self.attempts.or(plan.attempts).unwrap_or(2),
            stop_after_passes,
            model_budget_usd: budget_usd,
            forward: if self.forward_env.is_empty() { plan.forward_env.clone() } else { self.forward_env.clone() },
            artifacts: BTreeMap::new(),
            limits: Limits {
                solve: seconds(self.solver_timeout, plan.limits.solver_seconds),
                verify: seconds(self.verifier_timeout, plan.limits.verifier_seconds),
            },
            results: self.results.clone(),
        })
    }

    /// The tasks; filters of the command line hold for the data sets of the plan too.
    fn tasks(&self, plan: &PlanFile) -> Result<TaskSelection, Fault> {
        let mut tasks = self.filter.selection(&self.dataset)?;
        if tasks.datasets.is_empty() {
            let planned = plan.datasets.iter().map(|dataset| options::planned_dataset(dataset, &self.filter));
            tasks.datasets = planned.collect::<Result<_, _>>()?;
        }
        if tasks.datasets.is_empty() {
            return Err(Fault::usage(anyhow!("no data set is named: --dataset, or `datasets` of the plan")));
        }
        if tasks.install.is_none() {
            tasks.install = plan.solver_setup.as_deref().map(options::read_setup).transpose()?;
        }
        if let (None, Some(list)) = (&self.filter.quarantine, &plan.quarantine) {
            tasks.quarantine = Quarantine::read(list).map_err(Fault::usage)?;
        }
        Ok(tasks)
    }

    fn shape(&self, plan: &PlanFile) -> Shape {
        // One level is no dimension.
        let levels = if self.concurrency.is_some() { Vec::new() } else { plan.levels() };
        Shape {
            profiles: plan.profiles.iter().map(|(name, profile)| (name.clone(), profile.clone().into())).collect(),
            input_bytes: plan.input_sizes.iter().map(|Size(bytes)| *bytes).collect(),
            levels: if levels.len() > 1 { levels } else { Vec::new() },
            warm_up: plan.warm_up,
            load: plan.load,
            bounds: Bounds {
                usd: plan.stop.usd,
                seconds: plan.stop.minutes.map(|minutes| (minutes * 60.0).ceil() as u64),
                interval: plan.stop.interval,
            },
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The request is wrong, a backend does not answer, or the evidence cannot be written.
pub async fn run(args: RunArgs) -> Result<Exit, Fault> {
    let config = args.configuration()?;
    let mut request = args.request(&config).await?;
    let rates = args.rates.card()?;
    let tracking = args.track.tracking(&config)?;
    let interrupt = interrupt::on_signals().map_err(Fault::infrastructure)?;
    let planned = run::plan(&request, &config).await?;
    request.artifacts = options::artifacts(&args.artifact, &planned.artifact_variables());
    planned.apart.told().for_each(say::aside);
    if args.dry_run {
        let estimate = Estimate::of(&planned, &request, &rates);
        table::print_plan(&planned, &request, &estimate, args.format)?;
        return Ok(Exit::Accepted);
    }
    let progress = Progress::new(&plan::by_backend(&planned.trials), args.quiet);
    let open = run::begin(&request, &planned, progress.clone(), interrupt).await?;
    if let Some(tracking) = &tracking {
        tracking.begin(&open.directory);
    }
    let warm = run::prewarm(&request, &planned, &open, &progress, false).await;
    let ran = match warm {
        Ok(warm) => run::execute(&request, &planned, &open, warm, &rates, &progress).await,
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
    if let Some(tracking) = tracking {
        report::write_page(&directory);
        tracking.finish(&directory).await;
    }
    let exit = report::exit(&summary);
    // Who names tasks has chosen; who takes a whole data set must hear that it was not whole.
    if exit == Exit::Accepted && !planned.apart.problems.is_empty() && whole_datasets(&request.tasks) {
        return Ok(Exit::Rejected);
    }
    Ok(exit)
}

/// True if every task of every data set was asked for.
fn whole_datasets(tasks: &TaskSelection) -> bool {
    tasks.include.is_empty() && tasks.datasets.iter().all(|choice| choice.include.is_empty())
}
