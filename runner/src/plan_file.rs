//! The `[plan]` of a `bench.toml`: a whole run in a file, so that it can be repeated, reviewed and shared. What the command
//! line says wins. Described for users in `docs/plan-files.md`; its JSON Schema is `docs/schemas/plan.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sandbox_bench_core::evidence::Load;
use sandbox_bench_core::{Condition, Resources};
use schemars::JsonSchema;
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};

/// The longest time that a limit or a pause may take: a year, in seconds.
const LONGEST: u64 = 366 * 24 * 60 * 60;
/// The most CPUs of a profile.
const MOST_CPUS: f64 = 10_000.0;
/// The greatest sum of money, share or number of minutes.
const GREATEST: f64 = 1e9;
/// Name of the bundled data set: no path.
const BUNDLED: &str = "smoke";

/// The table `[plan]`. Everything may be left out; what the command line does not say either has its usual default.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlanFile {
    /// Backends; their settings are in the tables `[backend.NAME]`. `all` takes all that can be used.
    #[serde(deserialize_with = "some")]
    pub backends: Vec<String>,
    /// How sandboxes come to be.
    #[serde(deserialize_with = "some")]
    pub conditions: Vec<Condition>,
    /// Data sets: a name or path, or a table with filters.
    #[serde(deserialize_with = "some")]
    pub datasets: Vec<DatasetPlan>,
    /// List of tasks to leave out, as `triage --quarantine` writes it; a path from the plan file's directory.
    pub quarantine: Option<PathBuf>,
    /// What does the tasks, as `--solver` takes it.
    pub solver: Option<String>,
    /// Script that installs the solver's own tools into each environment.
    pub solver_setup: Option<PathBuf>,
    /// Models, for a solver that uses one.
    #[serde(deserialize_with = "some")]
    pub models: Vec<String>,
    /// Names of host variables for a command or replay solver.
    pub forward_env: Vec<String>,
    /// Trials of each task in each cell.
    #[schemars(range(min = 1, max = 100_000))]
    pub replicates: Option<u32>,
    /// Trials of each task in each cell that are run first and counted nowhere.
    pub warm_up: u32,
    /// `interleaved`, `random` or `sequential`.
    pub order: Option<String>,
    /// Seed of the order.
    pub seed: Option<u64>,
    /// Most attempts of a trial.
    #[schemars(range(min = 1, max = 100))]
    pub attempts: Option<u32>,
    /// Most trials at one time. Several levels are a dimension of the plan, run one after the other: a ramp.
    pub concurrency: Levels,
    /// Most trials at one time on a backend.
    pub backend_concurrency: BTreeMap<String, u32>,
    /// Resources by the name of their profile, a dimension of the plan. Without any, each task's own are asked for.
    pub profiles: BTreeMap<String, Profile>,
    /// Sizes of an extra input, a dimension of the plan: bytes, or text such as `16 MiB`.
    #[serde(deserialize_with = "some")]
    pub input_sizes: Vec<Size>,
    /// In which rhythm trials are launched.
    pub load: Load,
    /// What ends the run early. No trial that was started is ended by it.
    pub stop: Stop,
    /// Time limits that replace the tasks' own.
    pub limits: TimeLimits,
}

/// A data set of a plan.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(untagged)]
pub enum DatasetPlan {
    /// `smoke`, or a path from the plan file's directory.
    Name(String),
    /// … with filters.
    Table(DatasetTable),
}

/// A data set with its filters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatasetTable {
    /// `smoke`, or a path from the plan file's directory.
    pub path: String,
    /// Its form, where it is not to be detected.
    #[serde(default)]
    pub format: Option<String>,
    /// Environments of SWE-smith repositories, a path from the plan file's directory.
    #[serde(default)]
    pub environments: Option<PathBuf>,
    /// Only tasks whose id matches one of these globs.
    #[serde(default, deserialize_with = "some")]
    pub tasks: Vec<String>,
    /// At most so many tasks.
    #[serde(default)]
    pub limit: Option<usize>,
}

