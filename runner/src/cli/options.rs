//! Options that several commands share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::anyhow;
use bytes::Bytes;
use clap::{Args, ValueEnum};
use sandbox_bench_core::Condition;
use sandbox_bench_datasets::Format;
use sandbox_bench_reports::cost::RateCard;
use sandbox_bench_reports::triage::Quarantine;

use crate::config::Config;
use crate::connect;
use crate::exit::Fault;
use crate::plan_file::{DatasetPlan, DatasetTable};
use crate::run::{DatasetChoice, TaskSelection};
use crate::solver;

/// Which backends, and how they are configured.
#[derive(Debug, Args)]
pub struct BackendOptions {
    /// Backends, separated by commas; `all` takes every one that can be used.
    #[arg(short, long, value_delimiter = ',', value_name = "NAME,…", required = true)]
    pub backend: Vec<String>,
    /// Configuration of the backends [default: bench.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl BackendOptions {
    /// The names, each once, in the order given.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        distinct(&self.backend)
    }

    /// The names, with `all` replaced by every backend that can be used; those that cannot are told of.
    ///
    /// # Errors
    /// `all` stands among others, or none can be used.
    pub async fn chosen(&self, config: &Config) -> Result<Vec<String>, Fault> {
        connect::chosen(self.names(), config).await
    }

    /// The configuration.
    ///
    /// # Errors
    /// The file is not there or not valid.
    pub fn config(&self) -> Result<Config, Fault> {
        Config::read(self.config.as_deref()).map_err(Fault::usage)
    }
}

