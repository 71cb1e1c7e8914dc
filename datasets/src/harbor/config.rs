//! `task.toml` as Harbor reads it.
//!
//! Source: Harbor 0.26, task models; the coercions and defaults were verified by running it.

use std::collections::BTreeMap;
use std::time::Duration;

use sandbox_bench_core::{NetworkPolicy, Resources};
use serde_json::{Map, Value};

use super::fields::Section;
use super::network;
use crate::problem::Fault;
use crate::task::{Healthcheck, NetworkPlan};

/// What of `task.toml` matters here.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) metadata: Map<String, Value>,
    pub(super) environment: EnvironmentConfig,
    pub(super) network: NetworkPlan,
    pub(super) solve_timeout: Option<Duration>,
    pub(super) verify_timeout: Duration,
    pub(super) solver_user: Option<String>,
    pub(super) verifier_user: Option<String>,
    pub(super) verifier_env: BTreeMap<String, String>,
    pub(super) solution_env: BTreeMap<String, String>,
    /// The verifier wants a sandbox of its own.
    pub(super) separate_verifier: bool,
    pub(super) steps: Vec<String>,
}

/// `[environment]`.
#[derive(Debug)]
pub(super) struct EnvironmentConfig {
    pub(super) image: Option<String>,
    pub(super) build_timeout: Duration,
    pub(super) windows: bool,
    pub(super) resources: Resources,
    pub(super) tpu: bool,
    pub(super) mcp_servers: bool,
    pub(super) env: BTreeMap<String, String>,
    pub(super) workdir: Option<String>,
    pub(super) healthcheck: Option<Healthcheck>,
}

/// Harbor's default for building and for verifying.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Reads `task.toml`; oddities that change nothing go to `warnings`.
pub(super) fn parse(text: &str, warnings: &mut Vec<String>) -> Result<Config, Fault> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text.get(..span.start).unwrap_or(text).matches('\n').count());
        Fault::new(format!("task.toml line {line}: {}", error.message()), "correct the TOML")
    })?;
    let root = Section::root(&table);
    for key in ["schema_version", "version"] {
        root.text(key)?;
    }
    let empty = toml::Table::new();
    let section = |key: &str| root.section(key).map(|found| found.unwrap_or_else(|| Section::root(&empty)));
    let (environment, agent, verifier) = (section("environment")?, section("agent")?, section("verifier")?);
    let baseline = network::baseline(&environment)?;
    let verifier_environment = verifier.section("environment")?;
    let separate_verifier = match verifier.text("environment_mode")?.as_deref() {
        Some("separate") => true,
        Some("shared") if verifier_environment.is_some() => {
            return Err(verifier.wrong("environment_mode", "\"separate\", because there is a verifier.environment"));
        }
        Some("shared") => false,
        None => verifier_environment.is_some(),
        Some(_) => return Err(verifier.wrong("environment_mode", "\"shared\" or \"separate\"")),
    };
    let steps = root.sections("steps")?;
    root.section("task")?.map(|task| task_name(&task)).transpose()?;
    Ok(Config {
        metadata: section("metadata")?.json(),
        network: NetworkPlan {
            solve: network::phase(&agent)?.unwrap_or_else(|| baseline.clone()),
            verify: network::phase(&verifier)?.unwrap_or_else(|| baseline.clone()),
            baseline,
        },
        environment: environment_config(&environment, warnings)?,
        solve_timeout: seconds(&agent, "timeout_sec", warnings)?,
        verify_timeout: seconds(&verifier, "timeout_sec", warnings)?.unwrap_or(DEFAULT_TIMEOUT),
        solver_user: agent.text_or_integer("user")?,
        verifier_user: verifier.text_or_integer("user")?,
        verifier_env: verifier.text_map("env")?,
        solution_env: section("solution")?.text_map("env")?,
        separate_verifier,
        steps: steps.iter().map(step_name).collect::<Result<_, _>>()?,
    })
}

fn task_name(task: &Section<'_>) -> Result<String, Fault> {
    let must = "of the form org/name, with letters, digits, dots, dashes and underscores";
    let name = task.text("name")?.ok_or_else(|| task.wrong("name", must))?;
    let half = |half: &str| {
        half.starts_with(|c: char| c.is_ascii_alphanumeric())
            && half.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
            && !half.contains("..")
    };
    match name.split_once('/') {
        Some((org, short)) if half(org) && half(short) => Ok(name),
        _ => Err(task.wrong("name", must)),
    }
}

fn step_name(step: &Section<'_>) -> Result<String, Fault> {
    let must = "the name of a directory below steps/";
    let name = step.text("name")?.ok_or_else(|| step.wrong("name", must))?;
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\']);
    if plain && !name.chars().any(char::is_control) { Ok(name) } else { Err(step.wrong("name", must)) }
}

