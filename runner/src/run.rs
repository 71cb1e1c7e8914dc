//! A run from request to evidence: connect, read tasks, plan, prewarm, dispatch, derive.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use globset::{Glob, GlobSet, GlobSetBuilder};
use jiff::Timestamp;
use sandbox_bench_core::digest::Hasher;
use sandbox_bench_core::evidence::{
    Bounds, DatasetRecord, Event, Listing, Load, Manifest, PlanSettings, SCHEMA_VERSION, TrialKey,
};
use sandbox_bench_core::{Backend, Condition, Digest, Resources};
use sandbox_bench_datasets::{Dataset, Format, OpenOptions};
use sandbox_bench_reports::triage::{Listed, Quarantine};
use sandbox_bench_reports::{cost::RateCard, derived, files, summary::Summary};
use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::connect::{self, Backends};
use crate::dispatch::{self, Work};
use crate::environment::condition_unavailable;
use crate::exit::Fault;
use crate::host;
use crate::journal::Journal;
use crate::outputs::{OutputStore, Secrets};
use crate::pack::PackCache;
use crate::plan::{self, Matrix, Order, TaskName};
use crate::planned::{PlannedTask, Targets};
use crate::progress::Progress;
use crate::solver::Solver;
use crate::trial::{Context, Limits};
use crate::warm::{self, WarmSet};
use crate::ways::Missing;

/// The most trials of one plan: it is in memory whole.
const MOST_TRIALS: usize = 1_000_000;

/// A data set, and which of its tasks to take.
#[derive(Debug, Clone)]
pub struct DatasetChoice {
    /// `smoke`, or a path.
    pub path: String,
    /// The form, where it cannot be detected.
    pub format: Option<Format>,
    /// SWE-smith environments.
    pub environments: Option<PathBuf>,
    /// Globs on task ids; none takes all.
    pub include: Vec<String>,
    /// At most so many tasks.
    pub limit: Option<usize>,
}

/// Which tasks to take.
#[derive(Debug, Clone, Default)]
pub struct TaskSelection {
    /// The data sets.
    pub datasets: Vec<DatasetChoice>,
    /// Further globs on the ids of all tasks; none takes all.
    pub include: Vec<String>,
    /// Tasks to leave out.
    pub quarantine: Quarantine,
    /// A script that installs the solver's tools into each environment.
    pub install: Option<Bytes>,
}

/// Further dimensions of a plan, and how it is gone through.
#[derive(Debug, Clone, Default)]
pub struct Shape {
    /// Resource profiles by name; none leaves each task its own resources.
    pub profiles: BTreeMap<String, Resources>,
    /// Sizes in bytes of an extra input; none places none.
    pub input_bytes: Vec<u64>,
    /// Levels of concurrency; none leaves that of the request.
    pub levels: Vec<u32>,
    /// Trials of each task in each cell that are run first and counted nowhere.
    pub warm_up: u32,
    /// In which rhythm trials are launched.
    pub load: Load,
    /// What ends the run early.
    pub bounds: Bounds,
}

/// What is asked of a run.
#[derive(Debug, Clone)]
pub struct Request {
    /// Backend names.
    pub backends: Vec<String>,
    /// Tasks.
    pub tasks: TaskSelection,
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// The solver.
    pub solver: Solver,
    /// Models, a dimension of the plan; empty where the solver is none.
    pub models: Vec<String>,
    /// Further dimensions.
    pub shape: Shape,
    /// Replicates.
    pub replicates: u32,
    /// Order.
    pub order: Order,
    /// Seed of the order.
    pub seed: u64,
    /// Most trials at one time.
    pub concurrency: u32,
    /// … per backend.
    pub backend_concurrency: BTreeMap<String, u32>,
    /// Most attempts of a trial.
    pub max_attempts: u32,
    /// Stop after so many accepted trials.
    pub stop_after_passes: Option<u64>,
    /// Stop once the models have cost so many US dollars.
    pub model_budget_usd: Option<f64>,
    /// Names of host variables for the solver.
    pub forward: Vec<String>,
    /// Artifact ids by backend.
    pub artifacts: BTreeMap<String, Vec<String>>,
    /// Limits set by the user.
    pub limits: Limits,
    /// Where run directories go.
    pub results: PathBuf,
}

