//! A run as result files of that harness: one for each backend, condition, model and replicate, as that harness has one for
//! each provider and mode. A run that was imported from such files gives the same files back: each result as it was.
//!
//! Attempts pass one at a time; kept is what failed attempts leave to the last one of their trial.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};

use sandbox_bench_core::evidence::{Attempt, Event, ImportedFile, TrialKey};
use sandbox_bench_core::{Completion, Condition, FailureClass, OutputRef};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{ORIGINAL, TAIL_CHARACTERS, TIMED_OUT, phases};
use crate::cost::{RateCard, RatesError, price};
use crate::evidence::{Entry, EvidenceError, Run};
use crate::files::Replacement;
use crate::summary::hash;

/// Files that are written at the same time.
const MOST_FILES: usize = 256;

/// No result or header that was kept is larger.
const MOST_BYTES: u64 = 64 << 20;

/// What was written.
#[derive(Debug, Default)]
pub struct Exported {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Results in them.
    pub results: u64,
    /// Trials that the run did not finish: they are in none.
    pub unfinished: u64,
}

/// Why a run cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The run cannot be read.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// The formulas of that harness cannot be used.
    #[error(transparent)]
    Rates(#[from] RatesError),
    /// A file cannot be written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The run has more cells and replicates than this form has files for.
    #[error(
        "the run would become more than {MOST_FILES} files of this form: its backends × conditions × models × replicates are too many"
    )]
    TooMany,
    /// What was kept of an imported result is gone or is not one.
    #[error("{path} is damaged: {why}; import the result files again")]
    Kept {
        /// The object.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// Writes the run into `directory`, which is made if it is not there.
///
/// # Errors
/// The run cannot be read, or a file cannot be written; files that were there before are then as they were.
pub fn write(run: &Run, directory: &Path) -> Result<Exported, ExportError> {
    fs::create_dir_all(directory).map_err(|source| ExportError::Io { path: directory.to_owned(), source })?;
    let imported = run.manifest.imported.as_ref().filter(|imported| imported.from == "csb");
    match imported {
        Some(imported) => write_back(run, &imported.files, directory),
        None => write_new(run, directory),
    }
}

/// One file in the making.
struct ResultFile {
    path: PathBuf,
    file: Replacement,
    results: u64,
    passed: u64,
    usd: f64,
}

impl ResultFile {
    /// Begins a file with these members, up to its results.
    fn begin<'a>(path: PathBuf, members: impl Iterator<Item = (&'a str, Box<RawValue>)>) -> Result<Self, ExportError> {
        let open = || {
            let mut file = Replacement::new(&path)?;
            file.write_all(b"{\n")?;
            for (name, value) in members {
                writeln!(file, "{}: {value},", serde_json::Value::from(name))?;
            }
            file.write_all(b"\"results\": [")?;
            Ok(file)
        };
        match open() {
            Ok(file) => Ok(Self { path, file, results: 0, passed: 0, usd: 0.0 }),
            Err(source) => Err(ExportError::Io { path, source }),
        }
    }

    fn result(&mut self, result: &impl Serialize) -> Result<(), ExportError> {
        let separator: &[u8] = if self.results == 0 { b"\n" } else { b",\n" };
        self.results += 1;
        let written = self.file.write_all(separator).and_then(|()| Ok(serde_json::to_writer(&mut self.file, result)?));
        written.map_err(|source| ExportError::Io { path: self.path.clone(), source })
    }

    fn end(mut self, trailer: &str) -> Result<(PathBuf, u64), ExportError> {
        let written = write!(self.file, "\n]{trailer}\n}}\n").and_then(|()| self.file.commit());
        match written {
            Ok(()) => Ok((self.path, self.results)),
            Err(source) => Err(ExportError::Io { path: self.path, source }),
        }
    }
}

