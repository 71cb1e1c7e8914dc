//! The one place that knows the names of backends and trackers: turns a name and its configuration into a connected one.

use std::sync::Arc;

use sandbox_bench_core::{Backend, Call, Error, Result, SandboxSpec, Tracker};
use serde::de::DeserializeOwned;

/// A backend that this project has an adapter for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// False if this build leaves it out.
    pub compiled: bool,
}

/// All backends, in the order in which they are shown.
pub const KNOWN: &[Known] = &[
    Known {
        name: "local",
        about: "Linux namespaces on this machine; no daemon, no account",
        compiled: cfg!(all(feature = "local", target_os = "linux")),
    },
    Known { name: "docker", about: "Docker Engine or Podman, by its socket", compiled: cfg!(feature = "docker") },
    Known {
        name: "polyaxon",
        about: "Polyaxon, service runs of a project through the sandbox gateway",
        compiled: cfg!(feature = "polyaxon"),
    },
    Known { name: "daytona", about: "Daytona, by its API (v0)", compiled: cfg!(feature = "daytona") },
    Known { name: "modal", about: "Modal Sandboxes (V2), over gRPC", compiled: cfg!(feature = "modal") },
    Known { name: "vercel", about: "Vercel Sandbox, microVMs by its API", compiled: cfg!(feature = "vercel") },
    Known {
        name: "aws-microvm",
        about: "AWS Lambda MicroVMs, by the vendor's client",
        compiled: cfg!(feature = "aws-microvm"),
    },
];

/// Connects to the backend `name`, as its table of the configuration says.
///
/// # Errors
/// `InvalidRequest` for an unknown name, a backend that is not compiled in, or a wrong configuration; else what
/// connecting fails with.
pub async fn connect(name: &str, config: &toml::Table, call: &Call) -> Result<Arc<dyn Backend>> {
    let _ = (config, call);
    match name {
        #[cfg(all(feature = "local", target_os = "linux"))]
        "local" => sandbox_bench_local::connect(parse(name, config)?).await,
        #[cfg(feature = "docker")]
        "docker" => sandbox_bench_docker::connect(&parse(name, config)?, call).await,
        #[cfg(feature = "polyaxon")]
        "polyaxon" => sandbox_bench_polyaxon::connect(&parse(name, config)?, call).await,
        #[cfg(feature = "daytona")]
        "daytona" => sandbox_bench_daytona::connect(&parse(name, config)?, call).await,
        #[cfg(feature = "modal")]
        "modal" => sandbox_bench_modal::connect(&parse(name, config)?),
        #[cfg(feature = "vercel")]
        "vercel" => sandbox_bench_vercel::connect(&parse(name, config)?),
        #[cfg(feature = "aws-microvm")]
        "aws-microvm" => sandbox_bench_aws_microvm::connect(&parse(name, config)?).await,
        _ => Err(missing(name)),
    }
}

/// Reads the table of the backend `name` without connecting: a mistake in it is told although nothing of it is used. Of a backend
/// that is not compiled in nothing is known.
///
/// # Errors
/// `InvalidRequest`, naming what is wrong.
pub fn check(name: &str, config: &toml::Table) -> Result<()> {
    let _ = config;
    match name {
        #[cfg(all(feature = "local", target_os = "linux"))]
        "local" => parse::<sandbox_bench_local::LocalConfig>(name, config).map(drop),
        #[cfg(feature = "docker")]
        "docker" => parse::<sandbox_bench_docker::DockerConfig>(name, config).map(drop),
        #[cfg(feature = "polyaxon")]
        "polyaxon" => parse::<sandbox_bench_polyaxon::PolyaxonConfig>(name, config).map(drop),
        #[cfg(feature = "daytona")]
        "daytona" => parse::<sandbox_bench_daytona::DaytonaConfig>(name, config).map(drop),
        #[cfg(feature = "modal")]
        "modal" => parse::<sandbox_bench_modal::ModalConfig>(name, config).map(drop),
        #[cfg(feature = "vercel")]
        "vercel" => parse::<sandbox_bench_vercel::VercelConfig>(name, config).map(drop),
        #[cfg(feature = "aws-microvm")]
        "aws-microvm" => parse::<sandbox_bench_aws_microvm::AwsMicrovmConfig>(name, config).map(drop),
        _ => Ok(()),
    }
}

/// The backend's own form of the request for `spec`, as JSON text, where it has one that a person writes and reads: Polyaxon's
/// operation.
///
/// # Errors
/// `InvalidRequest` or `Unsupported` for what the backend would not take.
pub fn component(name: &str, config: &toml::Table, spec: &SandboxSpec) -> Result<Option<String>> {
    let _ = (config, spec);
    match name {
        #[cfg(feature = "polyaxon")]
        "polyaxon" => sandbox_bench_polyaxon::component(&parse(name, config)?, spec).map(Some),
        _ => Ok(None),
    }
}

/// All services that evidence can be tracked with.
pub const TRACKERS: &[&str] = &["polyaxon"];

/// The tracker `name`, as its own table of the configuration says, and where that is silent that of the backend of the same
/// name. Sends nothing.
///
/// # Errors
/// `InvalidRequest` for an unknown name, a tracker that is not compiled in, or a wrong configuration; `Credentials`.
pub fn tracker(name: &str, config: &toml::Table, backend: &toml::Table) -> Result<Arc<dyn Tracker>> {
    let _ = (config, backend);
    match name {
        #[cfg(feature = "polyaxon")]
        "polyaxon" => {
            let own = config.clone().try_into();
            let own = own.map_err(|e| Error::invalid(format!("configuration of the tracker {name}")).because(e))?;
            sandbox_bench_polyaxon::tracker(&own, &parse(name, backend)?)
        }
        _ if TRACKERS.contains(&name) => Err(missing(name)),
        _ => {
            let known = TRACKERS.join(", ");
            Err(Error::invalid(format!("unknown tracker {name:?}")).hint(format!("known trackers: {known}")))
        }
    }
}

#[allow(dead_code, reason = "unused when no backend is compiled in")]
fn parse<T: DeserializeOwned>(name: &str, config: &toml::Table) -> Result<T> {
    config.clone().try_into().map_err(|e| Error::invalid(format!("configuration of the backend {name}")).because(e))
}

fn missing(name: &str) -> Error {
    match KNOWN.iter().find(|known| known.name == name) {
        Some(_) if name == "local" && !cfg!(target_os = "linux") => {
            Error::invalid("the local backend needs Linux").hint("use the docker backend")
        }
        Some(_) => Error::invalid(format!("this build has no {name} backend"))
            .hint(format!("build it in: cargo build --release -p sandbox-bench --features {name}")),
        None => {
            let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
            Error::invalid(format!("unknown backend {name:?}")).hint(format!("known backends: {}", names.join(", ")))
        }
    }
}

/// Turns this process into the helper of the local backend if it was started as such, and then never returns. Call it
/// first in `main`, while the process has one thread.
#[cfg(all(feature = "local", target_os = "linux"))]
pub fn local_helper_if_requested() {
    sandbox_bench_local::engine::helper_main_if_requested();
}
