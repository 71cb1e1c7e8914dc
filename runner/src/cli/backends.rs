//! `sandbox-bench backends`.

use std::path::PathBuf;

use clap::Args;
use sandbox_bench_core::{Backend, Capabilities, Enforcement};
use sandbox_bench_registry::KNOWN;
use serde::Serialize;

use super::options::OutputFormat;
use super::table::{self, print_json};
use crate::config::Config;
use crate::connect;
use crate::exit::{Exit, Fault};
use crate::say;

#[derive(Debug, Args)]
pub struct BackendsArgs {
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
    info: Option<sandbox_bench_core::BackendInfo>,
    error: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// The configuration is wrong.
pub async fn run(args: BackendsArgs) -> Result<Exit, Fault> {
    let config = Config::read(args.config.as_deref()).map_err(Fault::usage)?;
    let mut shown = Vec::new();
    for known in KNOWN {
        let (info, error) = match connect::connect_one(known.name, &config, "backends").await {
            Ok(backend) => (Some(Backend::info(backend.as_ref()).clone()), None),
            Err(error) => (None, Some(error.to_string())),
        };
        shown.push(Shown { name: known.name, about: known.about, compiled: known.compiled, info, error });
    }
    match args.format {
        OutputFormat::Json => print_json(&shown)?,
        OutputFormat::Text => print(&shown)?,
    }
    Ok(Exit::Accepted)
}

fn print(shown: &[Shown]) -> Result<(), Fault> {
    for one in shown {
        let state = match (&one.info, &one.error) {
            (Some(info), _) => format!("{} {}", info.endpoint, info.backend_version.as_deref().unwrap_or("")),
            (None, error) => error.clone().unwrap_or_default(),
        };
        say::result(format_args!("{:8} {}\n         {}", one.name, one.about, state.trim_end()))?;
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
    ("task images", |c| if c.images { "any".into() } else { format!("{} mapped", c.mapped_images.len()) }),
    ("Dockerfile builds", |c| yes(c.dockerfile)),
    ("recipes on a base", |c| if c.base { c.base_name.clone() } else { "no".into() }),
    ("other users than root", |c| yes(c.non_root_user)),
    ("network off", |c| yes(c.network_off)),
    ("network allowlist", |c| yes(c.network_allowlist)),
    ("separate stdout and stderr", |c| yes(c.separate_streams)),
    ("binary output", |c| yes(c.binary_output)),
    ("exact signals", |c| yes(c.exact_signals)),
    ("process-tree kill", |c| yes(c.tree_kill)),
    ("warm artifacts", |c| yes(c.snapshot)),
    ("attach", |c| if c.attach_across_processes { "from any process".into() } else { yes(c.attach) }),
    ("find by tag", |c| yes(c.find_by_tag)),
    ("lifetime backstop", |c| limit(c.lifetime)),
    ("CPU limit", |c| limit(c.cpu_limit)),
    ("memory limit", |c| limit(c.memory_limit)),
    ("process limit", |c| limit(c.pids_limit)),
    ("storage limit", |c| limit(c.disk_limit)),
];

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