/// A run that was planned and not begun.
pub struct Plan {
    /// The run's id.
    pub run: String,
    /// The backends.
    pub backends: Backends,
    /// The tasks, by name.
    pub tasks: BTreeMap<TaskName, Arc<PlannedTask>>,
    /// The trials, in order.
    pub trials: Vec<TrialKey>,
    /// Tasks that are left out, and those that no longer are.
    pub apart: Apart,
    datasets: Vec<DatasetRecord>,
}

/// Tasks of the data sets that the plan does not simply take, in words.
#[derive(Debug, Clone, Default)]
pub struct Apart {
    /// Those that are not valid.
    pub problems: Vec<String>,
    /// Those in quarantine, with the reason.
    pub quarantined: Vec<String>,
    /// Those that were put into quarantine with another content, and are taken again.
    pub released: Vec<String>,
}

impl Apart {
    /// What a person is told of them before the run, a line each.
    pub fn told(&self) -> impl Iterator<Item = String> {
        let lines = |what: &'static str, tasks: &[String]| {
            tasks.iter().map(|task| format!("{what}: {task}")).collect::<Vec<_>>()
        };
        let of =
            [("left out", &self.problems), ("in quarantine", &self.quarantined), ("out of quarantine", &self.released)];
        of.into_iter().flat_map(move |(what, tasks)| lines(what, tasks))
    }

    /// The task, unless it is in quarantine.
    fn admit(&mut self, task: PlannedTask, quarantine: &Quarantine) -> Option<PlannedTask> {
        let name = format!("{}/{}", task.name.dataset, task.name.task);
        match quarantine.judge(&task.name.dataset, &task.name.task, &task.digest) {
            Listed::No => {}
            Listed::Yes(why) => {
                self.quarantined.push(format!("{name}: {why}"));
                return None;
            }
            Listed::OtherContent => self.released.push(format!("{name}: it has changed since it was listed")),
        }
        Some(task)
    }
}

impl Plan {
    /// Why the trial's backend has no sandboxes of its condition, or none if it has.
    #[must_use]
    pub fn condition_unavailable(&self, key: &TrialKey) -> Option<String> {
        condition_unavailable(key.condition, self.backends.get(&key.backend)?.info())
    }

    /// The environment variables that may name warm artifacts, by backend.
    #[must_use]
    pub fn artifact_variables(&self) -> BTreeMap<String, String> {
        let variable = |backend: &Arc<dyn Backend>| backend.info().capabilities.artifact_variable.clone();
        self.backends.iter().filter_map(|(name, backend)| Some((name.clone(), variable(backend)?))).collect()
    }
}

/// Connects, reads the tasks, and expands the matrix. Creates nothing anywhere.
///
/// # Errors
/// A backend does not answer, no task is valid, or there are too many trials.
pub async fn plan(request: &Request, config: &Config) -> Result<Plan, Fault> {
    let run = new_run_id();
    let backends = connect::connect(&request.backends, config, &run).await?;
    let mut tasks = BTreeMap::new();
    let mut names = Vec::new();
    let mut apart = Apart::default();
    let mut datasets = Vec::new();
    let mut unmatched = Globs::new(&request.tasks.include)?;
    let mut given: BTreeMap<String, &String> = BTreeMap::new();
    for choice in &request.tasks.datasets {
        let dataset = Arc::new(open(choice)?);
        if let Some(earlier) = given.insert(dataset.name().to_owned(), &choice.path) {
            return Err(named_twice(dataset.name(), earlier, &choice.path));
        }
        let on = Targets { backends: &backends, bases: &config.recipes };
        let mut own = Globs::new(&choice.include)?;
        let selected = read(&dataset, choice.limit, request, [&mut unmatched, &mut own], &on, &mut apart)?;
        own.check(choice.limit.is_none() || selected.is_empty())?;
        datasets.push(record(&dataset, &selected));
        names.extend(selected.iter().map(|task| task.name.clone()));
        tasks.extend(selected.into_iter().map(|task| (task.name.clone(), Arc::new(task))));
    }
    let complete = request.tasks.datasets.iter().all(|choice| choice.limit.is_none());
    unmatched.check(complete || tasks.is_empty())?;
    if tasks.is_empty() {
        let why = match (apart.problems.first(), apart.quarantined.first()) {
            (Some(problem), _) => problem.clone(),
            (None, Some(task)) => format!("all are in quarantine, such as {task}"),
            (None, None) => "none is named".to_owned(),
        };
        return Err(Fault::usage(anyhow!("no task can be run: {why}")));
    }
    let matrix = Matrix {
        backends: &request.backends,
        conditions: &request.conditions,
        models: &request.models,
        variants: &settings(request).variants(),
        tasks: &names,
        replicates: request.replicates,
        warm_up: request.shape.warm_up,
    };
    let size = matrix.size().filter(|trials| *trials <= MOST_TRIALS);
    size.ok_or_else(|| {
        Fault::usage(anyhow!(
            "the plan has more than {MOST_TRIALS} trials: fewer replicates, cells or tasks, or several runs (`report` takes many)"
        ))
    })?;
    let trials = plan::expand(&matrix, request.order, request.seed);
    Ok(Plan { run, backends, tasks, trials, apart, datasets })
}

