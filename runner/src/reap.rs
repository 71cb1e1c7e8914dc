//! Accounts for everything that dead runs created, and ends what is still there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use sandbox_bench_core::evidence::{CleanupEntry, CleanupState, Creates, Event};
use sandbox_bench_core::{Backend, Call, Destruction, Grants, SandboxRef, TagQuery};
use sandbox_bench_reports::cleanup;
use sandbox_bench_reports::cost::RateCard;
use sandbox_bench_reports::evidence::Run;

use crate::config::Config;
use crate::connect::{self, Backends};
use crate::exit::Fault;
use crate::journal::Journal;
use crate::{fixture, pack, run};

/// Limit for finding and ending one sandbox.
const REAP_LIMIT: Duration = Duration::from_secs(120);

/// What was done about one thing that a run created.
#[derive(Debug, Clone)]
pub struct Reaped {
    /// The run directory, or the backend for a sweep.
    pub origin: String,
    /// What it is, by tag.
    pub tag: String,
    /// Its backend.
    pub backend: String,
    /// Why it is not known to be gone; none if it is.
    pub left: Option<String>,
}

/// Ends what the run in `directory` left behind, and rebuilds its files.
///
/// # Errors
/// The run is still going on, or its journal cannot be read or written.
pub async fn run_directory(directory: &Path, config: &Config) -> Result<Vec<Reaped>, Fault> {
    let shown = directory.display();
    if Journal::in_use(directory).with_context(|| format!("run {shown}")).map_err(Fault::evidence)? {
        return Err(Fault::usage(anyhow!("run {shown} is still going on; wait for its end, or end it with Ctrl-C")));
    }
    let open = || -> anyhow::Result<(Vec<CleanupEntry>, Endpoints)> {
        let (entries, backends) = match fixture::is_fixture(directory) {
            true => (fixture::ledger(directory)?, fixture::backends(directory)?),
            false => {
                let run = Run::open(directory)?;
                (cleanup::ledger(run.journal()?)?, run.manifest.backends)
            }
        };
        let endpoints = backends.into_iter().map(|backend| (backend.name, backend.endpoint)).collect();
        Ok((entries.into_iter().filter(|entry| entry.state == CleanupState::Unconfirmed).collect(), endpoints))
    };
    let (entries, endpoints) = open().with_context(|| format!("run {shown}")).map_err(Fault::evidence)?;
    let mut reaped = Vec::new();
    if !entries.is_empty() {
        let journal = Journal::reopen(directory).map_err(Fault::evidence)?;
        let mut backends = Backends::new();
        for entry in entries {
            let endpoint = endpoints.get(&entry.backend).map(String::as_str);
            reaped.push(entry_of_run(&entry, (directory, endpoint), config, &mut backends, &journal).await?);
        }
        journal.close().await.map_err(Fault::evidence)?;
    }
    pack::remove_left_over(directory).map_err(Fault::evidence)?;
    if fixture::is_fixture(directory) {
        fixture::derive_files(directory)?;
    } else {
        run::derive(directory, &RateCard::named(None).map_err(Fault::infrastructure)?)?;
    }
    Ok(reaped)
}

/// Where each backend of a run was.
type Endpoints = BTreeMap<String, String>;

async fn entry_of_run(
    entry: &CleanupEntry,
    (directory, endpoint): (&Path, Option<&str>),
    config: &Config,
    backends: &mut Backends,
    journal: &Journal,
) -> Result<Reaped, Fault> {
    let line = |left| Reaped {
        origin: directory.display().to_string(),
        tag: entry.tag.to_string(),
        backend: entry.backend.clone(),
        left,
    };
    let backend = match backends.get(&entry.backend) {
        Some(backend) => backend.clone(),
        None => match connect::connect_one(&entry.backend, config, "reap").await {
            Ok(backend) => backends.entry(entry.backend.clone()).or_insert(backend).clone(),
            Err(error) => return Ok(line(Some(error.to_string()))),
        },
    };
    // Another installation knows nothing of the sandbox, and its silence would be taken for the end.
    let here = &backend.info().endpoint;
    if let Some(there) = endpoint.filter(|there| there != here) {
        return Ok(line(Some(format!("the run was at {there}, and this is {here}: set the same address and repeat"))));
    }
    let left = match entry.creates {
        Creates::Sandbox => sandbox(entry, &backend, journal).await,
        Creates::Artifact => artifact(entry, &backend, journal).await,
    };
    left.map(line).map_err(Fault::evidence)
}

