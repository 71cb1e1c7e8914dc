//! `sandbox-bench artifacts`.

use std::sync::Arc;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use sandbox_bench_core::{Backend, Destruction, ErrorKind, TagQuery};

use super::options::{BackendOptions, OutputFormat};
use super::table::{self, print_json};
use crate::connect;
use crate::exit::{Exit, Fault};
use crate::say;

#[derive(Debug, Args)]
pub struct ArtifactsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the warm artifacts that we made.
    List {
        #[command(flatten)]
        backends: BackendOptions,
        /// Form of the result on stdout.
        #[arg(long, value_enum, default_value = "text")]
        format: OutputFormat,
    },
    /// Delete warm artifacts that we made.
    Delete {
        #[command(flatten)]
        backends: BackendOptions,
        /// Ids, as `list` shows them.
        #[arg(value_name = "ID", required_unless_present = "all")]
        ids: Vec<String>,
        /// Delete all of them.
        #[arg(long, conflicts_with = "ids")]
        all: bool,
    },
}

/// Runs the command.
///
/// # Errors
/// A backend does not answer.
pub async fn run(args: ArtifactsArgs) -> Result<Exit, Fault> {
    match args.command {
        Command::List { backends, format } => list(&backends, format).await,
        Command::Delete { backends, ids, all } => delete(&backends, ids, all).await,
    }
}

async fn list(options: &BackendOptions, format: OutputFormat) -> Result<Exit, Fault> {
    let backends = connect::connect(&options.names(), &options.config()?, "artifacts").await?;
    let mut artifacts = Vec::new();
    for backend in backends.values() {
        let listed = backend.artifacts(&connect::call("artifacts"), &TagQuery::All).await;
        artifacts.extend(listed.map_err(Fault::infrastructure)?);
    }
    // Newest first: what was made last is what one looks for.
    artifacts.sort_by(|a, b| a.backend.cmp(&b.backend).then(b.created_at.cmp(&a.created_at)).then(a.id.cmp(&b.id)));
    if format == OutputFormat::Json {
        print_json(&artifacts)?;
        return Ok(Exit::Accepted);
    }
    let rows = artifacts.iter().map(|artifact| {
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        [
            artifact.backend.clone(),
            artifact.id.clone(),
            text(artifact.created_at.map(|at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string())),
            text(artifact.size_bytes.map(table::bytes)),
            text(artifact.fingerprint.as_ref().map(|fingerprint| fingerprint.short(12))),
        ]
    });
    say::result(table::plain(["backend", "id", "created", "size", "environment"], rows))?;
    Ok(Exit::Accepted)
}

/// Deleting is idempotent at a backend; to a person, a mistyped id must not look like a success.
async fn missing(backend: &Arc<dyn Backend>, id: &str) -> Result<bool, Fault> {
    match backend.artifact(&connect::call("artifacts"), id).await {
        Ok(_) => Ok(false),
        Err(error) if *error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Fault::infrastructure(error)),
    }
}

async fn delete(options: &BackendOptions, ids: Vec<String>, all: bool) -> Result<Exit, Fault> {
    let backends = connect::connect(&options.names(), &options.config()?, "artifacts").await?;
    if backends.len() > 1 && !all {
        return Err(Fault::usage(anyhow!("ids belong to one backend: name just that one")));
    }
    let mut exit = Exit::Accepted;
    for backend in backends.values() {
        let call = connect::call("artifacts");
        let ids = if all {
            let mut listed = backend.artifacts(&call, &TagQuery::All).await.map_err(Fault::infrastructure)?;
            // Newest first: one may stand on an older one.
            listed.sort_by_key(|artifact| std::cmp::Reverse(artifact.created_at));
            listed.into_iter().map(|artifact| artifact.id).collect()
        } else {
            ids.clone()
        };
        for id in ids {
            if missing(backend, &id).await? {
                say::aside(format_args!("there is no warm artifact {id}; `sandbox-bench artifacts list` shows them"));
                exit = Exit::Usage;
                continue;
            }
            match backend.delete_artifact(&connect::call("artifacts"), &id).await.map_err(Fault::infrastructure)? {
                Destruction::Confirmed => say::result(format_args!("deleted {id}"))?,
                Destruction::Unconfirmed { why } => {
                    say::result(format_args!("not deleted {id}: {why}"))?;
                    exit = Exit::Cleanup;
                }
            }
        }
    }
    Ok(exit)
}