/// The files that the run was imported from: those of results, then those that tell of them or of artifacts.
fn write_back(run: &Run, files: &[ImportedFile], directory: &Path) -> Result<Exported, ExportError> {
    let mut exported = Exported::default();
    let mut names = Names::default();
    let (with_results, others): (Vec<&ImportedFile>, Vec<&ImportedFile>) =
        files.iter().partition(|file| file.attempts > 0);
    let mut files = with_results.into_iter();
    let mut current: Option<(ResultFile, u64)> = None;
    for entry in run.journal()? {
        let Entry::Known(line) = entry? else { continue };
        let Event::AttemptFinished { attempt } = line.event else { continue };
        let (mut file, left) = match current.take() {
            Some(current) => current,
            None => match files.next() {
                Some(next) => (header(run, next, directory.join(names.of(next)))?, next.attempts),
                None => break,
            },
        };
        let original = attempt.outputs.iter().find(|output| output.name == ORIGINAL);
        let text = original.map(|output| kept(run, &output.stored)).transpose()?;
        let result: Option<Box<RawValue>> = text.and_then(|text| RawValue::from_string(text).ok());
        let damaged =
            || ExportError::Kept { path: run.dir().to_owned(), why: format!("result of {}", attempt.trial.task) };
        file.result(&result.ok_or_else(damaged)?)?;
        match left - 1 {
            0 => {
                let (path, results) = file.end("")?;
                exported.files.push(path);
                exported.results += results;
            }
            left => current = Some((file, left)),
        }
    }
    for file in others {
        // Runs that were imported before such files were kept do not have them.
        let Some(stored) = &file.kept else { continue };
        let (text, path) = (kept(run, stored)?, directory.join(names.of(file)));
        let write = || {
            let mut file = Replacement::new(&path)?;
            file.write_all(text.as_bytes())?;
            file.commit()
        };
        write().map_err(|source| ExportError::Io { path: path.clone(), source })?;
        exported.files.push(path);
    }
    Ok(exported)
}

/// Names of files in one directory, each once.
#[derive(Default)]
struct Names(HashSet<String>);

impl Names {
    /// The name that the file had, with a number if another one had it too.
    fn of(&mut self, file: &ImportedFile) -> String {
        // The name came with the manifest: only its last part is a name.
        let name = Path::new(&file.name).file_name().unwrap_or("results.json".as_ref()).to_string_lossy().into_owned();
        let stem = name.strip_suffix(".json").unwrap_or(&name);
        let numbered = (2..).map(|number: u64| format!("{stem}-{number}.json"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !self.0.contains(name));
        let free = free.unwrap_or(name);
        self.0.insert(free.clone());
        free
    }
}

/// Begins the file that `source` was, at `path`.
fn header(run: &Run, source: &ImportedFile, path: PathBuf) -> Result<ResultFile, ExportError> {
    let stored = source.kept.as_deref().unwrap_or_default();
    let text = kept(run, stored)?;
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&text)
        .map_err(|error| ExportError::Kept { path: run.dir().join(stored), why: error.to_string() })?;
    ResultFile::begin(path, members.iter().map(|(name, value)| (name.as_str(), value.clone())))
}

/// The text of an object of the run.
fn kept(run: &Run, stored: &str) -> Result<String, ExportError> {
    let damaged = |why: &str| ExportError::Kept { path: run.dir().join(stored), why: why.to_owned() };
    let path = inside(run.dir(), stored).ok_or_else(|| damaged("it is no path within the run"))?;
    let file = fs::File::open(&path).map_err(|error| damaged(&error.to_string()))?;
    let mut text = String::new();
    let read = file.take(MOST_BYTES).read_to_string(&mut text);
    read.map_err(|error| damaged(&error.to_string())).map(|_| text)
}

/// A path of the evidence within its run directory.
fn inside(run: &Path, stored: &str) -> Option<PathBuf> {
    let plain = Path::new(stored).components().all(|part| matches!(part, Component::Normal(_)));
    (plain && !stored.is_empty()).then(|| run.join(stored))
}