/// Ends a sandbox by its id, if that is known, and whatever else carries its tag.
async fn sandbox(
    entry: &CleanupEntry,
    backend: &Arc<dyn Backend>,
    journal: &Journal,
) -> std::io::Result<Option<String>> {
    let call = call();
    let mut references = match backend.find(&call, &TagQuery::Exact(entry.tag.clone())).await {
        Ok(found) => found.into_iter().map(|found| found.reference).collect(),
        Err(error) if entry.id.is_none() => return Ok(Some(error.to_string())),
        Err(_) => Vec::new(),
    };
    let recorded = |id: &String| SandboxRef { backend: entry.backend.clone(), id: id.clone(), tag: entry.tag.clone() };
    match &entry.id {
        Some(id) if references.iter().all(|reference: &SandboxRef| reference.id != *id) => {
            references.push(recorded(id))
        }
        None if references.is_empty() => {
            journal.commit(nothing_found(entry)).await?;
            return Ok(None);
        }
        _ => {}
    }
    let mut left = None;
    for reference in references {
        let outcome = backend.destroy(&call, &reference).await;
        let outcome = outcome.unwrap_or_else(|error| Destruction::Unconfirmed { why: error.to_string() });
        if let Destruction::Unconfirmed { why } = &outcome {
            left = Some(why.clone());
        }
        journal.commit(Event::Destroyed { sandbox: reference, outcome }).await?;
    }
    Ok(left)
}

/// An artifact whose making was cut short is deleted if it is there; a finished one would have been journaled.
async fn artifact(
    entry: &CleanupEntry,
    backend: &Arc<dyn Backend>,
    journal: &Journal,
) -> std::io::Result<Option<String>> {
    let call = call();
    let found = match backend.artifacts(&call, &TagQuery::Exact(entry.tag.clone())).await {
        Ok(found) => found,
        Err(error) => return Ok(Some(error.to_string())),
    };
    if found.is_empty() {
        journal.commit(nothing_found(entry)).await?;
    }
    let mut left = None;
    for artifact in found {
        let outcome = backend.delete_artifact(&call, &artifact.id).await;
        let outcome = outcome.unwrap_or_else(|error| Destruction::Unconfirmed { why: error.to_string() });
        if let Destruction::Unconfirmed { why } = &outcome {
            left = Some(why.clone());
        }
        let reference = SandboxRef { backend: entry.backend.clone(), id: artifact.id, tag: entry.tag.clone() };
        journal.commit(Event::Destroyed { sandbox: reference, outcome }).await?;
    }
    Ok(left)
}

/// The backend lists nothing under the tag: the request had no lasting effect.
fn nothing_found(entry: &CleanupEntry) -> Event {
    Event::CreateFailed { tag: entry.tag.clone(), error: "nothing found by reap".into(), uncertain: false }
}

/// Ends every sandbox of ours at a backend, whichever run created it.
///
/// # Errors
/// The backend cannot be asked.
pub async fn sweep(name: &str, backend: &Arc<dyn Backend>) -> Result<Vec<Reaped>, Fault> {
    let call = call();
    let found = backend.find(&call, &TagQuery::All).await.map_err(Fault::infrastructure)?;
    let mut reaped = Vec::new();
    for one in found {
        let left = match backend.destroy(&call, &one.reference).await {
            Ok(Destruction::Confirmed) => None,
            Ok(Destruction::Unconfirmed { why }) => Some(why),
            Err(error) => Some(error.to_string()),
        };
        let tag = one.reference.tag.to_string();
        reaped.push(Reaped { origin: name.to_owned(), tag, backend: name.to_owned(), left });
    }
    Ok(reaped)
}

/// Run directories below `results`, by name.
///
/// # Errors
/// The directory cannot be read.
pub fn runs_below(results: &Path) -> Result<Vec<PathBuf>, Fault> {
    let read = || -> std::io::Result<Vec<PathBuf>> {
        let mut runs: Vec<PathBuf> = std::fs::read_dir(results)?
            .map(|entry| entry.map(|entry| entry.path()))
            .filter(|path| path.as_ref().map_or(true, |path| path.join("journal.jsonl").is_file()))
            .collect::<std::io::Result<_>>()?;
        runs.sort();
        Ok(runs)
    };
    match read() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.with_context(|| format!("results directory {}", results.display())).map_err(Fault::usage),
    }
}

fn call() -> Call {
    Call::new(sandbox_bench_core::Tag::new("reap", "control"), REAP_LIMIT, Arc::new(Grants::default()))
}
