//! Runs that other programs ran, as run directories of ours: `report` and `compare` then work on them.
//!
//! * [`csb`]: result, matrix and prewarm files of code-sandbox-bench, any number of them as one run;
//! * [`harbor`]: one or more job directories of Harbor as one run.
//!
//! What is promised: files are read as streams, result by result, in memory bounded by the largest result (which is
//! bounded) and a few numbers for each task; they are read to their end and checked before anything is written; the run
//! directory is complete or not there; equal files give equal run directories; nothing is claimed that the files do not
//! say. What has no place in our evidence is kept beside it, so that `export` can give it back.

pub mod csb;
mod directory;
mod error;
pub mod harbor;
mod json;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sandbox_bench_core::evidence::{
    DatasetRecord, Imported, ImportedFile, Listing, Manifest, PlanSettings, SCHEMA_VERSION,
};
use sandbox_bench_core::{BackendInfo, Capabilities, Condition, Digest};

pub use error::ImportError;

/// What the files do not say themselves.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The condition of files that tell none.
    pub condition: Option<Condition>,
    /// The data set of files that tell none.
    pub dataset: Option<String>,
}

/// Imports `sources` as one run below `results`, and returns its directory. Directories are Harbor jobs, files are those
/// of code-sandbox-bench.
///
/// # Errors
/// A source cannot be read or is nothing of the kind, they make no one run, or the run was imported before.
pub fn import(sources: &[PathBuf], options: &Options, results: &Path) -> Result<PathBuf, ImportError> {
    let directories = sources.iter().filter(|source| source.is_dir()).count();
    match directories {
        0 => csb::import(sources, options, results),
        n if n == sources.len() => harbor::import(sources, options, results),
        _ => Err(ImportError::Mixed {
            what: "forms".to_owned(),
            one: "files of code-sandbox-bench".to_owned(),
            other: "job directories of Harbor".to_owned(),
        }),
    }
}

/// What both forms tell of a run as a whole.
struct Whole {
    run: String,
    started_at: Timestamp,
    imported: Imported,
    backends: Vec<String>,
    conditions: Vec<Condition>,
    datasets: Vec<DatasetRecord>,
    models: Vec<String>,
    solver: String,
    replicates: u32,
    concurrency: u32,
    max_attempts: u32,
    trials: u64,
    left_out: Listing,
}

impl Whole {
    fn manifest(self) -> Manifest {
        let unknown = || "unknown".to_owned();
        let backend = |name: String| BackendInfo {
            name,
            adapter_version: unknown(),
            backend_version: None,
            api_version: None,
            endpoint: unknown(),
            region: None,
            architecture: unknown(),
            capabilities: Capabilities::default(),
        };
        Manifest {
            schema_version: SCHEMA_VERSION.into(),
            run: self.run,
            started_at: self.started_at,
            binary_version: env!("CARGO_PKG_VERSION").into(),
            binary_revision: crate::revision(),
            host: None,
            imported: Some(self.imported),
            backends: self.backends.into_iter().map(backend).collect(),
            datasets: self.datasets,
            solver: self.solver,
            plan: PlanSettings {
                conditions: self.conditions,
                replicates: self.replicates,
                order: "imported".into(),
                seed: 0,
                concurrency: self.concurrency,
                max_attempts: self.max_attempts,
                models: self.models,
                ..PlanSettings::default()
            },
            trials: self.trials,
            forwarded_env: Vec::new(),
            model_gateway: None,
            left_out: self.left_out,
            quarantined: Listing::default(),
        }
    }
}

/// The id of a run made from these files: the same for the same files.
fn run_id(form: &str, started_at: Timestamp, files: &[ImportedFile]) -> String {
    let all: Vec<String> = files.iter().map(|file| format!("{} {}", file.digest, file.name)).collect();
    format!("{form}-{}-{}", started_at.strftime("%Y%m%d"), Digest::of(all.join("\n").as_bytes()).short(8))
}

/// The name of a file, without directories.
fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// Adds `value` if it is not there yet.
fn add<T: PartialEq>(values: &mut Vec<T>, value: T) {
    if !values.contains(&value) {
        values.push(value);
    }
}
