//! `sandbox-bench backends`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use sandbox_bench_core::{Backend, Capabilities, Enforcement, ErrorKind};
use sandbox_bench_registry::KNOWN;
use serde::Serialize;

use super::options::OutputFormat;
use super::table::{self, print_json};
use crate::config::Config;
use crate::connect;
use crate::exit::{Exit, Fault};
use crate::say;

const AFTER: &str = "\
Exit codes:
  0  every configured backend answers
  2  the configuration is wrong, or names an unknown backend
  3  a backend that the configuration or --backend names does not answer";

#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct BackendsArgs {
    /// Only these backends, separated by commas [default: all of this build].
    #[arg(short, long, value_delimiter = ',', value_name = "NAME,…")]
    backend: Vec<String>,
    /// Configuration of the backends [default: bench.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "text")]
    format: OutputFormat,
}

#[derive(Serialize)]
struct Shown {
    name: &'static str,
    about: &'static str,
    compiled: bool,
    /// Named by the configuration or on the command line: it has to answer.
    configured: bool,
    info: Option<sandbox_bench_core::BackendInfo>,
    error: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// The configuration is wrong.
pub async fn run(args: BackendsArgs) -> Result<Exit, Fault> {
    let config = Config::read(args.config.as_deref()).map_err(Fault::usage)?;
    if let Some(unknown) = args.backend.iter().find(|name| KNOWN.iter().all(|known| known.name != name.as_str())) {
        let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
        return Err(Fault::usage(anyhow!("unknown backend {unknown:?} (known backends: {})", names.join(", "))));
    }
    let mut shown = Vec::new();
    let mut wrong = false;
    for known in KNOWN {
        let named = args.backend.iter().any(|name| name == known.name);
        if !args.backend.is_empty() && !named {
            continue;
        }
        let configured = named || config.backend.contains_key(known.name);
        let (info, error) = match connect::connect_one(known.name, &config, "backends").await {
            Ok(backend) => (Some(Backend::info(backend.as_ref()).clone()), None),
            Err(error) => {
                // One that nobody set up lacks settings by nature.
                wrong |= configured && known.compiled && *error.kind() == ErrorKind::InvalidRequest;
                (None, Some(error.to_string()))
            }
        };
        shown.push(Shown { name: known.name, about: known.about, compiled: known.compiled, configured, info, error });
    }
    match args.format {
        OutputFormat::Json => print_json(&shown)?,
        OutputFormat::Text => print(&shown)?,
    }
    let silent = shown.iter().any(|one| one.configured && one.info.is_none());
    Ok(match () {
        () if wrong => Exit::Usage,
        () if silent => Exit::Infrastructure,
        () => Exit::Accepted,
    })
}

fn print(shown: &[Shown]) -> Result<(), Fault> {
    for one in shown {
        let state = match (&one.info, &one.error) {
            (Some(info), _) => format!("{} {}", info.endpoint, info.backend_version.as_deref().unwrap_or("")),
            (None, error) => error.clone().unwrap_or_default(),
        };
        let mark = if one.configured { " (configured)" } else { "" };
        say::result(format_args!("{:8} {}{mark}\n         {}", one.name, one.about, state.trim_end()))?;
    }
    let connected: Vec<(&str, &Capabilities)> =
        shown.iter().filter_map(|one| Some((one.name, &one.info.as_ref()?.capabilities))).collect();
    if connected.is_empty() {
        return Ok(());
    }
    let mut comfy: Vec<Vec<String>> = Vec::new();
    for (label, value) in FACTS {
        let mut row = vec![(*label).to_owned()];
        row.extend(connected.iter().map(|(_, capabilities)| value(capabilities)));
        comfy.push(row);
    }
    let mut header = vec!["capability".to_owned()];
    header.extend(connected.iter().map(|(name, _)| (*name).to_owned()));
    say::result(format_args!("\n{}", table::dynamic(header, comfy)))
}

type Fact = (&'static str, fn(&Capabilities) -> String);

const FACTS: &[Fact] = &[
    ("isolation", |c| c.isolation.clone()),
    ("task images", |c| if c.images { "any" } else { "mapped ones" }.into()),
    ("Dockerfile builds", |c| yes(c.dockerfile)),
    ("mapped images", |c| named(&c.mapped_images)),
    ("recipes on a base", |c| if c.base { c.base_name.clone() } else { "no".into() }),
    ("commands of that base", |c| named(&c.base_commands)),
    ("root", |c| yes(c.root_user)),
    ("other users than root", |c| yes(c.non_root_user)),
    ("network", |c| yes(c.network_public)),
    ("network off", |c| yes(c.network_off)),
    ("network allowlist", |c| yes(c.network_allowlist)),
    ("separate stdout and stderr", |c| yes(c.separate_streams)),
    ("stdin", |c| yes(c.stdin)),
    ("binary output", |c| yes(c.binary_output)),
    ("exact signals", |c| yes(c.exact_signals)),
    ("process-tree kill", |c| yes(c.tree_kill)),
    ("out-of-memory kills seen", |c| yes(c.reports_oom)),
    ("warm artifacts", |c| yes(c.snapshot)),
    ("… their variable", |c| c.artifact_variable.clone().unwrap_or_else(|| "-".into())),
    ("suspend and resume", |c| yes(c.resume)),
    ("attach", |c| if c.attach_across_processes { "from any process".into() } else { yes(c.attach) }),
    ("find by tag", |c| yes(c.find_by_tag)),
    ("lifetime backstop", |c| limit(c.lifetime)),
    ("CPU limit", |c| limit(c.cpu_limit)),
    ("memory limit", |c| limit(c.memory_limit)),
    ("process limit", |c| limit(c.pids_limit)),
    ("storage limit", |c| limit(c.disk_limit)),
    ("largest upload", |c| c.max_upload_bytes.map_or_else(|| NO_LIMIT.into(), table::bytes)),
    ("longest life", |c| c.max_lifetime_seconds.map_or_else(|| NO_LIMIT.into(), |seconds| format!("{seconds} s"))),
    ("most at one time", |c| c.max_concurrency.map_or_else(|| NO_LIMIT.into(), |most| most.to_string())),
];

/// What is shown where a backend states no limit.
const NO_LIMIT: &str = "-";

/// Names, the first few of them.
fn named(names: &[String]) -> String {
    const SHOWN: usize = 5;
    match names.len() {
        0 => "-".into(),
        n if n <= SHOWN => names.join(" "),
        n => format!("{} and {} more", names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(" "), n - SHOWN),
    }
}

fn yes(fact: bool) -> String {
    if fact { "yes" } else { "no" }.into()
}

fn limit(enforcement: Enforcement) -> String {
    match enforcement {
        Enforcement::Enforced => "enforced",
        Enforcement::Advisory => "advisory",
        Enforcement::Absent => "no",
    }
    .into()
}