/// Trials are told apart by the name of their data set, so two of one name cannot be in one run.
fn named_twice(name: &str, earlier: &str, path: &str) -> Fault {
    Fault::usage(if earlier == path {
        anyhow!("the data set {path} is named twice; name it once, and use --replicates to run its tasks again")
    } else {
        anyhow!("{earlier} and {path} are both called {name}; rename one of them, or run them one after the other")
    })
}

/// Opens a data set.
///
/// # Errors
/// It is not there or not readable.
pub fn open(choice: &DatasetChoice) -> Result<Dataset, Fault> {
    let mut options = OpenOptions::new(cache_dir()?);
    options.format = choice.format;
    options.environments.clone_from(&choice.environments);
    Dataset::open(&choice.path, options).map_err(Fault::usage)
}

fn read(
    dataset: &Arc<Dataset>,
    limit: Option<usize>,
    request: &Request,
    globs: [&mut Globs; 2],
    on: &Targets<'_>,
    apart: &mut Apart,
) -> Result<Vec<PlannedTask>, Fault> {
    let mut selected = Vec::new();
    let before = (apart.problems.len(), apart.quarantined.len());
    let [of_all, own] = globs;
    for entry in dataset.entries() {
        if limit.is_some_and(|limit| selected.len() >= limit) {
            break;
        }
        let planned = entry.and_then(|entry| {
            let install = request.tasks.install.as_ref();
            // Both look at every id, to know which of their globs select nothing.
            let wanted = [of_all.want(&entry.id), own.want(&entry.id)] == [true, true];
            wanted.then(|| PlannedTask::new(dataset, entry, on, &request.solver, install)).transpose()
        });
        match planned {
            Ok(Some(task)) => selected.extend(apart.admit(task, &request.tasks.quarantine)),
            Ok(None) => {}
            Err(problem) => apart.problems.push(problem.to_string()),
        }
    }
    let all_in_quarantine = selected.is_empty() && apart.quarantined.len() > before.1;
    if selected.is_empty() && !all_in_quarantine && request.tasks.include.is_empty() && own.patterns.is_empty() {
        let why = apart.problems.get(before.0).cloned().unwrap_or_else(|| "it holds no task".into());
        return Err(Fault::usage(anyhow!("data set {}: {why}", dataset.name())));
    }
    Ok(selected)
}

/// The globs of `--task`, and what came of each.
struct Globs {
    set: GlobSet,
    /// The patterns, and whether a task was found for each.
    patterns: Vec<(String, bool)>,
    /// Ids that are there, the first of them.
    seen: Vec<String>,
}

impl Globs {
    fn new(patterns: &[String]) -> Result<Self, Fault> {
        let mut builder = GlobSetBuilder::new();
        for pattern in patterns {
            builder.add(Glob::new(pattern).map_err(Fault::usage)?);
        }
        let set = builder.build().map_err(Fault::usage)?;
        Ok(Self { set, patterns: patterns.iter().map(|pattern| (pattern.clone(), false)).collect(), seen: Vec::new() })
    }

    /// True if the task is selected.
    fn want(&mut self, id: &str) -> bool {
        if self.seen.len() < 3 {
            self.seen.push(id.to_owned());
        }
        let matches = self.set.matches(id);
        for &index in &matches {
            if let Some((_, found)) = self.patterns.get_mut(index) {
                *found = true;
            }
        }
        self.patterns.is_empty() || !matches.is_empty()
    }

    /// Complains of globs that select nothing, if all tasks were looked at.
    fn check(&self, complete: bool) -> Result<(), Fault> {
        let vain: Vec<&str> =
            self.patterns.iter().filter(|(_, found)| !found).map(|(pattern, _)| pattern.as_str()).collect();
        if vain.is_empty() || !complete {
            return Ok(());
        }
        let there = if self.seen.is_empty() { "no valid task".to_owned() } else { self.seen.join(", ") };
        Err(Fault::usage(anyhow!("no task id matches {}; there are, among others: {there}", vain.join(", "))))
    }
}

