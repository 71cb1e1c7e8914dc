//! Files of code-sandbox-bench: results of one provider and mode, a matrix that names such files, and what prewarm wrote.
//!
//! Older result files carry provider, mode and kind in their names alone. A result counts as rejected only if its
//! verifier ran and was not stopped by its limit; what ended before is a failure of the phase that it ended in.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use sandbox_bench_core::digest::Hasher;
use sandbox_bench_core::evidence::{
    Attempt, Cleanup, DatasetRecord, EnvironmentRecord, EnvironmentWay, Event, Failure, Imported, ImportedFile,
    Listing, SCHEMA_VERSION, TrialKey, Variant,
};
use sandbox_bench_core::{
    Artifact, Completion, Condition, ConditionProof, Decision, Digest, FailureClass, MeterReading, NetworkPolicy,
    OutputRef, Phase, PhaseSpan, Resources, Tag, TreeKill, Verdict,
};
use sandbox_bench_reports::csb::{ORIGINAL, PHASES, TAIL_CHARACTERS, TIMED_OUT, TaskResult, phase_of};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

use super::directory::RunDirectory;
use super::json::{self, Facts, Part};
use super::{ImportError, Options, Whole, add, name_of, run_id};

/// Imports these files as one run below `results`.
///
/// # Errors
/// As [`super::import`].
pub fn import(sources: &[PathBuf], options: &Options, results: &Path) -> Result<PathBuf, ImportError> {
    let mut collected = Collected::default();
    for source in sources {
        collected.add(source, options)?;
    }
    let Collected { files, others, artifacts, left_out, concurrency } = collected;
    if files.iter().all(|file| file.facts.results.unwrap_or(0) == 0) {
        let names: Vec<String> = sources.iter().map(|source| source.display().to_string()).collect();
        return Err(ImportError::Nothing(names.join(", ")));
    }
    let solver = one(&files, "solvers", |file| file.solver.clone())?;
    let started_at = files.iter().map(|file| file.date).min().unwrap_or(Timestamp::UNIX_EPOCH);
    let mut records: Vec<ImportedFile> =
        files.iter().map(ResultFile::record).chain(others.iter().map(|(_, record)| record.clone())).collect();
    let run = run_id("csb", started_at, &records);
    let mut directory = RunDirectory::begin(results, &run, started_at)?;
    for artifact in &artifacts {
        directory.event(Event::ArtifactReady { artifact: artifact.clone() })?;
    }
    let mut writer = Writer { run, directory, number: 0, seen: HashMap::new(), replicates: 1, tries: 1 };
    let mut tasks = Tasks::default();
    for (file, record) in files.iter().zip(&mut records) {
        let kept = writer.directory.keep("csb.run", file.kept.as_bytes(), "application/json")?;
        let artifact = artifacts.iter().find(|artifact| artifact.backend == file.backend);
        let again = json::read(&file.path, &mut |part| match part {
            Part::Member(..) => Ok(()),
            Part::Result(number, raw) => {
                let result: TaskResult = file.parse(number, &raw)?;
                tasks.add(&file.dataset, &result.task_id);
                writer.result(file, artifact, &result, &raw)
            }
        })?;
        if again != file.facts {
            return Err(ImportError::Changed(file.path.clone()));
        }
        record.kept = Some(kept.stored);
    }
    for ((path, _), record) in others.iter().zip(records.iter_mut().skip(files.len())) {
        let bytes = json::whole(path)?;
        if Digest::of(&bytes) != record.digest {
            return Err(ImportError::Changed(path.clone()));
        }
        record.kept = Some(writer.directory.keep("csb.file", &bytes, "application/json")?.stored);
    }
    let (mut backends, mut conditions) = (Vec::new(), Vec::new());
    for file in &files {
        add(&mut backends, file.backend.clone());
        add(&mut conditions, file.condition);
    }
    conditions.sort_unstable();
    let whole = Whole {
        run: writer.run.clone(),
        started_at,
        imported: Imported { from: "csb".to_owned(), timed: false, files: records },
        backends,
        conditions,
        datasets: tasks.records(),
        models: Vec::new(),
        solver,
        replicates: writer.replicates,
        concurrency,
        max_attempts: writer.tries,
        trials: writer.number,
        left_out,
    };
    writer.directory.finish(&whole.manifest())
}

