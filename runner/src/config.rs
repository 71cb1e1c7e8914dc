//! `bench.toml`: settings of the backends and trackers, and a plan if there is one. What the command line says wins. Described for
//! users in `docs/configuration.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use sandbox_bench_registry::{KNOWN, TRACKERS};
use serde::Deserialize;

use crate::bases::Bases;
use crate::plan_file::PlanFile;

/// The configuration file that is read when it lies in the current directory.
pub const DEFAULT_FILE: &str = "bench.toml";
/// The variable that holds such settings too, as TOML, for places without a file: containers. The file wins, setting by setting.
pub const VARIABLE: &str = "SANDBOX_BENCH_SETTINGS";

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Settings by backend name; each adapter's README lists its own.
    pub backend: BTreeMap<String, toml::Table>,
    /// Settings by tracker name.
    pub track: BTreeMap<String, toml::Table>,
    /// What stands in for images, by backend name.
    pub recipes: BTreeMap<String, Bases>,
    /// A run, for `run --plan`.
    pub plan: Option<PlanFile>,
    /// The file that it was read from.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

impl Config {
    /// Reads `file`, or `bench.toml` of the current directory if there is one, and [`VARIABLE`].
    ///
    /// # Errors
    /// The named file cannot be read, or what is read is not valid.
    pub fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let path = match file {
            Some(path) => Some(path.to_owned()),
            None => Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.is_file()),
        };
        let config = match path {
            Some(path) => {
                let of = format!("configuration {}", path.display());
                let text = std::fs::read_to_string(&path).with_context(|| of.clone())?;
                let directory = path.parent().unwrap_or(Path::new("")).to_owned();
                Self { file: Some(path), ..Self::parse(&text, &of, &directory)? }
            }
            None => Self::default(),
        };
        match std::env::var(VARIABLE) {
            Ok(text) => Ok(config.over(Self::parse(&text, VARIABLE, Path::new(""))?)),
            Err(_) => Ok(config),
        }
    }

    /// `directory`: what paths of a plan are relative to.
    fn parse(text: &str, of: &str, directory: &Path) -> anyhow::Result<Self> {
        let config: Self = toml::from_str(text).with_context(|| of.to_owned())?;
        let known: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
        if let Some(name) =
            config.backend.keys().chain(config.recipes.keys()).find(|name| !known.contains(&name.as_str()))
        {
            bail!("{of}: unknown backend {name:?} (known backends: {})", known.join(", "));
        }
        if let Some(name) = config.track.keys().find(|name| !TRACKERS.contains(&name.as_str())) {
            bail!("{of}: unknown tracker {name:?} (known trackers: {})", TRACKERS.join(", "));
        }
        let checked = config.plan.map(|plan| plan.checked(directory)).transpose();
        let plan = checked.map_err(|why| anyhow!("{of}: plan.{why}"))?;
        Ok(Self { plan, ..config })
    }

    /// The same, with what it does not say taken from `other`.
    fn over(mut self, other: Self) -> Self {
        for (mine, theirs) in [(&mut self.backend, other.backend), (&mut self.track, other.track)] {
            for (name, table) in theirs {
                let mine = mine.entry(name).or_default();
                for (key, value) in table {
                    mine.entry(key).or_insert(value);
                }
            }
        }
        for (name, bases) in other.recipes {
            self.recipes.entry(name).or_insert(bases);
        }
        self.plan = self.plan.or(other.plan);
        self
    }

    /// The settings of one backend.
    #[must_use]
    pub fn backend(&self, name: &str) -> toml::Table {
        self.backend.get(name).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_variable_says_what_the_file_does_not() {
        let parse = |text: &str| Config::parse(text, "text", Path::new(""));
        let file = parse("[backend.polyaxon]\nproject = 'file'\n[track.polyaxon]\nproject = 'evidence'").unwrap();
        let variable = "backend.polyaxon = { project = 'variable', host = 'http://h' }\nbackend.docker.pull = 'never'";
        let config = file.over(parse(variable).unwrap());
        let of =
            |name: &str, key: &str| config.backend(name).get(key).and_then(|value| value.as_str()).map(str::to_owned);
        assert_eq!(of("polyaxon", "project").as_deref(), Some("file"));
        assert_eq!(of("polyaxon", "host").as_deref(), Some("http://h"));
        assert_eq!(of("docker", "pull").as_deref(), Some("never"));
        assert_eq!(config.track["polyaxon"]["project"].as_str(), Some("evidence"));
        let error = parse("track.mlflow.uri = 'x'").unwrap_err().to_string();
        assert!(error.contains("mlflow") && error.contains("polyaxon"), "{error}");
    }
}