fn record(dataset: &Dataset, tasks: &[PlannedTask]) -> DatasetRecord {
    let mut hasher = Hasher::default();
    for task in tasks {
        hasher.update(task.name.task.as_bytes());
        hasher.update(b"\0");
        hasher.update(task.digest.to_string().as_bytes());
        hasher.update(b"\n");
    }
    DatasetRecord { name: dataset.name().to_owned(), digest: hasher.finish(), tasks: tasks.len() as u64 }
}

/// The directory of unpacked tasks: `$XDG_CACHE_HOME/sandbox-bench`, else `~/.cache/sandbox-bench`.
///
/// # Errors
/// Neither variable is set.
pub fn cache_dir() -> Result<PathBuf, Fault> {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = from("XDG_CACHE_HOME").or_else(|| from("HOME").map(|home| home.join(".cache")));
    let base = base.ok_or_else(|| Fault::usage(anyhow!("neither XDG_CACHE_HOME nor HOME is set")))?;
    Ok(base.join("sandbox-bench"))
}

/// A new id for a run.
#[must_use]
pub fn new_run_id() -> String {
    let random = uuid::Uuid::now_v7().simple().to_string();
    format!("{}-{}", Timestamp::now().strftime("%Y%m%d-%H%M%S"), &random[random.len() - 4..])
}

/// An open run: its directory, and what its trials share.
pub struct Open {
    /// The run directory.
    pub directory: PathBuf,
    /// What its trials share.
    pub context: Arc<Context>,
}

/// Makes the run directory, writes the manifest, and begins the journal.
///
/// # Errors
/// The directory cannot be written, or a variable to forward is not set.
pub async fn begin(
    request: &Request,
    plan: &Plan,
    watch: Progress,
    interrupt: CancellationToken,
) -> Result<Open, Fault> {
    let forwarded = forwarded(&request.forward)?;
    let key = match &request.solver {
        Solver::Agent(agent) => agent.gateway.key(),
        _ => None,
    };
    let secrets = Secrets::new(forwarded.values().chain(key).map(ExposeSecret::expose_secret));
    let directory = request.results.join(&plan.run);
    let start = || -> anyhow::Result<(Journal, OutputStore, PackCache)> {
        std::fs::create_dir_all(&directory)?;
        files::replace_json(&directory.join("manifest.json"), &manifest(request, plan))?;
        Ok((Journal::create(&directory)?, OutputStore::open(&directory)?.hiding(secrets), PackCache::new(&directory)?))
    };
    let (journal, outputs, packs) =
        start().with_context(|| format!("run directory {}", directory.display())).map_err(Fault::evidence)?;
    let started = Event::RunStarted { run: plan.run.clone(), schema_version: SCHEMA_VERSION.into() };
    journal.commit(started).await.map_err(Fault::evidence)?;
    let context = Context {
        run: plan.run.clone(),
        directory: directory.clone(),
        journal,
        outputs,
        packs,
        solver: request.solver.clone(),
        forwarded,
        limits: request.limits,
        missing: Missing::default(),
        interrupt,
        watch: Arc::new(watch),
    };
    Ok(Open { directory, context: Arc::new(context) })
}

fn forwarded(names: &[String]) -> Result<BTreeMap<String, SecretString>, Fault> {
    names
        .iter()
        .map(|name| {
            let value = std::env::var(name).map_err(|_| {
                Fault::usage(anyhow!(
                    "--forward-env {name}: the variable is not set, or is not text; set it, or leave it out"
                ))
            })?;
            Ok((name.clone(), SecretString::from(value)))
        })
        .collect()
}

fn manifest(request: &Request, plan: &Plan) -> Manifest {
    Manifest {
        schema_version: SCHEMA_VERSION.into(),
        run: plan.run.clone(),
        started_at: Timestamp::now(),
        binary_version: env!("CARGO_PKG_VERSION").into(),
        binary_revision: crate::revision(),
        host: Some(host::describe()),
        imported: None,
        backends: plan.backends.values().map(|backend| backend.info().clone()).collect(),
        datasets: plan.datasets.clone(),
        solver: request.solver.to_string(),
        plan: settings(request),
        trials: plan.trials.iter().filter(|trial| !trial.is_warm_up()).count() as u64,
        forwarded_env: request.forward.clone(),
        model_gateway: match &request.solver {
            Solver::Agent(agent) => Some(agent.gateway.shown().to_owned()),
            _ => None,
        },
        left_out: Listing::of(&plan.apart.problems),
        quarantined: Listing::of(&plan.apart.quarantined),
    }
}

