//! Job directories of Harbor: `<job>/<trial>/result.json` and the verifier's output beside it.
//!
//! Their times are those of Harbor's phases: the start of the environment is our `create` (builds and pulls are in it),
//! the agent's set-up `prepare`, the agent `solve`. A trial that was not finished, or whose result cannot be read, is left
//! out and listed. Tokens and money of agents stay in the kept result.
//!
//! Source of the form: Harbor 0.26.0 (PyPI), `harbor.models.trial.result` and `.paths`, `harbor.models.trial.error_policy`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use sandbox_bench_core::evidence::{
    Attempt, Cleanup, DatasetRecord, Failure, Imported, ImportedFile, Listing, SCHEMA_VERSION, TrialKey, Variant,
};
use sandbox_bench_core::{
    Condition, ConditionProof, Decision, Digest, FailureClass, MeterReading, NetworkPolicy, OutputRef, Phase,
    PhaseSpan, Resources, Tag, Verdict,
};
use sandbox_bench_datasets::grading::reward;
use serde::{Deserialize, Deserializer};

use super::directory::RunDirectory;
use super::{ImportError, Options, Whole, add, name_of, run_id};

/// Largest result that is read: transcripts of agents may be in it.
const LARGEST: u64 = 64 << 20;
/// What is kept of a verifier's output.
const OUTPUT: u64 = 1 << 20;
/// The result of a trial, and of a job.
const RESULT: &str = "result.json";

/// Imports these job directories as one run below `results`.
///
/// # Errors
/// As [`super::import`].
pub fn import(jobs: &[PathBuf], options: &Options, results: &Path) -> Result<PathBuf, ImportError> {
    let mut left_out = Listing::default();
    let mut trials: Vec<(PathBuf, Digest, usize)> = Vec::new();
    let (mut facts, mut records) = (Facts::default(), Vec::new());
    for (job, directory) in jobs.iter().enumerate() {
        let before = trials.len();
        let mut size = 0;
        for path in trials_of(directory)? {
            match read(&path) {
                Ok((result, digest, bytes)) => {
                    size += bytes;
                    facts.add(&result, options);
                    trials.push((path, digest, job));
                }
                Err(why) => left_out.add(|| format!("{}: {why}", name_of(&path))),
            }
        }
        let digests: Vec<String> = trials.iter().skip(before).map(|(_, digest, _)| digest.to_string()).collect();
        records.push(ImportedFile {
            name: name_of(directory),
            digest: Digest::of(digests.join("\n").as_bytes()),
            size,
            attempts: digests.len() as u64,
            kept: None,
        });
    }
    if trials.is_empty() {
        let names: Vec<String> = jobs.iter().map(|job| job.display().to_string()).collect();
        let why = left_out.first.first().map(|first| format!(" ({first})")).unwrap_or_default();
        return Err(ImportError::Nothing(names.join(", ") + &why));
    }
    if let [one, other, ..] = facts.agents.iter().collect::<Vec<_>>().as_slice() {
        let (one, other) = ((*one).clone(), (*other).clone());
        return Err(ImportError::Mixed { what: "agents".to_owned(), one, other });
    }
    let started_at = facts.started_at.unwrap_or(Timestamp::UNIX_EPOCH);
    let run = run_id("harbor", started_at, &records);
    let mut writer = Writer {
        directory: RunDirectory::begin(results, &run, started_at)?,
        run,
        seen: HashMap::new(),
        replicates: 1,
        number: 0,
    };
    for (path, digest, _) in &trials {
        match read(path) {
            Ok((result, again, _)) if again == *digest => writer.trial(path, &result, options, started_at)?,
            _ => return Err(ImportError::Changed(path.join(RESULT))),
        }
    }
    let datasets = facts.tasks.into_iter().map(|(name, tasks)| DatasetRecord {
        name,
        digest: Digest::of(tasks.iter().cloned().collect::<Vec<_>>().join("\n").as_bytes()),
        tasks: tasks.len() as u64,
    });
    let whole = Whole {
        run: writer.run.clone(),
        started_at,
        imported: Imported { from: "harbor".to_owned(), timed: facts.timed, files: records },
        backends: facts.backends,
        conditions: vec![options.condition.unwrap_or(Condition::Cold)],
        datasets: datasets.collect(),
        models: facts.models,
        solver: facts.agents.into_iter().next().unwrap_or_else(|| "unknown".to_owned()),
        replicates: writer.replicates,
        concurrency: 0,
        max_attempts: 1,
        trials: trials.len() as u64,
        left_out,
    };
    writer.directory.finish(&whole.manifest())
}

