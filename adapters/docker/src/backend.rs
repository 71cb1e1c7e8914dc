//! The engine as a [`Backend`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bollard::models::{ContainerSummary, ContainerSummaryStateEnum as State, SystemInfo};
use bollard::query_parameters::ListContainersOptionsBuilder;
use jiff::Timestamp;
use sandbox_bench_core::{
    Artifact, ArtifactSpec, Backend, BackendInfo, Call, Capabilities, Created, Destruction, Enforcement, Error,
    ErrorKind, Found, OutputSink, Preflight, Result, Sandbox, SandboxRef, SandboxSpec, SandboxState, Tag, TagQuery,
};

use crate::client::{Engine, checked, request};
use crate::config::DockerConfig;
use crate::image::Images;
use crate::sandbox::DockerSandbox;
use crate::{artifact, create, labels, observe};

const NAME: &str = "docker";

/// Connects to the engine that `config` names, or else to the first that answers in the usual places.
///
/// # Errors
/// `Unavailable` if none answers, `Credentials` if its socket may not be opened, `InvalidRequest` for an address of a
/// kind that is not supported (TLS and SSH are not; forward the socket instead).
pub async fn connect(config: &DockerConfig, call: &Call) -> Result<Arc<dyn Backend>> {
    let engine = Engine::connect(config, call).await?;
    let info = info(&engine);
    Ok(Arc::new(DockerBackend { engine: Arc::new(engine), info, images: Images::default() }))
}

struct DockerBackend {
    engine: Arc<Engine>,
    info: BackendInfo,
    images: Images,
}

impl DockerBackend {
    fn sandbox(&self, id: String, tag: &Tag, variables: BTreeMap<String, String>) -> Arc<dyn Sandbox> {
        let reference = SandboxRef { backend: NAME.to_owned(), id, tag: tag.clone() };
        Arc::new(DockerSandbox::new(self.engine.clone(), reference, variables))
    }
}

#[async_trait]
impl Backend for DockerBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn preflight(&self, call: &Call) -> Result<Preflight> {
        let engine = &self.engine;
        let started = Instant::now();
        request(call, "engine", engine.docker.ping()).await?;
        let round_trip = started.elapsed();
        let asked = Timestamp::now();
        let system = request(call, "engine", engine.docker.info()).await?;
        let answered = Timestamp::now();
        let middle = asked + answered.duration_since(asked) / 2;
        let clock = system.system_time.as_deref().and_then(observe::timestamp);
        Ok(Preflight {
            identity: Some(identity(&system)),
            round_trip_us: u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX),
            clock_offset: clock.map(|clock| clock.duration_since(middle)),
            quota: quota(&system),
            warnings: system.warnings.unwrap_or_default(),
        })
    }

    async fn create(&self, call: &Call, spec: &SandboxSpec, log: &dyn OutputSink) -> Result<Created> {
        let (id, facts) = create::create(&self.engine, &self.images, call, spec, log).await?;
        Ok(Created { sandbox: self.sandbox(id, &spec.tag, spec.env.clone()), facts })
    }

    async fn attach(&self, call: &Call, reference: &SandboxRef) -> Result<Arc<dyn Sandbox>> {
        let id = checked("a container", &reference.id)?;
        let seen = observe::inspect(&self.engine, call, id).await?;
        if observe::tag(&seen) != Some(reference.tag.as_str()) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("container {id} is not the sandbox {}", reference.tag),
            ));
        }
        if !observe::running(&seen) {
            return Err(observe::ended(id, seen.state.as_ref()));
        }
        let variables = observe::variables(&seen);
        Ok(self.sandbox(seen.id.unwrap_or_else(|| id.to_owned()), &reference.tag, variables))
    }

    async fn find(&self, call: &Call, query: &TagQuery) -> Result<Vec<Found>> {
        let filter = labels::filter(labels::SANDBOX, query);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filter).build();
        let containers = request(call, "list of sandboxes", self.engine.docker.list_containers(Some(options))).await?;
        Ok(containers.into_iter().filter_map(|container| found(container, query)).collect())
    }

    async fn destroy(&self, call: &Call, reference: &SandboxRef) -> Result<Destruction> {
        let id = checked("a container", &reference.id)?;
        match observe::inspect(&self.engine, call, id).await {
            Ok(seen) if observe::tag(&seen) == Some(reference.tag.as_str()) => {
                create::remove(&self.engine, call, id).await
            }
            Ok(_) => {
                let message = format!("container {id} is not the sandbox {}; it is not removed", reference.tag);
                Err(Error::invalid(message))
            }
            Err(e) if *e.kind() == ErrorKind::NotFound => Ok(Destruction::Confirmed),
            Err(e) => Err(e),
        }
    }

    async fn build_artifact(&self, call: &Call, spec: &ArtifactSpec, log: &dyn OutputSink) -> Result<Artifact> {
        artifact::build(&self.engine, call, spec, log).await
    }

    async fn artifact(&self, call: &Call, id: &str) -> Result<Artifact> {
        artifact::find(&self.engine, call, id).await
    }

    async fn artifacts(&self, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
        artifact::list(&self.engine, call, query).await
    }

    async fn delete_artifact(&self, call: &Call, id: &str) -> Result<Destruction> {
        artifact::delete(&self.engine, call, id).await
    }
}