impl DatasetTable {
    /// All tasks of a data set.
    #[must_use]
    pub fn of(path: &str) -> Self {
        Self { path: path.to_owned(), format: None, environments: None, tasks: Vec::new(), limit: None }
    }
}

impl<'de> Deserialize<'de> for DatasetPlan {
    /// Not derived: an untagged enum would hide which key of a table is wrong.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> de::Visitor<'de> for Either {
            type Value = DatasetPlan;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a name, a path, or a table with `path`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<DatasetPlan, E> {
                Ok(DatasetPlan::Name(text.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<DatasetPlan, A::Error> {
                DatasetTable::deserialize(de::value::MapAccessDeserializer::new(map)).map(DatasetPlan::Table)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A list that is written down and empty was meant to say something.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let list = Vec::deserialize(deserializer)?;
    if list.is_empty() {
        return Err(de::Error::custom("the list is empty: name something, or leave it out"));
    }
    Ok(list)
}

/// One level, or several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Levels {
    /// Not said.
    #[default]
    Unset,
    /// One.
    One(u32),
    /// Several, in the order in which they are run.
    Several(Vec<u32>),
}

impl<'de> Deserialize<'de> for Levels {
    /// Not derived: an untagged enum would not say what is wrong.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> de::Visitor<'de> for Either {
            type Value = Levels;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of trials, or a list of such numbers")
            }

            fn visit_i64<E: de::Error>(self, level: i64) -> Result<Levels, E> {
                u32::try_from(level)
                    .map(Levels::One)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(level), &self))
            }

            fn visit_u64<E: de::Error>(self, level: u64) -> Result<Levels, E> {
                u32::try_from(level)
                    .map(Levels::One)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(level), &self))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Levels, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(list)).map(Levels::Several)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Resources of a profile. What it does not say is the task's own.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// Virtual CPUs.
    pub cpus: Option<f64>,
    /// Memory in MiB.
    pub memory_mb: Option<u64>,
    /// Writable storage in MiB.
    pub disk_mb: Option<u64>,
    /// Most processes and threads at one time.
    pub pids: Option<u64>,
}

impl From<Profile> for Resources {
    fn from(profile: Profile) -> Self {
        let Profile { cpus, memory_mb, disk_mb, pids } = profile;
        Self { cpus, memory_mb, disk_mb, pids, gpus: None }
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(with = "SizeText")]
pub struct Size(pub u64);

/// How a size is written.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "the schema of Size")]
enum SizeText {
    /// Bytes.
    Bytes(u64),
    /// A number and a unit: B, KiB, MiB or GiB.
    Text(String),
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl de::Visitor<'_> for Either {
            type Value = Size;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of bytes, or text such as \"16 MiB\"")
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size cannot be negative"))
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                size(text).map(Size).ok_or_else(|| {
                    E::custom(format!(
                        "{text:?} is no size that is possible; write it as \"16 MiB\", with B, KiB, MiB or GiB"
                    ))
                })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// What ends a run early.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// So many accepted trials.
    pub after_passes: Option<u64>,
    /// A cell is done once the interval of its median total time is narrower than this share of the median: 0.1 is 10 %.
    pub interval: Option<f64>,
    /// US dollars that sandboxes, as estimated, and models may cost.
    pub usd: Option<f64>,
    /// US dollars that models alone may cost.
    pub model_usd: Option<f64>,
    /// Minutes from the first launch.
    pub minutes: Option<f64>,
}

/// Time limits in seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimeLimits {
    /// Of the solver.
    pub solver_seconds: Option<u64>,
    /// Of the verifier.
    pub verifier_seconds: Option<u64>,
}