/// Each name once, in the order given.
#[must_use]
pub fn distinct(all: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in all.iter().map(|name| name.trim()) {
        if !name.is_empty() && !names.iter().any(|seen| seen == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// A data set of a plan; what the command line says of all data sets wins.
///
/// # Errors
/// Its form is unknown.
pub fn planned_dataset(planned: &DatasetPlan, filter: &TaskFilter) -> Result<DatasetChoice, Fault> {
    let table = match planned {
        DatasetPlan::Table(table) => table.clone(),
        DatasetPlan::Name(path) => DatasetTable::of(path),
    };
    let format = table.format.as_deref().map(str::parse).transpose();
    let format = format.map_err(|why| Fault::usage(anyhow!("plan: data set {}: {why}", table.path)))?;
    Ok(DatasetChoice {
        path: table.path,
        format: filter.dataset_format.or(format),
        environments: filter.environments.clone().or(table.environments),
        include: table.tasks,
        limit: filter.limit.map(|limit| limit as usize).or(table.limit),
    })
}

/// Which tasks.
#[derive(Debug, Args)]
pub struct TaskOptions {
    /// Data sets, separated by commas: `smoke` (bundled), a directory, or a .jsonl, .json, .parquet or .tar.gz file.
    #[arg(short, long, value_delimiter = ',', value_name = "NAME|PATH,…", required = true)]
    pub dataset: Vec<String>,
    #[command(flatten)]
    pub filter: TaskFilter,
}

impl TaskOptions {
    /// The selection that the options describe.
    ///
    /// # Errors
    /// The set-up script cannot be read.
    pub fn selection(&self) -> Result<TaskSelection, Fault> {
        self.filter.selection(&self.dataset)
    }
}

/// Which tasks of the data sets.
#[derive(Debug, Args)]
pub struct TaskFilter {
    /// Form of the data sets, where it is not to be detected.
    #[arg(long, value_name = "FORMAT")]
    pub dataset_format: Option<Format>,
    /// Environments of SWE-smith repositories: a directory with <repository key>/Dockerfile or swesmith_env_manifests.json,
    /// or a file of such manifests.
    #[arg(long, value_name = "PATH")]
    pub environments: Option<PathBuf>,
    /// Only tasks whose id matches one of these globs, separated by commas outside of braces; may be repeated.
    #[arg(short, long, value_name = "GLOB,…")]
    pub task: Vec<String>,
    /// At most so many tasks of each data set.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Leave out the tasks that this list names, as `sandbox-bench triage --quarantine` writes it.
    #[arg(long, value_name = "FILE")]
    pub quarantine: Option<PathBuf>,
    /// Script that installs the solver's own tools, run as root at the end of making each environment. Part of warm
    /// artifacts, so that `--condition warm` pays for it once.
    #[arg(long, value_name = "FILE")]
    pub solver_setup: Option<PathBuf>,
}

impl TaskFilter {
    /// These tasks of `datasets`.
    ///
    /// # Errors
    /// The set-up script or the quarantine list cannot be read.
    pub fn selection(&self, datasets: &[String]) -> Result<TaskSelection, Fault> {
        let dataset = |path: &String| DatasetChoice {
            path: path.clone(),
            format: self.dataset_format,
            environments: self.environments.clone(),
            include: Vec::new(),
            limit: self.limit.map(|limit| limit as usize),
        };
        let quarantine = self.quarantine.as_deref().map(Quarantine::read).transpose().map_err(Fault::usage)?;
        Ok(TaskSelection {
            datasets: datasets.iter().map(dataset).collect(),
            include: self.task.iter().flat_map(|globs| split_globs(globs)).collect(),
            quarantine: quarantine.unwrap_or_default(),
            install: self.solver_setup.as_deref().map(read_setup).transpose()?,
        })
    }
}

/// Reads the script that installs a solver's tools.
///
/// # Errors
/// It cannot be read.
pub fn read_setup(path: &Path) -> Result<Bytes, Fault> {
    solver::read_script(path).map_err(Fault::usage)
}

/// Splits at commas, but not within `{a,b}` or `[a,b]`.
fn split_globs(globs: &str) -> Vec<String> {
    let mut split = vec![String::new()];
    let (mut depth, mut escaped) = (0_usize, false);
    for c in globs.chars() {
        match c {
            ',' if depth == 0 && !escaped => {
                split.push(String::new());
                continue;
            }
            '{' | '[' if !escaped => depth += 1,
            '}' | ']' if !escaped => depth = depth.saturating_sub(1),
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        if let Some(last) = split.last_mut() {
            last.push(c);
        }
    }
    split.retain(|glob| !glob.trim().is_empty());
    split
}

/// By which prices costs are estimated.
#[derive(Debug, Args)]
pub struct RatesOption {
    /// Prices of the sandboxes: a file of the form of reports/src/cost/rates.toml, whose backends replace the built-in
    /// ones, or csb-compat for the formulas of code-sandbox-bench [default: the built-in list prices].
    #[arg(long, value_name = "FILE|csb-compat")]
    rates: Option<String>,
}

impl RatesOption {
    /// The rate card.
    ///
    /// # Errors
    /// The file cannot be read or is no rate card.
    pub fn card(&self) -> Result<RateCard, Fault> {
        RateCard::named(self.rates.as_deref()).map_err(Fault::usage)
    }
}

/// How a result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// A condition on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConditionName {
    /// A new sandbox, nothing task-specific reused but the image.
    Cold,
    /// A new sandbox from a warm artifact.
    Warm,
    /// The sandbox of the previous trial.
    Reuse,
    /// A new sandbox, suspended with its processes and resumed.
    Resumed,
}

impl From<ConditionName> for Condition {
    fn from(name: ConditionName) -> Self {
        match name {
            ConditionName::Cold => Self::Cold,
            ConditionName::Warm => Self::Warm,
            ConditionName::Reuse => Self::Reuse,
            ConditionName::Resumed => Self::Resumed,
        }
    }
}

/// Complains of an option for a backend that is not in the run.
///
/// # Errors
/// There is one.
pub fn only_for<'a>(
    option: &str,
    named: impl IntoIterator<Item = &'a String>,
    backends: &[String],
) -> Result<(), Fault> {
    match named.into_iter().find(|name| !backends.contains(name)) {
        None => Ok(()),
        Some(name) => Err(Fault::usage(anyhow!(
            "{option} is for the backend {name}, which is not in the run; its backends are: {}",
            backends.join(", ")
        ))),
    }
}

/// `NAME=VALUE` on the command line.
#[derive(Debug, Clone)]
pub struct Pair<T>(pub String, pub T);

impl<T: FromStr> FromStr for Pair<T>
where
    T::Err: std::fmt::Display,
{
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("expected NAME=VALUE, got {text:?}"))?;
        value.parse().map(|value| Self(name.to_owned(), value)).map_err(|e| format!("{name}: {e}"))
    }
}

/// Artifact ids by backend: those of the command line, else those of the backend's environment variable.
#[must_use]
pub fn artifacts(given: &[Pair<String>], variables: &BTreeMap<String, String>) -> BTreeMap<String, Vec<String>> {
    let mut artifacts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Pair(backend, id) in given {
        artifacts.entry(backend.clone()).or_default().push(id.clone());
    }
    for (backend, variable) in variables {
        if !artifacts.contains_key(backend)
            && let Ok(ids) = std::env::var(variable)
        {
            let ids = ids.split(',').map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned).collect();
            artifacts.insert(backend.clone(), ids);
        }
    }
    artifacts
}

#[cfg(test)]
mod tests {
    use super::split_globs;

    #[test]
    fn commas_within_braces_and_brackets_belong_to_the_glob() {
        for (given, globs) in [
            ("a,b*", vec!["a", "b*"]),
            ("task-{one,two}", vec!["task-{one,two}"]),
            ("{a,{b,c}}-1,d", vec!["{a,{b,c}}-1", "d"]),
            ("x[,;]y,z", vec!["x[,;]y", "z"]),
            ("a\\{b,c", vec!["a\\{b", "c"]),
            (",a,,", vec!["a"]),
        ] {
            assert_eq!(split_globs(given), globs, "{given}");
        }
    }
}