/// What the manifest says of all trials.
#[derive(Default)]
struct Facts {
    started_at: Option<Timestamp>,
    timed: bool,
    agents: BTreeSet<String>,
    backends: Vec<String>,
    models: Vec<String>,
    tasks: BTreeMap<String, BTreeSet<String>>,
}

impl Facts {
    fn add(&mut self, result: &TrialResult, options: &Options) {
        if let Some(at) = result.started_at {
            self.timed = true;
            self.started_at = Some(self.started_at.map_or(at, |first| first.min(at)));
        }
        self.agents.insert(result.agent_info.name.clone());
        add(&mut self.backends, result.backend());
        if let Some(model) = result.model() {
            add(&mut self.models, model);
        }
        self.tasks.entry(result.dataset(options)).or_default().insert(result.task_name.clone());
    }
}

/// The directories of a job's trials, by name.
fn trials_of(job: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let entries = fs::read_dir(job).map_err(|error| ImportError::io(job, error))?;
    let mut trials = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| ImportError::io(job, error))?.path();
        // Each trial has its configuration from its start, and its result from its end.
        if path.join(RESULT).is_file() || path.join("config.json").is_file() {
            trials.push(path);
        }
    }
    trials.sort();
    match trials.is_empty() && !job.join(RESULT).is_file() {
        true => Err(ImportError::Unknown(job.to_owned())),
        false => Ok(trials),
    }
}

/// The result of a trial, its digest and its size.
fn read(trial: &Path) -> Result<(TrialResult, Digest, u64), String> {
    let file = File::open(trial.join(RESULT)).map_err(|_| "it has no result: it was not finished".to_owned())?;
    let mut text = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LARGEST {
        return Err(format!("its result has more than {LARGEST} bytes"));
    }
    let result = serde_json::from_slice(&text).map_err(|error| format!("its result cannot be read: {error}"))?;
    Ok((result, Digest::of(&text), text.len() as u64))
}

/// What is read of a trial's result.
#[derive(Deserialize)]
struct TrialResult {
    task_name: String,
    source: Option<String>,
    task_checksum: String,
    config: Config,
    agent_info: AgentInfo,
    verifier_result: Option<VerifierResult>,
    /// False if an exception means that the rewards say nothing of the work. Older versions do not tell.
    reward_valid: Option<bool>,
    exception_info: Option<ExceptionInfo>,
    #[serde(default, deserialize_with = "instant")]
    started_at: Option<Timestamp>,
    #[serde(default, deserialize_with = "instant")]
    finished_at: Option<Timestamp>,
    environment_setup: Option<Timing>,
    agent_setup: Option<Timing>,
    agent_execution: Option<Timing>,
    verifier: Option<Timing>,
    step_results: Option<Vec<Step>>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    environment: Environment,
}

#[derive(Default, Deserialize)]
struct Environment {
    #[serde(rename = "type")]
    kind: Option<String>,
    import_path: Option<String>,
    override_cpus: Option<f64>,
    override_memory_mb: Option<u64>,
    override_storage_mb: Option<u64>,
    override_gpus: Option<u32>,
}

#[derive(Deserialize)]
struct AgentInfo {
    name: String,
    model_info: Option<ModelInfo>,
}