/// What a file is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FileKey {
    backend: String,
    condition: Condition,
    model: Option<String>,
    replicate: u32,
}

impl FileKey {
    fn of(trial: &TrialKey) -> Self {
        let TrialKey { backend, condition, model, replicate, .. } = trial.clone();
        Self { backend, condition, model, replicate }
    }
}

/// What the attempts before the last one leave to it.
#[derive(Default)]
struct Earlier {
    us: u64,
    usd: f64,
    errors: Vec<String>,
}

/// The files of a run of ours.
fn write_new(run: &Run, directory: &Path) -> Result<Exported, ExportError> {
    let rates = RateCard::named(Some("csb-compat"))?;
    let mut files: BTreeMap<FileKey, ResultFile> = BTreeMap::new();
    let mut earlier: HashMap<u64, Earlier> = HashMap::new();
    for entry in run.journal()? {
        let Entry::Known(line) = entry? else { continue };
        let Event::AttemptFinished { attempt } = line.event else { continue };
        if attempt.failure.as_ref().is_some_and(|failure| failure.class == FailureClass::Unavailable) {
            continue;
        }
        let usd = price(&attempt, &rates).and_then(|cost| cost.usd()).unwrap_or(0.0);
        let trial = hash(&attempt.trial);
        if !attempt.last {
            let so_far = earlier.entry(trial).or_default();
            so_far.us = so_far.us.saturating_add(attempt.total_us);
            so_far.usd += usd;
            so_far.errors.extend(attempt.failure.as_ref().map(|failure| failure.message.clone()));
            continue;
        }
        let so_far = earlier.remove(&trial).unwrap_or_default();
        let key = FileKey::of(&attempt.trial);
        if !files.contains_key(&key) {
            if files.len() == MOST_FILES {
                return Err(ExportError::TooMany);
            }
            files.insert(key.clone(), begin(run, &key, directory)?);
        }
        if let Some(file) = files.get_mut(&key) {
            let result = result(run, &attempt, &so_far, usd);
            file.passed += u64::from(result.passed);
            file.usd += result.estimated_cost_usd;
            file.result(&result)?;
        }
    }
    let mut exported = Exported { unfinished: earlier.len() as u64, ..Exported::default() };
    for file in files.into_values() {
        let (passed, tasks, usd) = (file.passed, file.results, file.usd);
        let trailer =
            format!(",\n\"task_count\": {tasks},\n\"passed\": {passed},\n\"estimated_cost_usd\": {}", number(usd));
        let (path, results) = file.end(&trailer)?;
        exported.files.push(path);
        exported.results += results;
    }
    Ok(exported)
}

fn number(value: f64) -> serde_json::Value {
    serde_json::Value::from(value)
}

fn begin(run: &Run, key: &FileKey, directory: &Path) -> Result<ResultFile, ExportError> {
    let manifest = &run.manifest;
    let solves = manifest.solver != "none";
    let kind = if solves { "solve" } else { "verifier" };
    let safe = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).take(100).collect()
    };
    let mut name =
        format!("ts-{}-{}-{kind}-all-{}", safe(&key.backend), key.condition, manifest.started_at.strftime("%Y%m%d"));
    if let Some(model) = &key.model {
        name += &format!("-{}", safe(model));
    }
    if manifest.plan.replicates > 1 {
        name += &format!("-r{}", key.replicate);
    }
    let datasets: Vec<&str> = manifest.datasets.iter().map(|dataset| dataset.name.as_str()).collect();
    let text = |value: &str| serde_json::value::to_raw_value(value).ok();
    let members = [
        ("provider", text(&key.backend)),
        ("mode", text(key.condition.name())),
        ("kind", text(kind)),
        ("dataset", text(&datasets.join(", "))),
        ("solve_enabled", serde_json::value::to_raw_value(&solves).ok()),
        ("solver", text(&manifest.solver)),
        ("model", key.model.as_deref().and_then(text)),
    ];
    let members = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
    ResultFile::begin(directory.join(name + ".json"), members)
}