/// What all files have in common.
fn one(files: &[ResultFile], what: &str, get: impl Fn(&ResultFile) -> String) -> Result<String, ImportError> {
    let mut values = files.iter().map(get);
    let first = values.next().unwrap_or_default();
    match values.find(|value| *value != first) {
        None => Ok(first),
        Some(other) => Err(ImportError::Mixed { what: what.to_owned(), one: first, other }),
    }
}

/// What the files say, once read.
#[derive(Default)]
struct Collected {
    files: Vec<ResultFile>,
    /// Files without results.
    others: Vec<(PathBuf, ImportedFile)>,
    artifacts: Vec<Artifact>,
    left_out: Listing,
    concurrency: u32,
}

/// A file of results.
struct ResultFile {
    path: PathBuf,
    facts: Facts,
    backend: String,
    condition: Condition,
    dataset: String,
    solver: String,
    runtime: Option<String>,
    date: Timestamp,
    /// Its members but the results, as a JSON object.
    kept: String,
}

/// The members that are read of any of the three kinds of files.
#[derive(Default, Deserialize)]
struct Header {
    provider: Option<String>,
    mode: Option<String>,
    kind: Option<String>,
    dataset: Option<String>,
    runtime: Option<String>,
    solver: Option<String>,
    solve_enabled: Option<bool>,
    task_count: Option<u64>,
    passed: Option<u64>,
    // Of a matrix.
    effective_task_concurrency_per_run: Option<BTreeMap<String, u32>>,
    // Of prewarm.
    profile: Option<String>,
    vercel_snapshot_id: Option<String>,
    snapshot_status: Option<String>,
    modal_image_id: Option<String>,
    daytona_snapshot: Option<String>,
    snapshot_state: Option<String>,
    env: Option<String>,
}

/// What tells a result from the entry of a matrix.
#[derive(Deserialize)]
struct Probe {
    task_id: Option<IgnoredAny>,
    output: Option<IgnoredAny>,
}

/// An entry of a matrix.
#[derive(Deserialize)]
struct Entry {
    provider: String,
    mode: String,
    output: PathBuf,
    exit_code: Option<i64>,
}

impl Collected {
    /// Reads and checks one file.
    fn add(&mut self, path: &Path, options: &Options) -> Result<(), ImportError> {
        let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
        let mut size = 0;
        let mut entries: Vec<Entry> = Vec::new();
        let (mut results, mut passed) = (0_u64, 0_u64);
        let facts = json::read(path, &mut |part| match part {
            Part::Member(name, value) => {
                size += (name.len() + value.get().len()) as u64;
                if size > json::LARGEST {
                    return Err(ImportError::TooLarge { path: path.to_owned(), at: size, limit: json::LARGEST });
                }
                members.push((name, value));
                Ok(())
            }
            Part::Result(number, raw) => {
                let probe: Probe = parse(path, number, &raw)?;
                if probe.task_id.is_none() && probe.output.is_some() {
                    entries.push(parse(path, number, &raw)?);
                    return Ok(());
                }
                let result: TaskResult = parse(path, number, &raw)?;
                if let Some(why) = result.fault() {
                    return Err(ImportError::Result { path: path.to_owned(), number, why });
                }
                results += 1;
                passed += u64::from(result.passed);
                Ok(())
            }
        })?;
        let kept = object(&members);
        let header: Header = serde_json::from_str(&kept).map_err(|error| ImportError::invalid(path, error))?;
        match () {
            () if !entries.is_empty() && results == 0 => self.matrix(path, &header, entries, &facts, options),
            () if facts.results.is_none() => self.prewarm(path, &header, &facts),
            () if header.provider.is_none() && Name::of(path).is_none() => Err(ImportError::Unknown(path.to_owned())),
            () => {
                for (what, told, found) in
                    [("task_count", header.task_count, results), ("passed", header.passed, passed)]
                {
                    if let Some(told) = told.filter(|told| *told != found) {
                        let why = format!("{what} says {told}, its results are {found}: it is not complete");
                        return Err(ImportError::invalid(path, why));
                    }
                }
                self.results(path, header, facts, kept, options)
            }
        }
    }