#[derive(Deserialize)]
struct ModelInfo {
    name: String,
    provider: Option<String>,
}

#[derive(Deserialize)]
struct VerifierResult {
    rewards: Option<BTreeMap<String, f64>>,
}

#[derive(Deserialize)]
struct ExceptionInfo {
    exception_type: String,
    exception_message: String,
}

#[derive(Deserialize)]
struct Timing {
    #[serde(default, deserialize_with = "instant")]
    started_at: Option<Timestamp>,
    #[serde(default, deserialize_with = "instant")]
    finished_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Step {
    exception_info: Option<ExceptionInfo>,
    agent_execution: Option<Timing>,
    verifier: Option<Timing>,
}

/// An instant in RFC 3339; older files leave the offset out and mean UTC.
fn instant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let local = || text.parse::<DateTime>().and_then(|at| TimeZone::UTC.to_timestamp(at));
    text.parse().or_else(|_| local()).map(Some).map_err(serde::de::Error::custom)
}

impl TrialResult {
    fn backend(&self) -> String {
        let environment = &self.config.environment;
        environment.kind.clone().or(environment.import_path.clone()).unwrap_or_else(|| "unknown".to_owned())
    }

    fn model(&self) -> Option<String> {
        let model = self.agent_info.model_info.as_ref()?;
        Some(model.provider.as_ref().map_or_else(|| model.name.clone(), |by| format!("{by}/{}", model.name)))
    }

    fn dataset(&self, options: &Options) -> String {
        self.source.clone().or(options.dataset.clone()).unwrap_or_else(|| "adhoc".to_owned())
    }

    /// The exception that decides how the trial ended: the first one of a known class, else the first one.
    fn exception(&self) -> Option<(&ExceptionInfo, Option<FailureClass>)> {
        let steps = self.step_results.iter().flatten().filter_map(|step| step.exception_info.as_ref());
        let all = || self.exception_info.iter().chain(steps.clone()).map(|exception| (exception, exception.class()));
        all().find(|(_, class)| class.is_some()).or_else(|| all().next())
    }

    /// The phases, by their start, and the end of the last one in microseconds.
    fn spans(&self, origin: Timestamp) -> (Vec<PhaseSpan>, u64) {
        let after = |at: Timestamp| u64::try_from(at.as_microsecond() - origin.as_microsecond()).unwrap_or(0);
        let last = self.finished_at.map_or(0, after);
        let steps = self.step_results.iter().flatten();
        let of_steps = steps.flat_map(|step| [(Phase::Solve, &step.agent_execution), (Phase::Verify, &step.verifier)]);
        let own = [
            (Phase::Create, &self.environment_setup),
            (Phase::Prepare, &self.agent_setup),
            (Phase::Solve, &self.agent_execution),
            (Phase::Verify, &self.verifier),
        ];
        let mut spans: Vec<PhaseSpan> = own
            .into_iter()
            .chain(of_steps)
            .filter_map(|(phase, timing)| {
                let timing = timing.as_ref()?;
                let start_us = after(timing.started_at?);
                let end_us = timing.finished_at.map_or(last, after);
                let duration_us = end_us.saturating_sub(start_us);
                Some(PhaseSpan { phase, start_us, duration_us, guest_us: None, ok: timing.finished_at.is_some() })
            })
            .collect();
        spans.sort_by_key(|span| span.start_us);
        let end = spans.iter().map(|span| span.start_us.saturating_add(span.duration_us)).fold(last, u64::max);
        (spans, end)
    }
}