impl PlanFile {
    /// Checks what the types do not, and takes paths from `directory`, where the file lies.
    ///
    /// # Errors
    /// What is wrong, by its key.
    pub fn checked(mut self, directory: &Path) -> Result<Self, String> {
        let positive = |key: &str, number: Option<f64>| match number {
            Some(number) if !(number > 0.0 && number <= GREATEST) => {
                Err(format!("{key} = {number:e}: it must be above 0 and at most {GREATEST:e}"))
            }
            _ => Ok(()),
        };
        positive("stop.interval", self.stop.interval)?;
        positive("stop.usd", self.stop.usd)?;
        positive("stop.model_usd", self.stop.model_usd)?;
        positive("stop.minutes", self.stop.minutes)?;
        let interval = match self.load {
            Load::Staggered { interval_ms } => Some(interval_ms),
            _ => None,
        };
        let mut within = vec![
            ("replicates".to_owned(), self.replicates.map(u64::from), 1, 100_000),
            ("warm_up".to_owned(), Some(u64::from(self.warm_up)), 0, 100_000),
            ("attempts".to_owned(), self.attempts.map(u64::from), 1, 100),
            ("stop.after_passes".to_owned(), self.stop.after_passes, 1, u64::MAX),
            ("limits.solver_seconds".to_owned(), self.limits.solver_seconds, 1, LONGEST),
            ("limits.verifier_seconds".to_owned(), self.limits.verifier_seconds, 1, LONGEST),
            ("load.interval_ms".to_owned(), interval, 0, LONGEST * 1000),
        ];
        within.extend(self.levels().into_iter().map(|level| ("concurrency".to_owned(), Some(level.into()), 1, 10_000)));
        let per_backend = self.backend_concurrency.iter();
        within.extend(
            per_backend.map(|(name, most)| (format!("backend_concurrency.{name}"), Some((*most).into()), 1, 10_000)),
        );
        for (name, profile) in &self.profiles {
            for (key, value) in [("memory_mb", profile.memory_mb), ("disk_mb", profile.disk_mb), ("pids", profile.pids)]
            {
                within.push((format!("profiles.{name}.{key}"), value, 1, 1 << 40));
            }
        }
        for dataset in &self.datasets {
            if let DatasetPlan::Table(DatasetTable { path, limit: Some(0), .. }) = dataset {
                return Err(format!("datasets: {path:?}: limit = 0: it must be at least 1"));
            }
        }
        for (key, value, least, most) in within {
            match value {
                Some(value) if value < least => return Err(format!("{key} = {value}: it must be at least {least}")),
                Some(value) if value > most => return Err(format!("{key} = {value}: it must be at most {most}")),
                _ => {}
            }
        }
        if matches!(&self.concurrency, Levels::Several(levels) if levels.is_empty()) {
            return Err("concurrency = []: name a level".into());
        }
        if let Some(twice) = repeated(&self.levels()) {
            return Err(format!("concurrency: the level {twice} is named twice"));
        }
        if let Some(Size(twice)) = repeated(&self.input_sizes) {
            return Err(format!("input_sizes: {twice} bytes are named twice"));
        }
        for (name, profile) in &self.profiles {
            if name.trim().is_empty() {
                return Err(format!("profiles.{name:?}: it needs a name"));
            }
            if let Some(cpus) = profile.cpus.filter(|cpus| !(*cpus > 0.0 && *cpus <= MOST_CPUS)) {
                return Err(format!("profiles.{name}.cpus = {cpus:e}: it must be above 0 and at most {MOST_CPUS}"));
            }
        }
        let from_here = |path: &Path| directory.join(path);
        for dataset in &mut self.datasets {
            match dataset {
                DatasetPlan::Name(path) => *path = dataset_path(directory, path),
                DatasetPlan::Table(table) => {
                    table.path = dataset_path(directory, &table.path);
                    table.environments = table.environments.as_deref().map(from_here);
                }
            }
        }
        self.solver_setup = self.solver_setup.as_deref().map(from_here);
        self.quarantine = self.quarantine.as_deref().map(from_here);
        Ok(self)
    }

    /// The levels of concurrency that are named.
    #[must_use]
    pub fn levels(&self) -> Vec<u32> {
        match &self.concurrency {
            Levels::Unset => Vec::new(),
            Levels::One(level) => vec![*level],
            Levels::Several(levels) => levels.clone(),
        }
    }
}