fn environment_config(section: &Section<'_>, warnings: &mut Vec<String>) -> Result<EnvironmentConfig, Fault> {
    let windows = match section.text("os")?.map(|os| os.to_ascii_lowercase()).as_deref() {
        None | Some("linux") => false,
        Some("windows") => true,
        Some(_) => return Err(section.wrong("os", "\"linux\" or \"windows\"")),
    };
    let cpus = section.number("cpus")?.filter(|&cpus| positive(cpus, "environment.cpus", warnings));
    let gpus = section.integer("gpus")?.and_then(|gpus| u32::try_from(gpus).ok()).filter(|&gpus| gpus > 0);
    section.texts("gpu_types")?;
    Ok(EnvironmentConfig {
        image: section.text("docker_image")?.filter(|image| !image.is_empty()),
        build_timeout: seconds(section, "build_timeout_sec", warnings)?.unwrap_or(DEFAULT_TIMEOUT),
        windows,
        resources: Resources {
            cpus,
            memory_mb: mebibytes(section, "memory_mb", "memory", warnings)?,
            disk_mb: mebibytes(section, "storage_mb", "storage", warnings)?,
            pids: None,
            gpus,
        },
        tpu: section.section("tpu")?.is_some(),
        mcp_servers: !section.sections("mcp_servers")?.is_empty(),
        env: section.text_map("env")?,
        workdir: section.text("workdir")?,
        healthcheck: section.section("healthcheck")?.map(|check| healthcheck(&check, warnings)).transpose()?,
    })
}

fn healthcheck(section: &Section<'_>, warnings: &mut Vec<String>) -> Result<Healthcheck, Fault> {
    let mut time = |key: &str, default: u64| -> Result<Duration, Fault> {
        Ok(seconds(section, key, warnings)?.unwrap_or(Duration::from_secs(default)))
    };
    Ok(Healthcheck {
        interval: time("interval_sec", 5)?,
        timeout: time("timeout_sec", 30)?,
        start_period: time("start_period_sec", 0)?,
        start_interval: time("start_interval_sec", 5)?,
        command: section.text("command")?.ok_or_else(|| section.wrong("command", "a shell command"))?,
        retries: match section.integer("retries")? {
            Some(retries) => u32::try_from(retries).map_err(|_| section.wrong("retries", "a small positive number"))?,
            None => 3,
        },
    })
}

/// Seconds; values that are zero or negative count as not given, as they make no sense as limits.
fn seconds(section: &Section<'_>, key: &str, warnings: &mut Vec<String>) -> Result<Option<Duration>, Fault> {
    let Some(number) = section.number(key)? else { return Ok(None) };
    let name = section.name(key);
    if number == 0.0 && key.ends_with("timeout_sec") {
        warnings
            .push(format!("{name} is 0, which is no limit that can be kept; it is ignored, as if it were not given"));
    }
    if !positive(number, &name, warnings) {
        return Ok(None);
    }
    Duration::try_from_secs_f64(number).map(Some).map_err(|_| section.wrong(key, "a number of seconds"))
}

fn positive(number: f64, key: &str, warnings: &mut Vec<String>) -> bool {
    if number < 0.0 {
        warnings.push(format!("{key} is negative and is ignored"));
    }
    number > 0.0
}

/// MiB from the key, or from the deprecated key with a unit letter.
fn mebibytes(section: &Section<'_>, key: &str, old: &str, warnings: &mut Vec<String>) -> Result<Option<u64>, Fault> {
    let new = match section.integer(key)? {
        Some(number) if !positive(number as f64, key, warnings) => None,
        other => other.and_then(|number| u64::try_from(number).ok()),
    };
    let deprecated = match section.text_or_integer(old)? {
        Some(text) if text.chars().all(|c| c.is_ascii_digit()) && section.text(old).is_err() => {
            warnings.push(format!("{old} is a number without a unit and is ignored; use {key}"));
            None
        }
        Some(text) => Some(with_unit(&text).ok_or_else(|| section.wrong(old, "a number and one of K, M, G"))?),
        None => None,
    };
    match (new, deprecated) {
        (Some(new), Some(old_value)) if new != old_value => {
            Err(section.wrong(old, &format!("left out, as {key} says something else")))
        }
        (new, deprecated) => Ok(new.or(deprecated)),
    }
}

/// `2G` → 2048, `1.5G` → 1536, `1024K` → 1.
fn with_unit(text: &str) -> Option<u64> {
    let text = text.trim();
    let unit = text.chars().last()?;
    let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
    let mebibytes = number
        * match unit.to_ascii_uppercase() {
            'G' => 1024.0,
            'M' => 1.0,
            'K' => 1.0 / 1024.0,
            _ => return None,
        };
    (mebibytes.is_finite() && (0.0..1e15).contains(&mebibytes)).then_some(mebibytes as u64)
}

/// The task's name alone, for listing.
pub(super) fn name(text: &str) -> Option<String> {
    let table: toml::Table = text.strip_prefix('\u{feff}').unwrap_or(text).parse().ok()?;
    task_name(&Section::root(&table).section("task").ok()??).ok()
}