/// Exceptions after which rewards say nothing of the work, and their class here.
const CLASSES: [(FailureClass, &[&str]); 9] = [
    (FailureClass::Startup, &["EnvironmentStartTimeoutError", "VercelScopeError"]),
    (
        FailureClass::Environment,
        &["SandboxBuildFailedError", "HealthcheckError", "SandboxLikelyOutOfMemoryError", "MemoryLimitExceededError"],
    ),
    (
        FailureClass::Transport,
        &[
            "SSHAccessError",
            "GKEExecStreamClosedError",
            "GKEPodNotFoundError",
            "RuntimeRequestError",
            "AddTestsDirError",
            "DownloadVerifierDirError",
        ],
    ),
    (FailureClass::Timeout, &["VerifierTimeoutError"]),
    (
        FailureClass::Verifier,
        &["RewardFileNotFoundError", "RewardFileEmptyError", "VerifierOutputParseError", "RegradeError"],
    ),
    (FailureClass::Interrupted, &["CancelledError"]),
    (FailureClass::Unavailable, &["ServiceOperationsUnsupportedError", "MissingExtraError", "DspyImportError"]),
    (FailureClass::Solver, &["AgentSetupTimeoutError", "AgentAuthenticationError", "ModelNotFoundError"]),
    // The model's gateway refused or failed: the agent was never heard.
    (
        FailureClass::Solver,
        &[
            "ApiError",
            "ApiRateLimitError",
            "ApiInternalServerError",
            "ApiOverloadedError",
            "ApiConnectionClosedError",
            "ApiResponseStalledError",
            "UnknownApiError",
            "NetworkConnectionError",
            "ApiConnectionError",
            "ApiUsageLimitError",
            "RateLimitError",
            "InternalServerError",
            "ServiceUnavailableError",
            "APIConnectionError",
            "APIError",
            "Timeout",
            "UnsupportedModelParametersError",
            "BadRequestError",
            "UnprocessableEntityError",
            "UnsupportedParamsError",
            "APIResponseValidationError",
            "BudgetExceededError",
            "ApiProviderResourceNotFoundError",
            "AuthenticationError",
            "PermissionDeniedError",
            "NotFoundError",
        ],
    ),
];

impl ExceptionInfo {
    fn class(&self) -> Option<FailureClass> {
        let name = self.exception_type.as_str();
        CLASSES.iter().find(|(_, names)| names.contains(&name)).map(|(class, _)| *class)
    }
}

struct Writer {
    run: String,
    directory: RunDirectory,
    /// Replicates of each trial so far.
    seen: HashMap<(String, Option<String>, String, String), u32>,
    replicates: u32,
    number: u64,
}

impl Writer {
    fn trial(
        &mut self,
        path: &Path,
        result: &TrialResult,
        options: &Options,
        first: Timestamp,
    ) -> Result<(), ImportError> {
        self.number += 1;
        let (backend, model, dataset) = (result.backend(), result.model(), result.dataset(options));
        let task = result.task_name.clone();
        let seen = self.seen.entry((backend.clone(), model.clone(), dataset.clone(), task.clone())).or_default();
        *seen += 1;
        let replicate = *seen;
        self.replicates = self.replicates.max(replicate);
        let started_at = result.started_at.unwrap_or(first);
        let (phases, total_us) = result.spans(started_at);
        let (verdict, failure) = ended(result, &phases);
        let environment = &result.config.environment;
        let condition = options.condition.unwrap_or(Condition::Cold);
        let attempt = Attempt {
            schema_version: SCHEMA_VERSION.into(),
            run: self.run.clone(),
            trial: TrialKey { backend, condition, dataset, task, replicate, model, variant: Variant::default() },
            attempt: 1,
            last: true,
            tag: Tag::new(&self.run, &self.number.to_string()),
            adapter_version: "unknown".into(),
            task_digest: result.task_checksum.parse().unwrap_or_else(|_| Digest::of(result.task_checksum.as_bytes())),
            started_at,
            total_us,
            sandbox: None,
            environment: None,
            proof: Some(ConditionProof::Unproven { why: "the imported files hold no facts that prove it".into() }),
            freshness: None,
            phases,
            meter: MeterReading::default(),
            resolution_us: None,
            requested: Resources {
                cpus: environment.override_cpus,
                memory_mb: environment.override_memory_mb,
                disk_mb: environment.override_storage_mb,
                gpus: environment.override_gpus,
                ..Resources::default()
            },
            network: NetworkPolicy::Public,
            observation: None,
            solver: None,
            agent: None,
            replay: None,
            verifier: None,
            verdict,
            failure,
            cleanup: Cleanup::Unconfirmed { why: "the imported files do not tell".into() },
            inputs: Vec::new(),
            outputs: self.outputs(path)?,
            warnings: Vec::new(),
        };
        self.directory.attempt(attempt)
    }