/// What the matrix is expanded from, as evidence has it.
#[must_use]
pub fn settings(request: &Request) -> PlanSettings {
    let Shape { profiles, input_bytes, levels, warm_up, load, bounds } = request.shape.clone();
    let several = [
        ("backend", request.backends.len()),
        ("condition", request.conditions.len()),
        ("model", request.models.len()),
        ("profile", profiles.len()),
        ("input size", input_bytes.len()),
        ("concurrency", levels.len()),
    ];
    PlanSettings {
        conditions: request.conditions.clone(),
        replicates: request.replicates,
        order: request.order.name().into(),
        seed: request.seed,
        concurrency: levels.iter().copied().max().unwrap_or(request.concurrency),
        backend_concurrency: request.backend_concurrency.clone(),
        max_attempts: request.max_attempts,
        stop_after_passes: request.stop_after_passes,
        models: request.models.clone(),
        model_budget_usd: request.model_budget_usd,
        solver_setup: request.tasks.install.as_deref().map(Digest::of),
        varies: several.into_iter().filter(|(_, values)| *values > 1).map(|(name, _)| name.to_owned()).collect(),
        profiles,
        input_bytes,
        concurrency_levels: levels,
        load,
        warm_up,
        bounds,
    }
}

/// Makes or finds the warm artifacts that the plan's trials need.
///
/// # Errors
/// The evidence cannot be written.
pub async fn prewarm(
    request: &Request,
    plan: &Plan,
    open: &Open,
    progress: &Progress,
    rebuild: bool,
) -> Result<WarmSet, Fault> {
    let named = plan.trials.iter().filter_map(|key| {
        let name = TaskName { dataset: key.dataset.clone(), task: key.task.clone() };
        Some((key, plan.tasks.get(&name)?.clone()))
    });
    let needs = warm::needs(named, &open.context.missing);
    warm::ensure(&open.context, &plan.backends, needs, &request.artifacts, rebuild, progress)
        .await
        .map_err(Fault::evidence)
}

/// Runs the plan's trials; `rates` say what they cost, where that may end the run.
///
/// # Errors
/// The evidence cannot be written.
pub async fn execute(
    request: &Request,
    plan: &Plan,
    open: &Open,
    warm: WarmSet,
    rates: &RateCard,
    progress: &Progress,
) -> Result<(), Fault> {
    let capped = |name: &String| plan.backends.get(name).and_then(|b| b.info().capabilities.max_concurrency);
    let limit = |name: &String| request.backend_concurrency.get(name).copied().or_else(|| capped(name));
    let work = Work {
        tasks: plan.tasks.clone(),
        backends: plan.backends.clone(),
        trials: plan.trials.clone(),
        warm,
        concurrency: request.concurrency as usize,
        backend_concurrency: plan
            .backends
            .keys()
            .filter_map(|name| Some((name.clone(), limit(name)? as usize)))
            .collect(),
        max_attempts: request.max_attempts,
        stop_after_passes: request.stop_after_passes,
        model_budget_usd: request.model_budget_usd,
        shape: request.shape.clone(),
        rates: rates.clone(),
    };
    dispatch::run(open.context.clone(), &work, progress).await.map_err(Fault::evidence)
}

/// Ends the journal and derives all files that follow from it, with costs estimated by `rates`.
///
/// # Errors
/// The evidence cannot be written.
pub async fn finish(open: Open, rates: &RateCard) -> Result<Summary, Fault> {
    let Open { directory, context } = open;
    let interrupted = context.interrupt.is_cancelled();
    let journal = context.journal.clone();
    drop(context);
    let ended = async {
        journal.commit(Event::RunFinished { interrupted }).await?;
        journal.close().await
    };
    ended.await.map_err(Fault::evidence)?;
    derive(&directory, rates)
}

/// Rebuilds all files of a run directory that follow from its journal, with costs estimated by `rates`.
///
/// # Errors
/// The evidence cannot be read or written.
pub fn derive(directory: &Path, rates: &RateCard) -> Result<Summary, Fault> {
    derived::write_derived(directory, rates).map_err(Fault::evidence)
}
