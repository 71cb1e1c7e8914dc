//! `sandbox-bench artifacts`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use sandbox_bench_core::{Artifact, Backend, Destruction, ErrorKind, TagQuery};

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
    /// Delete warm artifacts that newer ones of the same environment have replaced, that have expired, or that are too old.
    Prune {
        #[command(flatten)]
        backends: BackendOptions,
        /// Delete also what is older than so many days, replaced or not.
        #[arg(long, value_name = "DAYS")]
        older_than: Option<u32>,
        /// Show what would be deleted, and delete nothing.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Runs the command.
///
/// # Errors
/// A backend does not answer.
pub async fn run(args: ArtifactsArgs) -> Result<Exit, Fault> {
    match args.command {
        Command::List { backends, format } => list(&backends, format).await,
        Command::Delete { backends, ids, all: false } => delete(&backends, ids).await,
        Command::Delete { backends, all: true, .. } => delete_where(&backends, false, |artifacts| artifacts).await,
        Command::Prune { backends, older_than, dry_run } => {
            let (day, now) = (Duration::from_secs(24 * 3600), Timestamp::now());
            let oldest = older_than.and_then(|days| now.checked_sub(day * days).ok());
            delete_where(&backends, dry_run, |artifacts| superfluous(artifacts, now, oldest)).await
        }
    }
}

/// The backends that can be used, and the exit code that tells whether these are all. A backend that is away does not
/// hide the others.
async fn reachable(options: &BackendOptions) -> Result<(connect::Backends, Exit), Fault> {
    let config = options.config()?;
    let (mut backends, mut exit) = (connect::Backends::new(), Exit::Accepted);
    for name in options.chosen(&config).await? {
        match connect::connect(std::slice::from_ref(&name), &config, "artifacts").await {
            Ok(one) => backends.extend(one),
            Err(fault) => exit = told(&fault),
        }
    }
    Ok((backends, exit))
}

/// Says what is wrong with one backend; returns what the command then exits with.
fn told(fault: &Fault) -> Exit {
    say::aside(format_args!("error: {fault}"));
    fault.exit
}

fn infrastructure(backend: &str, error: sandbox_bench_core::Error) -> Fault {
    Fault::infrastructure(anyhow!("backend {backend}: {error}"))
}

async fn list(options: &BackendOptions, format: OutputFormat) -> Result<Exit, Fault> {
    let (backends, mut exit) = reachable(options).await?;
    let mut artifacts = Vec::new();
    for (name, backend) in &backends {
        match backend.artifacts(&connect::call("artifacts"), &TagQuery::All).await {
            Ok(listed) => artifacts.extend(listed),
            // A backend that makes none has none.
            Err(error) if *error.kind() == ErrorKind::Unsupported => {}
            Err(error) => exit = told(&infrastructure(name, error)),
        }
    }
    // Newest first: what was made last is what one looks for.
    artifacts.sort_by(|a, b| a.backend.cmp(&b.backend).then(b.created_at.cmp(&a.created_at)).then(a.id.cmp(&b.id)));
    if format == OutputFormat::Json {
        print_json(&artifacts)?;
        return Ok(exit);
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
    Ok(exit)
}

/// Deleting is idempotent at a backend; to a person, a mistyped id must not look like a success.
async fn missing(backend: &Arc<dyn Backend>, id: &str) -> Result<bool, Fault> {
    match backend.artifact(&connect::call("artifacts"), id).await {
        Ok(_) => Ok(false),
        Err(error) if *error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Fault::infrastructure(error)),
    }
}

async fn delete(options: &BackendOptions, ids: Vec<String>) -> Result<Exit, Fault> {
    let backends = connect::connect(&options.names(), &options.config()?, "artifacts").await?;
    let [backend] = backends.values().collect::<Vec<_>>()[..] else {
        return Err(Fault::usage(anyhow!("ids belong to one backend: name just that one")));
    };
    let mut exit = Exit::Accepted;
    for id in ids {
        if missing(backend, &id).await? {
            say::aside(format_args!("there is no warm artifact {id}; `sandbox-bench artifacts list` shows them"));
            exit = Exit::Usage;
        } else {
            exit = delete_one(backend, &id).await?.unwrap_or(exit);
        }
    }
    Ok(exit)
}

/// Deletes what `choose` takes of all artifacts of each backend, or only shows it.
async fn delete_where(
    options: &BackendOptions,
    dry_run: bool,
    choose: impl Fn(Vec<Artifact>) -> Vec<Artifact>,
) -> Result<Exit, Fault> {
    let (backends, mut exit) = reachable(options).await?;
    for (name, backend) in &backends {
        let mut listed = match backend.artifacts(&connect::call("artifacts"), &TagQuery::All).await {
            Ok(listed) => listed,
            Err(error) if *error.kind() == ErrorKind::Unsupported => continue,
            Err(error) => {
                exit = told(&infrastructure(name, error));
                continue;
            }
        };
        // Newest first: one may stand on an older one.
        listed.sort_by_key(|artifact| std::cmp::Reverse(artifact.created_at));
        for Artifact { id, .. } in choose(listed) {
            if dry_run {
                say::result(format_args!("would delete {id}"))?;
                continue;
            }
            match delete_one(backend, &id).await {
                Ok(left) => exit = left.unwrap_or(exit),
                Err(fault) => exit = told(&fault),
            }
        }
    }
    Ok(exit)
}

/// Deletes one; the exit code if that is not confirmed.
async fn delete_one(backend: &Arc<dyn Backend>, id: &str) -> Result<Option<Exit>, Fault> {
    match backend.delete_artifact(&connect::call("artifacts"), id).await.map_err(Fault::infrastructure)? {
        Destruction::Confirmed => {
            say::result(format_args!("deleted {id}"))?;
            Ok(None)
        }
        Destruction::Unconfirmed { why } => {
            say::result(format_args!("not deleted {id}: {why}"))?;
            Ok(Some(Exit::Cleanup))
        }
    }
}

/// Of artifacts, newest first: those whose environment a newer one holds too, those that have expired, and those made
/// before `oldest`. One that does not say which environment it holds, or when it was made, is only what it is known to be.
fn superfluous(newest_first: Vec<Artifact>, now: Timestamp, oldest: Option<Timestamp>) -> Vec<Artifact> {
    let mut seen = BTreeSet::new();
    let mut is_superfluous = |artifact: &Artifact| {
        let usable = artifact.ready && !artifact.expired(now);
        let replaced = artifact.fingerprint.as_ref().is_some_and(|of| usable && !seen.insert(of.to_string()));
        let old = oldest.is_some_and(|oldest| artifact.created_at.is_some_and(|made| made < oldest));
        replaced || old || artifact.expired(now)
    };
    newest_first.into_iter().filter(|artifact| is_superfluous(artifact)).collect()
}

#[cfg(test)]
mod tests {
    use sandbox_bench_core::Digest;

    use super::*;

    #[test]
    fn what_is_replaced_or_too_old_is_superfluous() {
        let at = |day: i64| Timestamp::from_second(day * 86_400).ok();
        let artifact = |id: &str, environment: Option<&str>, day, expires, ready| Artifact {
            backend: "b".into(),
            id: id.into(),
            tag: None,
            fingerprint: environment.map(|text| Digest::of(text.as_bytes())),
            created_at: at(day),
            expires_at: expires,
            size_bytes: None,
            ready,
        };
        let all = vec![
            artifact("being-made", Some("x"), 9, None, false),
            artifact("expired", Some("x"), 9, at(10), true),
            artifact("new", Some("x"), 8, at(11), true),
            artifact("replaced", Some("x"), 7, None, true),
            artifact("nameless", None, 6, None, true),
            artifact("alone", Some("y"), 2, None, true),
        ];
        let now = at(10).unwrap_or_default();
        let ids = |oldest| superfluous(all.clone(), now, oldest).into_iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(ids(None), ["expired", "replaced"]);
        assert_eq!(ids(at(3)), ["expired", "replaced", "alone"]);
    }
}