fn repeated<T: PartialEq + Copy>(all: &[T]) -> Option<T> {
    all.iter().enumerate().find(|(index, one)| all.iter().take(*index).any(|seen| seen == *one)).map(|(_, one)| *one)
}

fn dataset_path(directory: &Path, name: &str) -> String {
    if name == BUNDLED { name.to_owned() } else { directory.join(name).to_string_lossy().into_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn plan(text: &str) -> Result<PlanFile, String> {
        let plan: PlanFile = toml::from_str(text).map_err(|error| error.to_string())?;
        plan.checked(Path::new("/plans"))
    }

    #[test]
    fn a_whole_plan_is_read() {
        let plan = plan(
            "backends = ['local', 'docker']\nconditions = ['cold', 'warm']\n\
             datasets = ['smoke', { path = 'tasks', tasks = ['a*'], limit = 3, environments = '/envs' }]\n\
             replicates = 6\nwarm_up = 1\nconcurrency = [1, 4]\ninput_sizes = [0, '16 MiB']\n\
             [profiles]\nsmall = { cpus = 0.5, memory_mb = 256 }\n[load]\nshape = 'staggered'\ninterval_ms = 250\n\
             [stop]\ninterval = 0.1\nminutes = 2.5\n",
        )
        .unwrap();
        assert_eq!(plan.levels(), [1, 4]);
        assert_eq!(plan.input_sizes, [Size(0), Size(16 << 20)]);
        assert_eq!(plan.load, Load::Staggered { interval_ms: 250 });
        let [DatasetPlan::Name(smoke), DatasetPlan::Table(tasks)] = &plan.datasets[..] else { panic!() };
        assert_eq!((smoke.as_str(), tasks.path.as_str()), ("smoke", "/plans/tasks"));
        assert_eq!(tasks.environments.as_deref(), Some(Path::new("/envs")));
    }

    #[test]
    fn the_shipped_schema_is_up_to_date() {
        crate::schemas::check_read::<PlanFile>("plan");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("replicate = 3", "replicate"),
            ("replicates = 0", "replicates = 0"),
            ("concurrency = []", "name a level"),
            ("concurrency = [2, 2]", "level 2 is named twice"),
            ("concurrency = 0", "concurrency = 0"),
            ("concurrency = [1, 1000000000000]", "1000000000000"),
            ("concurrency = 'many'", "a number of trials, or a list"),
            ("backend_concurrency = { local = 0 }", "backend_concurrency.local = 0"),
            ("conditions = []", "the list is empty"),
            ("datasets = [{ path = 'x', tasks = [] }]", "the list is empty"),
            ("datasets = [{ path = 'x', limit = 0 }]", "limit = 0"),
            ("replicates = 4000000000", "at most 100000"),
            ("warm_up = 4294967295", "at most 100000"),
            ("[limits]\nsolver_seconds = 18446744073709551615", "solver_seconds"),
            ("[limits]\nsolver_seconds = 9223372036854775807", "at most 31622400"),
            ("[load]\nshape = 'staggered'\ninterval_ms = 9223372036854775807", "interval_ms"),
            ("[stop]\nminutes = 1e308", "minutes = 1e308"),
            ("[profiles]\nodd = { cpus = 1e300 }", "odd.cpus = 1e300"),
            ("[profiles]\nodd = { memory_mb = 0 }", "odd.memory_mb = 0"),
            ("input_sizes = ['999999999999 GiB']", "no size"),
            ("input_sizes = ['16 MB']", "no size"),
            ("input_sizes = [-1]", "negative"),
            ("datasets = [{ path = 'x', task = ['y'] }]", "task"),
            ("datasets = [{ tasks = ['y'] }]", "path"),
            ("[stop]\nusd = -1.0", "stop.usd"),
            ("[load]\nshape = 'wave'", "wave"),
            ("[profiles]\nodd = { cpus = 0.0 }", "odd"),
        ] {
            let error = plan(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
