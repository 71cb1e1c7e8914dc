//! Connects to the backends that the user named, with the runner's layers around each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use sandbox_bench_core::layers::{RetryPolicy, stack};
use sandbox_bench_core::{Backend, Call, Error, ErrorKind, Grants, Tag};
use sandbox_bench_registry::KNOWN;

use crate::config::Config;
use crate::exit::Fault;
use crate::say;

/// In place of the names of backends: every one that can be used.
const ALL: &str = "all";

/// Limit for connecting and for the preflight.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// Backends by name.
pub type Backends = BTreeMap<String, Arc<dyn Backend>>;

/// Connects to all of `names` and checks each of them before anything is spent.
///
/// # Errors
/// A name is unknown, or a backend does not answer or refuses.
pub async fn connect(names: &[String], config: &Config, run: &str) -> Result<Backends, Fault> {
    let fault = |name: &String, error: Error| {
        let wrong = matches!(error.kind(), ErrorKind::InvalidRequest);
        let file = config.file.as_ref().filter(|_| wrong && config.backend.contains_key(name));
        let file = file.map_or_else(String::new, |file| format!("{}: ", file.display()));
        let fault = anyhow!("{file}backend {name}: {error}");
        if wrong { Fault::usage(fault) } else { Fault::infrastructure(fault) }
    };
    // A mistake in the settings of a backend is told although this run does not use it: the next one may.
    for (name, settings) in &config.backend {
        sandbox_bench_registry::check(name, settings).map_err(|error| fault(name, error))?;
    }
    let mut backends = Backends::new();
    for name in names {
        let backend = connect_one(name, config, run).await.map_err(|error| fault(name, error))?;
        backends.insert(name.clone(), backend);
    }
    Ok(backends)
}

/// `names`, with `all` replaced by every backend of this build.
#[must_use]
pub fn compiled(names: Vec<String>) -> Vec<String> {
    if names == [ALL] {
        return KNOWN.iter().filter(|known| known.compiled).map(|known| known.name.to_owned()).collect();
    }
    names
}

/// `names`, with `all` replaced by every backend that can be used. What cannot is told of, with the reason.
///
/// # Errors
/// `all` stands among others, or none can be used.
pub async fn chosen(names: Vec<String>, config: &Config) -> Result<Vec<String>, Fault> {
    if !names.iter().any(|name| name == ALL) {
        return Ok(names);
    }
    if names.len() > 1 {
        return Err(Fault::usage(anyhow!("the backend {ALL} takes all that can be used: name no others beside it")));
    }
    let mut usable = Vec::new();
    for name in compiled(names) {
        match connect_one(&name, config, "all").await {
            Ok(_) => usable.push(name),
            Err(error) => say::aside(format_args!("left out: backend {name}: {error}")),
        }
    }
    if usable.is_empty() {
        return Err(Fault::infrastructure(anyhow!("no backend can be used; sandbox-bench doctor says more")));
    }
    Ok(usable)
}

/// Connects to one backend and has it checked.
///
/// # Errors
/// What connecting or its preflight fails with.
pub async fn connect_one(name: &str, config: &Config, run: &str) -> sandbox_bench_core::Result<Arc<dyn Backend>> {
    let call = call(run);
    let backend = open(name, config, &call).await?;
    let preflight = backend.preflight(&call).await?;
    for warning in preflight.warnings {
        tracing::info!(backend = name, warning, "preflight");
    }
    Ok(backend)
}

/// Connects to one backend, and checks nothing more.
///
/// # Errors
/// What connecting fails with.
pub async fn open(name: &str, config: &Config, call: &Call) -> sandbox_bench_core::Result<Arc<dyn Backend>> {
    let backend = sandbox_bench_registry::connect(name, &config.backend(name), call).await?;
    Ok(stack(backend, RetryPolicy::default()))
}

/// A call for looking at a backend: it may place nothing.
#[must_use]
pub fn call(run: &str) -> Call {
    Call::new(Tag::new(run, "control"), CONNECT_LIMIT, Arc::new(Grants::default()))
}
