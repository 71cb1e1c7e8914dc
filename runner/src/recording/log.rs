//! Keeps the steps of an attempt, and gathers those of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use globset::Glob;
use sandbox_bench_core::evidence::{Attempt, Event};
use sandbox_bench_core::{Digest, Input, OutputRef, Payload};
use sandbox_bench_reports::evidence::{Entry, Run as EvidenceRun};

use super::step::{Put, Run, Step};
use super::{OUTPUT, Recording, TaskSteps};

/// Most bytes of the solver's own files that are kept with an attempt.
const MAX_FILES: u64 = 4 << 20;

/// The steps of an attempt in the making.
#[derive(Debug, Default)]
pub struct StepLog {
    steps: Vec<Step>,
    gap: Option<String>,
}

impl StepLog {
    /// A command ran; `run` says what came of it.
    pub fn ran(&mut self, run: Run) {
        self.steps.push(Step::Run(run));
    }

    /// The solver's material was placed. Where it cannot be part of a recording, there will be none.
    pub fn placed(&mut self, inputs: &[Input]) {
        let size: u64 = inputs.iter().map(|input| input.entry.size).sum();
        if size > MAX_FILES {
            return self.gap(format!("the solver's files have {size} bytes; recordings hold {MAX_FILES}"));
        }
        for input in inputs {
            match puts(input) {
                Ok(puts) => self.steps.extend(puts.into_iter().map(Step::Put)),
                Err(error) => self.gap(format!("{}: {error}", input.entry.name)),
            }
        }
    }

    /// Something was done that cannot be part of a recording.
    pub fn gap(&mut self, why: impl Into<String>) {
        self.gap.get_or_insert(why.into());
    }

    /// The steps as JSON, if they are all that was done.
    #[must_use]
    pub fn json(&self) -> Option<String> {
        (self.gap.is_none() && !self.steps.is_empty()).then(|| serde_json::to_string(&self.steps).ok()).flatten()
    }
}

/// The files of an input.
fn puts(input: &Input) -> io::Result<Vec<Put>> {
    let path = &input.entry.destination;
    match &input.payload {
        Payload::Bytes { bytes, mode } => Ok(vec![Put::new(path, bytes, mode & 0o111 != 0)]),
        Payload::File { path: host, mode } => Ok(vec![Put::new(path, &fs::read(host)?, mode & 0o111 != 0)]),
        Payload::Tree { tar } => tree(path, tar),
    }
}

fn tree(destination: &str, tar: &Path) -> io::Result<Vec<Put>> {
    let mut puts = Vec::new();
    for entry in tar::Archive::new(File::open(tar)?).entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let inner = entry.path()?.to_string_lossy().into_owned();
        if kind.is_dir() {
            continue;
        }
        if !kind.is_file() {
            return Err(io::Error::other(format!("{inner} is a link, which a recording has no step for")));
        }
        let executable = entry.header().mode()? & 0o111 != 0;
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        puts.push(Put::new(&format!("{}/{inner}", destination.trim_end_matches('/')), &content, executable));
    }
    Ok(puts)
}

/// The attempts of a run at tasks whose ids match `pattern`, with their output `name`: of each task the first accepted
/// attempt that has it, else the last one.
///
/// # Errors
/// The run cannot be read, no task matches, or no matching attempt has the output.
pub fn find(run: &EvidenceRun, pattern: &str, name: &str) -> anyhow::Result<Vec<(Attempt, OutputRef)>> {
    let matcher = Glob::new(pattern).with_context(|| format!("{pattern:?} is no glob"))?.compile_matcher();
    let mut found: BTreeMap<(String, String), (Attempt, OutputRef)> = BTreeMap::new();
    let (mut matched, mut seen) = (false, BTreeSet::new());
    for entry in run.journal()? {
        let Entry::Known(line) = entry? else { continue };
        let Event::AttemptFinished { attempt } = line.event else { continue };
        let key = (attempt.trial.dataset.clone(), attempt.trial.task.clone());
        if !matcher.is_match(&key.1) {
            if seen.len() < 5 {
                seen.insert(key.1);
            }
            continue;
        }
        matched = true;
        let Some(output) = attempt.outputs.iter().find(|output| output.name == name).cloned() else { continue };
        if !found.get(&key).is_some_and(|(best, _)| best.accepted()) {
            found.insert(key, (*attempt, output));
        }
    }
    if !matched {
        let seen: Vec<String> = seen.into_iter().collect();
        bail!("no attempt at a task {pattern:?}; there are, among others: {}", seen.join(", "));
    }
    if found.is_empty() {
        bail!("no attempt at a task {pattern:?} has the output {name}; the solver was {}", run.manifest.solver);
    }
    Ok(found.into_values().collect())
}

/// The bytes of an output of a run.
///
/// # Errors
/// It cannot be read, or is not what its digest says.
pub fn content(run: &EvidenceRun, output: &OutputRef) -> anyhow::Result<Vec<u8>> {
    let path = run.dir().join(&output.stored);
    let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
    if Digest::of(&bytes) != output.digest {
        bail!("{} is not what its digest says: the run directory is damaged", path.display());
    }
    Ok(bytes)
}

/// The recording of the tasks of a run whose ids match `pattern`.
///
/// # Errors
/// As [`find`] and [`content`].
pub fn record(run: &EvidenceRun, pattern: &str) -> anyhow::Result<Recording> {
    let found = find(run, pattern, OUTPUT)?;
    let tasks = found.iter().map(|(attempt, output)| steps(run, attempt, output));
    Ok(Recording { tasks: tasks.collect::<anyhow::Result<_>>()? })
}

fn steps(run: &EvidenceRun, attempt: &Attempt, output: &OutputRef) -> anyhow::Result<TaskSteps> {
    let key = &attempt.trial;
    let manifest = &run.manifest;
    let steps = serde_json::from_slice(&content(run, output)?).with_context(|| format!("steps of {}", key.task))?;
    let backend = manifest.backends.iter().find(|backend| backend.name == key.backend);
    let model = key.model.as_ref().map(|model| format!(" {model}")).unwrap_or_default();
    let from = format!("run {}, {} {}, solver {}{model}", manifest.run, key.backend, key.condition, manifest.solver);
    Ok(TaskSteps {
        dataset: Some(key.dataset.clone()),
        task: key.task.clone(),
        from: Some(from),
        separate_streams: backend.is_some_and(|backend| backend.capabilities.separate_streams),
        steps,
    })
}