/// True if a policy of one phase allows what the baseline does not: it must be widened while the sandbox runs.
pub(super) fn widens(plan: &NetworkPlan) -> bool {
    let wider = |phase: &NetworkPolicy| phase != &plan.baseline && phase != &NetworkPolicy::NoNetwork;
    plan.baseline != NetworkPolicy::Public && (wider(&plan.solve) || wider(&plan.verify))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn environment(text: &str) -> Result<EnvironmentConfig, Fault> {
        parse(&format!("[environment]\n{text}"), &mut Vec::new()).map(|config| config.environment)
    }

    #[test]
    fn an_empty_file_has_the_defaults() {
        let config = parse("", &mut Vec::new()).unwrap();
        assert_eq!(config.environment.build_timeout, Duration::from_secs(600));
        assert_eq!(config.verify_timeout, Duration::from_secs(600));
        assert_eq!(config.solve_timeout, None);
        assert_eq!(config.network, NetworkPlan::default());
        assert!(!config.separate_verifier);
    }

    #[test]
    fn numbers_are_coerced_as_harbor_does() {
        let config =
            environment("cpus = \"2\"\nmemory_mb = 2048.0\nstorage_mb = \"10240\"\nbuild_timeout_sec = \"1.5\"")
                .unwrap();
        assert_eq!(config.resources.cpus, Some(2.0));
        assert_eq!((config.resources.memory_mb, config.resources.disk_mb), (Some(2048), Some(10_240)));
        assert_eq!(config.build_timeout, Duration::from_millis(1500));
        for bad in
            ["memory_mb = 2048.5", "cpus = nan", "cpus = inf", "memory_mb = true", "docker_image = 1", "env = {A = 1}"]
        {
            assert!(environment(bad).is_err(), "{bad}");
        }
        assert_eq!(environment("memory_mb = -1").unwrap().resources.memory_mb, None);
    }

    #[test]
    fn a_limit_of_zero_is_ignored_and_told() {
        let mut warnings = Vec::new();
        let text = "[agent]\ntimeout_sec = 0\n[verifier]\ntimeout_sec = 0.0\n[environment.healthcheck]\n\
                    command = 'true'\nstart_period_sec = 0";
        let config = parse(text, &mut warnings).unwrap();
        assert_eq!((config.solve_timeout, config.verify_timeout), (None, DEFAULT_TIMEOUT));
        let named: Vec<&str> = warnings.iter().filter_map(|warning| warning.split(' ').next()).collect();
        assert_eq!(named, ["agent.timeout_sec", "verifier.timeout_sec"]);
    }

    #[test]
    fn deprecated_sizes_need_a_single_letter_unit() {
        for (text, mebibytes) in [("2G", 2048), (" 1.5g ", 1536), ("1024K", 1), ("512 M", 512)] {
            assert_eq!(environment(&format!("memory = \"{text}\"")).unwrap().resources.memory_mb, Some(mebibytes));
        }
        for bad in ["2GB", "2Gi", "1T", "2048", "G", ""] {
            assert!(environment(&format!("memory = \"{bad}\"")).is_err(), "{bad}");
        }
        let mut warnings = Vec::new();
        let config = parse("[environment]\nmemory = 2048", &mut warnings).unwrap();
        assert_eq!(config.environment.resources.memory_mb, None);
        assert!(warnings[0].contains("without a unit"));
        assert!(environment("memory = \"2G\"\nmemory_mb = 1024").is_err());
        assert!(environment("memory = \"1G\"\nmemory_mb = 1024").is_ok());
    }

    #[test]
    fn wrong_types_name_the_key() {
        let error = environment("memory_mb = \"lots\"").unwrap_err();
        assert_eq!(error.what, "environment.memory_mb is \"lots\", but must be a whole number");
        assert_eq!(parse("schema_version = 1", &mut Vec::new()).unwrap_err().remedy, "correct schema_version");
        assert!(parse("a = ", &mut Vec::new()).unwrap_err().what.starts_with("task.toml line 1"));
    }

    #[test]
    fn the_verifier_mode_follows_its_environment() {
        let separate = |text: &str| parse(text, &mut Vec::new()).map(|config| config.separate_verifier);
        assert!(separate("[verifier.environment]\ncpus = 1").unwrap());
        assert!(separate("[verifier]\nenvironment_mode = 'separate'").unwrap());
        assert!(separate("[verifier]\nenvironment_mode = 'shared'\n[verifier.environment]\n").is_err());
        assert!(separate("[verifier]\nenvironment_mode = 'other'").is_err());
    }

    #[test]
    fn task_names_have_two_halves() {
        for (name, valid) in
            [("a/b", true), ("a-1/b.c_d", true), ("a", false), ("a/", false), ("a/b/c", false), ("a/..", false)]
        {
            assert_eq!(parse(&format!("[task]\nname = '{name}'"), &mut Vec::new()).is_ok(), valid, "{name}");
        }
    }

    #[test]
    fn phases_inherit_the_baseline_and_may_widen_it() {
        let plan = |text: &str| parse(text, &mut Vec::new()).unwrap().network;
        let narrower = plan("[verifier]\nnetwork_mode = 'no-network'");
        assert_eq!(
            (narrower.solve.clone(), narrower.verify.clone()),
            (NetworkPolicy::Public, NetworkPolicy::NoNetwork)
        );
        assert!(!widens(&narrower));
        assert!(widens(&plan("[environment]\nnetwork_mode = 'no-network'\n[verifier]\nnetwork_mode = 'public'")));
    }
}