/// A result of ours in that form.
#[derive(Debug, Serialize)]
struct NewResult {
    task_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_cpu: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_memory_gb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_disk_gb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_docker_image: Option<String>,
    passed: bool,
    return_code: i64,
    elapsed_seconds: f64,
    estimated_cost_usd: f64,
    phases: BTreeMap<String, f64>,
    stdout_tail: String,
    stderr_tail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    solve_return_code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    solve_elapsed_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    solve_stdout_tail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    solve_stderr_tail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_attempts: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    transient_retry_errors: Vec<String>,
}

fn result(run: &Run, attempt: &Attempt, earlier: &Earlier, usd: f64) -> NewResult {
    let code = |completion: &Completion| match completion {
        Completion::Exited { code } => i64::from(*code),
        Completion::Signalled { signal } => 128 + i64::from(*signal),
        Completion::DeadlineExceeded { .. } => TIMED_OUT,
        _ => 1,
    };
    let passed = attempt.accepted();
    let timed_out = attempt.failure.as_ref().is_some_and(|failure| failure.class == FailureClass::Timeout);
    // In that form the code is the verdict: a verifier that decides by a reward file may exit with 0 and say no.
    let return_code = match attempt.verifier.as_ref().map(code) {
        _ if passed => 0,
        _ if timed_out => TIMED_OUT,
        Some(0) | None => 1,
        Some(code) => code,
    };
    let tail = |name: &str| {
        let output = attempt.outputs.iter().rev().find(|output| output.name == name);
        output.and_then(|output| tail(run, output))
    };
    let gib = |mib: u64| mib as f64 / 1024.0;
    let told = phases(attempt);
    let solve = told.iter().find(|(name, _)| *name == "solve").map(|(_, us)| *us as f64 / 1e6);
    let solver = attempt.solver.as_ref().map(code);
    let message = attempt.failure.as_ref().map(|failure| failure.message.clone());
    NewResult {
        task_id: attempt.trial.task.clone(),
        task_cpu: attempt.requested.cpus,
        task_memory_gb: attempt.requested.memory_mb.map(gib),
        task_disk_gb: attempt.requested.disk_mb.map(gib),
        task_docker_image: attempt.environment.as_ref().map(|environment| environment.asked.clone()),
        passed,
        return_code,
        elapsed_seconds: earlier.us.saturating_add(attempt.total_us) as f64 / 1e6,
        estimated_cost_usd: earlier.usd + usd,
        phases: told.iter().map(|(name, us)| (format!("{name}_seconds"), *us as f64 / 1e6)).collect(),
        stdout_tail: tail("verifier.stdout").unwrap_or_default(),
        stderr_tail: tail("verifier.stderr").or(message).unwrap_or_default(),
        solve_return_code: solver,
        solve_elapsed_seconds: solve,
        solve_stdout_tail: solver.and_then(|_| tail("solver.stdout")),
        solve_stderr_tail: solver.and_then(|_| tail("solver.stderr")),
        task_attempts: (!earlier.errors.is_empty()).then_some(u64::from(attempt.attempt)),
        transient_retry_errors: earlier.errors.clone(),
    }
}

/// The last characters of an output that is there.
fn tail(run: &Run, output: &OutputRef) -> Option<String> {
    let mut file = fs::File::open(inside(run.dir(), &output.stored)?).ok()?;
    // A character has at most four bytes.
    let most = 4 * TAIL_CHARACTERS as u64;
    file.seek(SeekFrom::Start(output.size.saturating_sub(most))).ok()?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let start = text.char_indices().rev().nth(TAIL_CHARACTERS - 1).map_or(0, |(at, _)| at);
    text.get(start..).map(str::to_owned)
}