    fn results(
        &mut self,
        path: &Path,
        header: Header,
        facts: Facts,
        kept: String,
        options: &Options,
    ) -> Result<(), ImportError> {
        let name = Name::of(path);
        let told = header.mode.as_deref().map(|mode| condition(path, mode)).transpose()?;
        let condition = told.or(name.as_ref().map(|name| name.condition)).or(options.condition);
        let condition = condition.ok_or_else(|| ImportError::NoCondition(path.to_owned()))?;
        let provider = header.provider.or(name.as_ref().map(|name| name.provider.clone()));
        let provider = provider.ok_or_else(|| ImportError::Unknown(path.to_owned()))?;
        let kind = header.kind.as_deref().or(name.as_ref().and_then(|name| name.kind));
        let solves = header.solve_enabled.unwrap_or(kind == Some("solve"));
        let stem = |dataset: String| {
            let name = Path::new(&dataset).file_name().map(|name| name.to_string_lossy().into_owned());
            name.filter(|name| !name.is_empty()).unwrap_or(dataset)
        };
        let dataset = header.dataset.map(stem).or_else(|| options.dataset.clone());
        let date = match name.and_then(|name| name.date) {
            Some(date) => date,
            None => modified(path)?,
        };
        self.files.push(ResultFile {
            path: path.to_owned(),
            facts,
            backend: provider.replace('_', "-"),
            condition,
            dataset: dataset.unwrap_or_else(|| "code-sandbox-bench".to_owned()),
            solver: header.solver.unwrap_or_else(|| if solves { "command" } else { "none" }.to_owned()),
            runtime: header.runtime,
            date,
            kept,
        });
        Ok(())
    }

    /// The files that a matrix names lie beside it.
    fn matrix(
        &mut self,
        path: &Path,
        header: &Header,
        entries: Vec<Entry>,
        facts: &Facts,
        options: &Options,
    ) -> Result<(), ImportError> {
        let together = header.effective_task_concurrency_per_run.as_ref();
        self.concurrency = together.map_or(0, |each| each.values().fold(0, |sum, n| sum.saturating_add(*n)));
        self.without_results(path, facts);
        for entry in entries {
            let file = path.with_file_name(name_of(&entry.output));
            if file.is_file() {
                let options = Options { condition: Some(condition(path, &entry.mode)?), ..options.clone() };
                self.add(&file, &options)?;
            } else {
                let code = entry.exit_code.map_or_else(|| "unknown".to_owned(), |code| code.to_string());
                let Entry { provider, mode, .. } = entry;
                self.left_out.add(|| format!("{provider} {mode}: no result file, exit code {code}"));
            }
        }
        Ok(())
    }

    fn prewarm(&mut self, path: &Path, header: &Header, facts: &Facts) -> Result<(), ImportError> {
        let id = [&header.vercel_snapshot_id, &header.modal_image_id, &header.daytona_snapshot];
        let id = id.into_iter().flatten().next().cloned();
        // Of other providers, the line that reuses the artifact has its id.
        let id = id.or_else(|| Some(header.env.as_deref()?.split_once('=')?.1.to_owned()));
        let (Some(provider), Some(_), Some(id)) = (&header.provider, &header.profile, id) else {
            return Err(ImportError::Unknown(path.to_owned()));
        };
        let state = header.snapshot_status.as_deref().or(header.snapshot_state.as_deref());
        self.artifacts.push(Artifact {
            backend: provider.replace('_', "-"),
            id,
            tag: None,
            fingerprint: None,
            created_at: None,
            expires_at: None,
            size_bytes: None,
            ready: state.is_none_or(|state| ["created", "active"].contains(&state)),
        });
        self.without_results(path, facts);
        Ok(())
    }

    fn without_results(&mut self, path: &Path, facts: &Facts) {
        let (name, digest, size) = (name_of(path), facts.digest.clone(), facts.size);
        self.others.push((path.to_owned(), ImportedFile { name, digest, size, attempts: 0, kept: None }));
    }
}

fn parse<T: DeserializeOwned>(path: &Path, number: u64, raw: &RawValue) -> Result<T, ImportError> {
    let fault =
        |error: serde_json::Error| ImportError::Result { path: path.to_owned(), number, why: error.to_string() };
    serde_json::from_str(raw.get()).map_err(fault)
}

