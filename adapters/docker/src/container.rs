//! What a sandbox is to the engine: the container's configuration, from a request.

use std::collections::HashMap;

use bollard::models::{ContainerCreateBody, HealthConfig, HostConfig};
use sandbox_bench_core::{Error, NetworkPolicy, Resources, Result, SandboxSpec};
use sandbox_bench_kit::guest::check_variables;

use crate::config::DockerConfig;
use crate::labels;

/// What the first process runs.
const HOLD: &str = include_str!("guest/hold.sh");

/// The configuration of the container that fulfils `spec`, started from `image`.
///
/// Its first process only waits until the sandbox's lifetime is over (`guest/hold.sh`); commands run beside it. The engine's
/// own init would end with its child, and so with the first command that kills all processes it can.
///
/// # Errors
/// `InvalidRequest` or `Unsupported` for what no container can be.
pub(crate) fn body(spec: &SandboxSpec, image: &str, config: &DockerConfig) -> Result<ContainerCreateBody> {
    check_variables(&spec.env)?;
    let seconds = spec.lifetime.as_secs().max(1).to_string();
    Ok(ContainerCreateBody {
        image: Some(image.to_owned()),
        entrypoint: Some(["/bin/sh", "-c", HOLD, "sh", &seconds].map(str::to_owned).to_vec()),
        cmd: Some(Vec::new()),
        working_dir: spec.workdir.clone(),
        labels: Some(HashMap::from([
            (labels::SANDBOX.to_owned(), spec.tag.to_string()),
            (labels::VARIABLES.to_owned(), serde_json::json!(spec.env).to_string()),
        ])),
        // A health check of the image would run commands beside the measured ones.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        host_config: Some(HostConfig {
            init: Some(false),
            network_mode: Some(network(&spec.network, config)?),
            runtime: config.runtime.clone(),
            storage_opt: storage(&spec.resources, config),
            ..limits(&spec.resources)?
        }),
        ..ContainerCreateBody::default()
    })
}

fn network(policy: &NetworkPolicy, config: &DockerConfig) -> Result<String> {
    match policy {
        NetworkPolicy::Public => Ok(config.network.clone().unwrap_or_else(|| "bridge".to_owned())),
        NetworkPolicy::NoNetwork => Ok("none".to_owned()),
        NetworkPolicy::Allowlist(_) => {
            Err(Error::unsupported("the docker backend cannot restrict the network to listed hosts"))
        }
    }
}

fn storage(resources: &Resources, config: &DockerConfig) -> Option<HashMap<String, String>> {
    let size = resources.disk_mb.filter(|_| config.disk_limit)?;
    Some(HashMap::from([("size".to_owned(), format!("{size}m"))]))
}

fn limits(resources: &Resources) -> Result<HostConfig> {
    if resources.gpus.is_some_and(|count| count > 0) {
        return Err(Error::unsupported("the docker backend does not hand out GPUs"));
    }
    let too_large = |what: &str| Error::invalid(format!("{what} is out of range"));
    let nano_cpus = match resources.cpus {
        None => None,
        Some(cpus) if cpus > 0.0 && cpus < 1e6 => Some((cpus * 1e9).round() as i64),
        Some(cpus) => return Err(too_large(&format!("a limit of {cpus} CPUs"))),
    };
    let bytes = |mb: u64| mb.checked_mul(1 << 20).and_then(|bytes| i64::try_from(bytes).ok());
    let memory = match resources.memory_mb {
        None => None,
        Some(mb) => Some(bytes(mb).ok_or_else(|| too_large(&format!("a memory limit of {mb} MiB")))?),
    };
    let pids_limit = match resources.pids {
        None => None,
        Some(pids) => Some(i64::try_from(pids).map_err(|_| too_large("the limit of processes"))?),
    };
    // Swap equal to memory means no swap: a sandbox that needs more than it asked for is to fail, not to crawl.
    Ok(HostConfig { nano_cpus, memory, memory_swap: memory, pids_limit, ..HostConfig::default() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use sandbox_bench_core::{ErrorKind, Source, Tag};

    use super::*;

    fn spec() -> SandboxSpec {
        SandboxSpec::new(Tag::new("run", "unit"), Source::Image("debian".into()))
    }

    #[test]
    fn limits_are_handed_on_in_the_units_of_the_engine() {
        let mut spec = spec();
        spec.resources =
            Resources { cpus: Some(1.5), memory_mb: Some(256), disk_mb: Some(10), pids: Some(99), gpus: None };
        spec.lifetime = Duration::from_secs(90);
        spec.network = NetworkPolicy::NoNetwork;
        let body = body(&spec, "debian", &DockerConfig::default()).unwrap();
        let host = body.host_config.unwrap();
        assert_eq!(host.nano_cpus, Some(1_500_000_000));
        assert_eq!((host.memory, host.memory_swap), (Some(256 << 20), Some(256 << 20)));
        assert_eq!(host.pids_limit, Some(99));
        assert_eq!(host.storage_opt, None, "only where it was switched on");
        assert_eq!(host.network_mode.as_deref(), Some("none"));
        assert_eq!(body.entrypoint.unwrap().last().map(String::as_str), Some("90"));
        assert_eq!(body.labels.unwrap()[labels::SANDBOX], "sbx-run--unit");
    }

    #[test]
    fn impossible_requests_are_refused_before_anything_is_sent() {
        let refused = |change: fn(&mut SandboxSpec)| {
            let mut spec = spec();
            change(&mut spec);
            body(&spec, "debian", &DockerConfig::default()).unwrap_err().kind().clone()
        };
        assert_eq!(refused(|s| s.resources.cpus = Some(f64::NAN)), ErrorKind::InvalidRequest);
        assert_eq!(refused(|s| s.resources.cpus = Some(-1.0)), ErrorKind::InvalidRequest);
        assert_eq!(refused(|s| s.resources.memory_mb = Some(u64::MAX)), ErrorKind::InvalidRequest);
        assert_eq!(refused(|s| s.resources.gpus = Some(1)), ErrorKind::Unsupported);
        assert_eq!(refused(|s| s.network = NetworkPolicy::Allowlist(vec!["a".into()])), ErrorKind::Unsupported);
        assert_eq!(refused(|s| drop(s.env.insert("A=B".into(), String::new()))), ErrorKind::InvalidRequest);
    }
}