    /// The verifier's output and the result as it was.
    fn outputs(&self, trial: &Path) -> Result<Vec<OutputRef>, ImportError> {
        let files = [
            ("verifier.stdout", "verifier/test-stdout.txt", "text/plain", OUTPUT),
            ("verifier.stderr", "verifier/test-stderr.txt", "text/plain", OUTPUT),
            ("exception", "exception.txt", "text/plain", OUTPUT),
            ("harbor.result", RESULT, "application/json", LARGEST),
        ];
        let mut outputs = Vec::new();
        for (name, file, media_type, limit) in files {
            let path = trial.join(file);
            let Ok(file) = File::open(&path) else { continue };
            let mut bytes = Vec::new();
            file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| ImportError::io(&path, error))?;
            let truncated = bytes.len() as u64 > limit;
            bytes.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            outputs.push(OutputRef { truncated, ..self.directory.keep(name, &bytes, media_type)? });
        }
        Ok(outputs)
    }
}

/// The verdict by the rewards, unless an exception says that they do not count.
fn ended(result: &TrialResult, phases: &[PhaseSpan]) -> (Option<Verdict>, Option<Failure>) {
    let (exception, class) = result.exception().unzip();
    let class = class.flatten();
    let last = phases.last().map_or(Phase::Create, |span| span.phase);
    let told = |exception: &ExceptionInfo| {
        let message: String = exception.exception_message.chars().take(400).collect();
        format!("{}: {}", exception.exception_type, message.trim())
    };
    let solved = phases.iter().any(|span| span.phase == Phase::Solve);
    let failure = |class, message: String| Failure {
        class,
        // What the solver left behind may have been graded all the same.
        phase: if class == FailureClass::Solver && solved { Phase::Solve } else { last },
        message,
        error_kind: exception.map(|exception| exception.exception_type.clone()),
        retryable: false,
    };
    let rewards = result.verifier_result.as_ref().and_then(|result| result.rewards.clone()).unwrap_or_default();
    match (exception, class) {
        (Some(exception), Some(class)) if result.reward_valid != Some(true) => {
            return (None, Some(failure(class, told(exception))));
        }
        (Some(exception), _) if rewards.is_empty() || result.reward_valid == Some(false) => {
            let class = match last {
                _ if exception.exception_type == "AgentTimeoutError" => FailureClass::Timeout,
                Phase::Create => FailureClass::Startup,
                Phase::Verify => FailureClass::Verifier,
                _ => FailureClass::Solver,
            };
            return (None, Some(failure(class, told(exception))));
        }
        _ => {}
    }
    let decision = if rewards.is_empty() { Decision::Undecided } else { reward::decide(&rewards) };
    let failure = match decision {
        Decision::Accepted => None,
        Decision::Rejected => Some(failure(FailureClass::Rejected, "the verifier said no".to_owned())),
        Decision::Undecided => {
            Some(failure(FailureClass::Verifier, "the verifier gave no word that decides".to_owned()))
        }
    };
    let verdict = Verdict {
        decision,
        decided_by: "reward".into(),
        rewards,
        exit_code: None,
        tests: None,
        disagreements: exception.map(told).into_iter().collect(),
        preseeded_reward: false,
    };
    (Some(verdict), failure)
}
