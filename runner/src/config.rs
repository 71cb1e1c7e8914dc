//! `bench.toml`: settings of the backends, and a plan if there is one. What the command line says wins. Described for users in
//! `docs/configuration.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use sandbox_bench_registry::KNOWN;
use serde::Deserialize;

use crate::bases::Bases;
use crate::plan_file::PlanFile;

/// The configuration file that is read when it lies in the current directory.
pub const DEFAULT_FILE: &str = "bench.toml";

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Settings by backend name; each adapter's README lists its own.
    pub backend: BTreeMap<String, toml::Table>,
    /// What stands in for images, by backend name.
    pub recipes: BTreeMap<String, Bases>,
    /// A run, for `run --plan`.
    pub plan: Option<PlanFile>,
    /// The file that it was read from.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

impl Config {
    /// Reads `file`, or `bench.toml` of the current directory if there is one.
    ///
    /// # Errors
    /// The named file cannot be read, or a file is not valid.
    pub fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let path = match file {
            Some(path) => path.to_owned(),
            None if Path::new(DEFAULT_FILE).is_file() => PathBuf::from(DEFAULT_FILE),
            None => return Ok(Self::default()),
        };
        let text = std::fs::read_to_string(&path).with_context(|| format!("configuration {}", path.display()))?;
        let config: Self = toml::from_str(&text).with_context(|| format!("configuration {}", path.display()))?;
        for name in config.backend.keys().chain(config.recipes.keys()) {
            if KNOWN.iter().all(|known| known.name != name) {
                let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
                let names = names.join(", ");
                bail!("configuration {}: unknown backend {name:?} (known backends: {names})", path.display());
            }
        }
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        let checked = config.plan.map(|plan| plan.checked(&directory)).transpose();
        let plan = checked.map_err(|why| anyhow!("configuration {}: plan.{why}", path.display()))?;
        Ok(Self { file: Some(path), plan, ..config })
    }

    /// The settings of one backend.
    #[must_use]
    pub fn backend(&self, name: &str) -> toml::Table {
        self.backend.get(name).cloned().unwrap_or_default()
    }
}