fn found(container: ContainerSummary, query: &TagQuery) -> Option<Found> {
    let label = container.labels.as_ref()?.get(labels::SANDBOX)?;
    let tag = Tag::parse(label).filter(|tag| query.matches(tag.as_str()))?;
    let state = match container.state {
        Some(State::CREATED) => SandboxState::Starting,
        Some(State::RUNNING | State::PAUSED | State::RESTARTING) => SandboxState::Running,
        Some(State::EXITED | State::DEAD | State::REMOVING | State::STOPPING) => SandboxState::Stopped,
        Some(State::EMPTY) | None => SandboxState::Unknown,
    };
    Some(Found {
        reference: SandboxRef { backend: NAME.to_owned(), id: container.id?, tag },
        state,
        created_at: container.created.and_then(|seconds| Timestamp::from_second(seconds).ok()),
    })
}

fn info(engine: &Engine) -> BackendInfo {
    let Engine { config, system, .. } = engine;
    let platform = config.platform.as_deref().and_then(|name| name.split('/').nth(1));
    BackendInfo {
        name: NAME.to_owned(),
        adapter_version: env!("CARGO_PKG_VERSION").to_owned(),
        backend_version: system.server_version.clone(),
        api_version: Some(engine.docker.client_version().to_string()),
        endpoint: engine.endpoint.clone(),
        region: None,
        architecture: platform.or(system.architecture.as_deref()).unwrap_or("unknown").to_owned(),
        capabilities: capabilities(config, system),
    }
}

fn capabilities(config: &DockerConfig, system: &SystemInfo) -> Capabilities {
    let enforced = |probed: Option<bool>| match probed {
        Some(true) => Enforcement::Enforced,
        _ => Enforcement::Absent,
    };
    let isolation = isolation(config.runtime.as_deref().or(system.default_runtime.as_deref()));
    Capabilities {
        images: true,
        dockerfile: true,
        base: true,
        base_name: config.base_image.clone(),
        base_commands: config.base_commands.clone(),
        separate_streams: true,
        binary_output: true,
        exact_signals: false,
        tree_kill: true,
        // Other kernels than the host's do not show the container's control group to its processes.
        reports_oom: isolation == "container" && system.memory_limit == Some(true),
        isolation: isolation.to_owned(),
        non_root_user: true,
        root_user: true,
        stdin: true,
        network_public: true,
        network_off: true,
        network_allowlist: false,
        snapshot: true,
        snapshot_keeps_sandbox: true,
        build_artifact: true,
        attach: true,
        attach_across_processes: true,
        find_by_tag: true,
        lifetime: Enforcement::Enforced,
        cpu_limit: enforced(system.cpu_cfs_quota),
        memory_limit: enforced(system.memory_limit),
        pids_limit: enforced(system.pids_limit),
        disk_limit: enforced(Some(config.disk_limit)),
        artifact_variable: Some("DOCKER_SNAPSHOT".to_owned()),
        ..Capabilities::default()
    }
}

fn isolation(runtime: Option<&str>) -> &'static str {
    match runtime {
        Some(name) if name.contains("runsc") => "gvisor",
        Some(name) if name.contains("kata") => "microvm",
        _ => "container",
    }
}

fn identity(system: &SystemInfo) -> String {
    let name = system.name.as_deref().unwrap_or("unnamed");
    let id = system.id.as_deref().unwrap_or("unknown");
    format!("engine {id} on {name}")
}

fn quota(system: &SystemInfo) -> BTreeMap<String, String> {
    let rootless = system.security_options.iter().flatten().any(|option| option.contains("name=rootless"));
    [
        ("cpus", system.ncpu.map(|n| n.to_string())),
        ("memory_bytes", system.mem_total.map(|n| n.to_string())),
        ("containers_running", system.containers_running.map(|n| n.to_string())),
        ("storage_driver", system.driver.clone()),
        ("default_runtime", system.default_runtime.clone()),
        ("cgroup_version", system.cgroup_version.map(|version| version.to_string())),
        ("rootless", Some(rootless.to_string())),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_follow_what_the_engine_can_enforce() {
        let engine = SystemInfo { memory_limit: Some(true), pids_limit: Some(false), ..SystemInfo::default() };
        let found = capabilities(&DockerConfig::default(), &engine);
        assert_eq!((found.memory_limit, found.pids_limit), (Enforcement::Enforced, Enforcement::Absent));
        assert_eq!((found.cpu_limit, found.disk_limit), (Enforcement::Absent, Enforcement::Absent));
        assert!(found.reports_oom);
        let gvisor = DockerConfig { runtime: Some("runsc".into()), ..DockerConfig::default() };
        let found = capabilities(&gvisor, &engine);
        assert_eq!((found.isolation.as_str(), found.reports_oom), ("gvisor", false));
    }

    #[test]
    fn images_of_ours_do_not_make_somebody_elses_container_a_sandbox() {
        let labels = |tag: &str| Some([(labels::SANDBOX.to_owned(), tag.to_owned())].into());
        let container = |tag| ContainerSummary { id: Some("12".into()), labels: labels(tag), ..Default::default() };
        assert!(found(container(""), &TagQuery::All).is_none());
        assert!(found(container("sbx-a--b"), &TagQuery::All).is_some());
        assert!(found(container("sbx-a--b"), &TagQuery::Run("c".into())).is_none());
    }
}