impl ResultFile {
    fn record(&self) -> ImportedFile {
        ImportedFile {
            name: name_of(&self.path),
            digest: self.facts.digest.clone(),
            size: self.facts.size,
            attempts: self.facts.results.unwrap_or(0),
            kept: None,
        }
    }

    fn parse<T: DeserializeOwned>(&self, number: u64, raw: &RawValue) -> Result<T, ImportError> {
        parse(&self.path, number, raw)
    }
}

/// The members as a JSON object, each value as it was written.
fn object(members: &[(String, Box<RawValue>)]) -> String {
    let lines: Vec<String> =
        members.iter().map(|(name, value)| format!("{}: {value}", serde_json::Value::from(name.as_str()))).collect();
    format!("{{{}}}", lines.join(",\n"))
}

fn condition(path: &Path, mode: &str) -> Result<Condition, ImportError> {
    match mode {
        "cold" => Ok(Condition::Cold),
        "warm" => Ok(Condition::Warm),
        // What `export` writes of runs of ours.
        "reuse" => Ok(Condition::Reuse),
        "resumed" => Ok(Condition::Resumed),
        other => Err(ImportError::invalid(path, format!("the mode {other:?} is neither cold nor warm"))),
    }
}

fn modified(path: &Path) -> Result<Timestamp, ImportError> {
    let modified = std::fs::metadata(path).and_then(|facts| facts.modified());
    let modified = modified.map_err(|error| ImportError::io(path, error))?;
    Ok(Timestamp::try_from(modified).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// What the name of a result file tells: `ts-<provider>-<mode>-<kind>-…-<YYYYMMDD>.json`.
struct Name {
    provider: String,
    condition: Condition,
    kind: Option<&'static str>,
    date: Option<Timestamp>,
}

impl Name {
    fn of(path: &Path) -> Option<Self> {
        let stem = path.file_stem()?.to_string_lossy().into_owned();
        let parts: Vec<&str> = stem.split('-').collect();
        let mode = parts.iter().position(|part| ["cold", "warm"].contains(part))?;
        let provider = parts.get(1..mode).filter(|provider| !provider.is_empty())?.join("-");
        let condition = if parts.get(mode) == Some(&"warm") { Condition::Warm } else { Condition::Cold };
        let kinds = ["solve", "verifier"];
        let kind = parts.get(mode + 1).and_then(|part| kinds.into_iter().find(|kind| kind == part));
        let date = parts.iter().rev().find_map(|part| {
            let date = (part.len() == 8).then(|| Date::strptime("%Y%m%d", part).ok())??;
            TimeZone::UTC.to_timestamp(date.to_datetime(Time::MIN)).ok()
        });
        Some(Self { provider, condition, kind, date })
    }
}

/// The tasks of each data set.
#[derive(Default)]
struct Tasks(BTreeMap<String, (HashSet<u64>, Hasher)>);

impl Tasks {
    fn add(&mut self, dataset: &str, task: &str) {
        let (known, digest) = self.0.entry(dataset.to_owned()).or_default();
        if known.insert(hash(&task)) {
            digest.update(task.as_bytes());
            digest.update(b"\n");
        }
    }

    fn records(self) -> Vec<DatasetRecord> {
        let record = |(name, (known, digest)): (String, (HashSet<u64>, Hasher))| DatasetRecord {
            name,
            digest: digest.finish(),
            tasks: known.len() as u64,
        };
        self.0.into_iter().map(record).collect()
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Writes results as attempts.
struct Writer {
    run: String,
    directory: RunDirectory,
    number: u64,
    /// How often each trial was seen, by its hash.
    seen: HashMap<u64, u32>,
    replicates: u32,
    tries: u32,
}

impl Writer {
    fn result(
        &mut self,
        file: &ResultFile,
        artifact: Option<&Artifact>,
        result: &TaskResult,
        raw: &RawValue,
    ) -> Result<(), ImportError> {
        self.number += 1;
        let task = &result.task_id;
        // A task that comes again, in this file or another of the same provider and mode, is a replicate.
        let seen = self.seen.entry(hash(&(&file.backend, file.condition, &file.dataset, task))).or_default();
        *seen += 1;
        let trial = TrialKey {
            backend: file.backend.clone(),
            condition: file.condition,
            dataset: file.dataset.clone(),
            task: task.clone(),
            replicate: *seen,
            model: None,
            variant: Variant::default(),
        };
        self.replicates = self.replicates.max(*seen);
        let tries = result.task_attempts.unwrap_or(1).max(1);
        self.tries = self.tries.max(tries);
        let spans = spans(result);
        let ended = Ended::of(result, &spans.spans);
        let archive = result.archive_sha256.as_deref().and_then(|hex| hex.parse().ok());
        let content = || Digest::of(format!("csb\n{}\n{task}", file.dataset).as_bytes());
        let mut warnings = spans.unknown;
        if tries > 1 {
            warnings.push(format!(
                "one of {tries} tries: the times of all are in the total, the phases are the last one's"
            ));
        }
        if file.condition == Condition::Warm && result.task_docker_image.is_some() {
            warnings
                .push("for tasks with an image of their own, the harness started warm runs as it did cold ones".into());
        }
        let attempt = Attempt {
            schema_version: SCHEMA_VERSION.into(),
            run: self.run.clone(),
            trial,
            attempt: tries,
            last: true,
            tag: Tag::new(&self.run, &self.number.to_string()),
            adapter_version: "unknown".into(),
            task_digest: archive.unwrap_or_else(content),
            started_at: file.date,
            total_us: micros(result.elapsed_seconds),
            sandbox: None,
            environment: environment(file, artifact, result),
            proof: Some(ConditionProof::Unproven { why: "the imported files hold no facts that prove it".into() }),
            freshness: None,
            phases: spans.spans,
            meter: MeterReading::default(),
            resolution_us: None,
            requested: Resources {
                cpus: result.task_cpu,
                memory_mb: result.task_memory_gb.map(mebibytes),
                disk_mb: result.task_disk_gb.map(mebibytes),
                ..Resources::default()
            },
            network: NetworkPolicy::Public,
            observation: None,
            solver: result.solve_return_code.map(completion),
            agent: None,
            replay: None,
            verifier: result.return_code.filter(|_| result.reached("verify")).map(completion),
            verdict: ended.verdict,
            failure: ended.failure,
            cleanup: Cleanup::Unconfirmed { why: "the imported files do not tell".into() },
            inputs: Vec::new(),
            outputs: self.outputs(result, raw)?,
            warnings,
        };
        self.directory.attempt(attempt)
    }

    /// The tails of the streams, and the result as it was.
    fn outputs(&self, result: &TaskResult, raw: &RawValue) -> Result<Vec<OutputRef>, ImportError> {
        let last = if result.reached("verify") { "verifier" } else { "last" };
        let streams = [
            ("solver.stdout".to_owned(), &result.solve_stdout_tail),
            ("solver.stderr".to_owned(), &result.solve_stderr_tail),
            (format!("{last}.stdout"), &result.stdout_tail),
            (format!("{last}.stderr"), &result.stderr_tail),
        ];
        let mut outputs = Vec::new();
        for (name, tail) in streams {
            let Some(tail) = tail.as_deref().filter(|tail| !tail.is_empty()) else { continue };
            let kept = self.directory.keep(&name, tail.as_bytes(), "text/plain")?;
            outputs.push(OutputRef { truncated: tail.encode_utf16().count() >= TAIL_CHARACTERS, ..kept });
        }
        outputs.push(self.directory.keep(ORIGINAL, raw.get().as_bytes(), "application/json")?);
        Ok(outputs)
    }
}

fn environment(file: &ResultFile, artifact: Option<&Artifact>, result: &TaskResult) -> Option<EnvironmentRecord> {
    let image = result.task_docker_image.as_ref().filter(|image| !image.is_empty());
    let artifact = artifact.filter(|_| file.condition == Condition::Warm && image.is_none());
    let (way, asked) = match (image, artifact) {
        (Some(image), _) => (EnvironmentWay::Image, image.clone()),
        (None, Some(artifact)) => (EnvironmentWay::Artifact, artifact.id.clone()),
        // The harness puts the task's files on one general image.
        (None, None) => (EnvironmentWay::Recipe, result.task_runtime.clone().or_else(|| file.runtime.clone())?),
    };
    let fingerprint = Digest::of(asked.as_bytes());
    Some(EnvironmentRecord { way, fingerprint, resolved: asked.clone(), asked, cache: None })
}

struct Spans {
    spans: Vec<PhaseSpan>,
    /// Phases that are not known here, in words.
    unknown: Vec<String>,
}

/// The phases one after the other, in the order of the harness. The last one that was reached is not ok unless the
/// verifier, or the end of the sandbox after it, was.
fn spans(result: &TaskResult) -> Spans {
    let mut spans: Vec<PhaseSpan> = Vec::new();
    let mut start_us = 0;
    for (name, phase) in PHASES {
        let Some(seconds) = result.phases.get(&format!("{name}_seconds")) else { continue };
        let duration_us = micros(*seconds);
        spans.push(PhaseSpan { phase, start_us, duration_us, guest_us: None, ok: true });
        start_us = start_us.saturating_add(duration_us);
    }
    let judged = result.reached("verify") && result.return_code != Some(TIMED_OUT);
    if !judged && let Some(last) = spans.iter_mut().rev().find(|span| span.phase != Phase::Destroy) {
        last.ok = false;
    }
    let unknown = result.phases.keys().filter(|name| phase_of(name).is_none());
    let unknown =
        unknown.map(|name| format!("{name} is no phase that is known here: it is in the total alone")).collect();
    Spans { spans, unknown }
}

struct Ended {
    verdict: Option<Verdict>,
    failure: Option<Failure>,
}

impl Ended {
    fn of(result: &TaskResult, spans: &[PhaseSpan]) -> Self {
        let code = result.return_code;
        let timed_out = code == Some(TIMED_OUT) && !result.passed;
        let last = spans.iter().rev().find(|span| span.phase != Phase::Destroy).map(|span| span.phase);
        let phase = last.unwrap_or(Phase::Create);
        let words = [&result.stderr_tail, &result.stdout_tail].into_iter().flatten();
        let words = words.filter_map(|text| text.trim().lines().next_back()).find(|line| !line.is_empty());
        let told = |what: &str| match words {
            Some(words) => format!("{what}: {}", words.chars().take(400).collect::<String>()),
            None => what.to_owned(),
        };
        let failure =
            |class, what: &str| Some(Failure { class, phase, message: told(what), error_kind: None, retryable: false });
        if timed_out {
            return Self { verdict: None, failure: failure(FailureClass::Timeout, "the time limit passed") };
        }
        if !result.passed && !result.reached("verify") {
            let class = match phase {
                Phase::Create => FailureClass::Startup,
                Phase::Prepare => FailureClass::Environment,
                Phase::Solve => FailureClass::Solver,
                _ => FailureClass::Transport,
            };
            return Self { verdict: None, failure: failure(class, "it ended before the verifier ran") };
        }
        let mut disagreements = Vec::new();
        match (result.passed, code) {
            (true, Some(code)) if code != 0 => disagreements.push(format!("the return code is {code}")),
            (false, Some(0)) => disagreements.push("the return code is 0".to_owned()),
            _ => {}
        }
        let verdict = Verdict {
            decision: if result.passed { Decision::Accepted } else { Decision::Rejected },
            decided_by: "exit_code".into(),
            rewards: BTreeMap::new(),
            exit_code: code.and_then(|code| i32::try_from(code).ok()),
            tests: None,
            disagreements,
            preseeded_reward: false,
        };
        let rejected = (!result.passed).then(|| failure(FailureClass::Rejected, "the verifier said no")).flatten();
        Self { verdict: Some(verdict), failure: rejected }
    }
}

fn completion(code: i64) -> Completion {
    match i32::try_from(code) {
        Ok(code) if i64::from(code) == TIMED_OUT => Completion::DeadlineExceeded { tree_killed: TreeKill::Unknown },
        Ok(code) => Completion::Exited { code },
        // No process exits with this: how it ended is not known.
        Err(_) => Completion::TransportLost,
    }
}

/// Checked before: no time is negative or longer than ten years.
fn micros(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

fn mebibytes(gib: f64) -> u64 {
    (gib * 1024.0).round() as u64
}
