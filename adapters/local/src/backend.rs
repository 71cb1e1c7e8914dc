//! [`Backend`] for the embedded engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use jiff::Timestamp;
use sandbox_bench_core::{
    Artifact, Backend, BackendInfo, CacheUse, Call, Capabilities, CreateFacts, Created, Destruction, Enforcement,
    Error, ErrorKind, Found, NetworkPolicy, OutputSink, Preflight, Resources, Result, Sandbox, SandboxRef, SandboxSpec,
    SandboxState, Source, Tag, TagQuery,
};
use uuid::Uuid;

use crate::artifact::{artifact, expired};
use crate::engine::{self, Base, Engine, EngineError, EngineOptions, ImageConfig, Limits, Network, SandboxConfig};
use crate::sandbox::{LocalSandbox, Notes};
use crate::{LocalConfig, NAME};

/// The label that carries the correlation tag.
pub(crate) const TAG: &str = "tag";
/// How long it may take to undo a creation that failed or was cancelled.
const UNDO_LIMIT: Duration = Duration::from_secs(20);
/// Programs that environment recipes may need.
const COMMANDS: [&str; 14] =
    ["bash", "cargo", "curl", "gcc", "git", "go", "java", "make", "node", "npm", "patch", "pip3", "python3", "uv"];

/// Sandboxes of this machine.
pub(crate) struct LocalBackend {
    engine: Engine,
    config: LocalConfig,
    info: BackendInfo,
}

/// What a source turned out to be.
struct Resolved {
    base: Base,
    image: ImageConfig,
    identity: String,
    cache: Option<CacheUse>,
}

impl LocalBackend {
    pub(crate) async fn connect(config: LocalConfig) -> Result<LocalBackend> {
        let state_dir = config.state_dir.clone().unwrap_or_else(engine::default_state_dir);
        let engine = Engine::open(state_dir, EngineOptions { helper: config.helper.clone() }).await?;
        let now = Timestamp::now();
        for snapshot in engine.snapshots()?.into_iter().filter(|snapshot| expired(snapshot, now)) {
            engine.delete_snapshot(&snapshot.id).await?;
        }
        if config.cache_days > 0 {
            for path in engine.prune_caches(Duration::from_secs(u64::from(config.cache_days) * 24 * 3600)).await? {
                tracing::info!(path = %path.display(), "removed a cache that was not used");
            }
        }
        let info = BackendInfo {
            name: NAME.to_owned(),
            adapter_version: env!("CARGO_PKG_VERSION").to_owned(),
            backend_version: kernel().map(|release| format!("Linux {release}")),
            api_version: None,
            endpoint: "embedded".to_owned(),
            region: None,
            architecture: std::env::consts::ARCH.to_owned(),
            capabilities: capabilities(&engine, &config),
        };
        Ok(LocalBackend { engine, config, info })
    }

    async fn resolve(&self, source: &Source) -> Result<Resolved> {
        match source {
            Source::Base if self.config.default_base == LocalConfig::HOST => Ok(Resolved {
                base: Base::Host,
                image: ImageConfig::default(),
                identity: self.info.capabilities.base_name.clone(),
                cache: Some(cache_use(self.engine.prepare_host().await?)),
            }),
            Source::Base => self.import(Path::new(&self.config.default_base)).await,
            Source::Image(reference) => match self.config.bases.get(reference) {
                Some(path) => self.import(path).await,
                None => Err(Error::new(
                    ErrorKind::Environment,
                    format!("local: no base is mapped to the image {reference}"),
                )
                .hint("name an archive or root directory for it in `bases`, or use the docker backend")),
            },
            Source::Dockerfile { .. } => Err(self.cannot("build a Dockerfile")),
            Source::Artifact(id) => {
                let snapshot = self.engine.snapshot(id)?;
                let image = Notes::of(&snapshot.labels).image;
                Ok(Resolved {
                    base: Base::Snapshot(id.clone()),
                    image,
                    identity: id.clone(),
                    cache: Some(CacheUse::Hit),
                })
            }
        }
    }

    async fn import(&self, path: &Path) -> Result<Resolved> {
        let imported = self.engine.import(path).await?;
        Ok(Resolved {
            base: Base::Rootfs(imported.rootfs),
            image: imported.config,
            identity: imported.identity,
            cache: Some(cache_use(imported.cached)),
        })
    }

    /// Boots the sandbox and makes its working directory.
    async fn boot(&self, id: &str, spec: &SandboxSpec, resolved: &Resolved) -> Result<(LocalSandbox, Resources)> {
        let network = match &spec.network {
            NetworkPolicy::Public => Network::Host,
            NetworkPolicy::NoNetwork => Network::Off,
            NetworkPolicy::Allowlist(_) => return Err(self.cannot("restrict the network to listed hosts")),
        };
        let limits = Limits {
            memory: spec.resources.memory_mb.map(|mb| mb.saturating_mul(1 << 20)),
            pids: Some(spec.resources.pids.unwrap_or(self.config.pids)),
            cpus: spec.resources.cpus,
            file_size: None,
            open_files: None,
        };
        let workdir = spec.workdir.clone().or_else(|| resolved.image.workdir.clone()).unwrap_or_else(|| "/".into());
        if !workdir.starts_with('/') || workdir.contains('\0') {
            return Err(Error::invalid(format!("local: working directory {workdir:?} is not an absolute path")));
        }
        let granted = granted(&limits, self.engine.facts());
        let notes = Notes { image: resolved.image.clone(), workdir: workdir.clone(), granted: granted.clone() };
        let mut env = resolved.image.env.clone();
        env.extend(spec.env.clone());
        let config = SandboxConfig {
            env,
            network,
            limits,
            labels: BTreeMap::from([(TAG.to_owned(), spec.tag.to_string()), notes.label()]),
            lifetime: Some(spec.lifetime),
            ..SandboxConfig::new(id, resolved.base.clone())
        };
        let sandbox = self.engine.create(config).await?;
        if workdir != "/" {
            // An empty transfer makes its target, without a program of the base.
            sandbox.write_tar(&workdir, None, tokio::io::empty()).await?;
        }
        let reference = SandboxRef { backend: NAME.to_owned(), id: id.to_owned(), tag: spec.tag.clone() };
        Ok((LocalSandbox::new(sandbox, reference, notes), granted))
    }

    /// Removes what came of a creation that did not succeed, so that its error may promise that nothing is left.
    async fn undo(&self, id: &str, tag: &Tag, error: Error) -> Error {
        match tokio::time::timeout(UNDO_LIMIT, self.engine.destroy(id)).await {
            Ok(Ok(())) => error,
            _ => Error::new(
                ErrorKind::UncertainSubmission { tag: tag.clone() },
                format!("local: sandbox {id} could neither be made nor removed"),
            )
            .because(error),
        }
    }
}

#[async_trait]
impl Backend for LocalBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn preflight(&self, call: &Call) -> Result<Preflight> {
        call.meter.api_call();
        let start = Instant::now();
        let sandboxes = self.engine.list()?.len();
        let missing = self.config.bases.iter().filter(|(_, path)| !path.exists());
        let missing = missing.map(|(image, path)| format!("base of {image} does not exist: {}", path.display()));
        Ok(Preflight {
            identity: Some(format!("uid {}", rustix::process::geteuid().as_raw())),
            round_trip_us: start.elapsed().as_micros() as u64,
            clock_offset: None,
            quota: BTreeMap::from([
                ("sandboxes found".to_owned(), sandboxes.to_string()),
                ("state directory".to_owned(), self.engine.state_dir().display().to_string()),
            ]),
            warnings: self.engine.facts().ids_note.clone().into_iter().chain(missing).collect(),
        })
    }

    async fn create(&self, call: &Call, spec: &SandboxSpec, _log: &dyn OutputSink) -> Result<Created> {
        call.meter.api_call();
        let start = Instant::now();
        let resolving = bounded(call, self.resolve(&spec.source));
        let resolved = tokio::time::timeout(spec.environment_limit, resolving).await.unwrap_or_else(|_| {
            let message = format!("local: the base was not unpacked within {:?}", spec.environment_limit);
            Err(Error::new(ErrorKind::Environment, message))
        })?;
        let environment_us = start.elapsed().as_micros() as u64;
        let id = Uuid::now_v7().simple().to_string();
        match bounded(call, self.boot(&id, spec, &resolved)).await {
            Ok((sandbox, granted)) => {
                let facts = CreateFacts {
                    resolved_source: resolved.identity,
                    environment_cache: resolved.cache,
                    environment_us,
                    workdir: Some(sandbox.workdir().to_owned()),
                    granted,
                    provider_times: BTreeMap::new(),
                };
                Ok(Created { sandbox: Arc::new(sandbox), facts })
            }
            Err(error) => Err(self.undo(&id, &spec.tag, error).await),
        }
    }

    async fn attach(&self, call: &Call, reference: &SandboxRef) -> Result<Arc<dyn Sandbox>> {
        call.meter.api_call();
        let lost = || Error::new(ErrorKind::SandboxLost, format!("local: sandbox {} has ended", reference.id));
        let sandbox = match self.engine.attach(&reference.id) {
            Err(EngineError::Foreign(id)) if !self.engine.is_alive(&id) => return Err(lost()),
            result => result?,
        };
        if sandbox.ended() {
            return Err(lost());
        }
        let notes = Notes::of(&sandbox.labels());
        Ok(Arc::new(LocalSandbox::new(sandbox, reference.clone(), notes)))
    }

    async fn find(&self, call: &Call, query: &TagQuery) -> Result<Vec<Found>> {
        call.meter.api_call();
        let found = self.engine.list()?.into_iter().filter_map(|listed| {
            let tag = Tag::parse(listed.labels.get(TAG)?).filter(|tag| query.matches(tag.as_str()))?;
            Some(Found {
                reference: SandboxRef { backend: NAME.to_owned(), id: listed.id, tag },
                state: if listed.alive { SandboxState::Running } else { SandboxState::Stopped },
                created_at: timestamp(listed.created),
            })
        });
        Ok(found.collect())
    }

    async fn destroy(&self, call: &Call, reference: &SandboxRef) -> Result<Destruction> {
        call.meter.api_call();
        let ended = async { Ok(self.engine.destroy(&reference.id).await?) };
        Ok(destruction(bounded(call, ended).await))
    }

    async fn artifact(&self, call: &Call, id: &str) -> Result<Artifact> {
        call.meter.api_call();
        Ok(artifact(&self.engine.snapshot(id)?))
    }

    async fn artifacts(&self, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
        call.meter.api_call();
        let snapshots = self.engine.snapshots()?;
        let ours = snapshots.iter().filter(|snapshot| snapshot.labels.get(TAG).is_some_and(|tag| query.matches(tag)));
        Ok(ours.map(artifact).collect())
    }

    async fn delete_artifact(&self, call: &Call, id: &str) -> Result<Destruction> {
        call.meter.api_call();
        let deleted = async { Ok(self.engine.delete_snapshot(id).await?) };
        Ok(destruction(bounded(call, deleted).await))
    }
}

fn cache_use(hit: bool) -> CacheUse {
    if hit { CacheUse::Hit } else { CacheUse::Miss }
}

fn destruction(result: Result<()>) -> Destruction {
    match result {
        Ok(()) => Destruction::Confirmed,
        Err(error) => Destruction::Unconfirmed { why: error.to_string() },
    }
}

/// Gives up at the call's deadline and soon after its cancellation.
pub(crate) async fn bounded<T>(call: &Call, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        biased;
        result = work => result,
        () = tokio::time::sleep_until(call.deadline) => {
            Err(Error::new(ErrorKind::DeadlineExceeded, "local: not finished by the deadline"))
        }
        () = call.cancel.cancelled() => Err(Error::new(ErrorKind::Cancelled, "local: cancelled")),
    }
}

pub(crate) fn timestamp(time: SystemTime) -> Option<Timestamp> {
    Timestamp::try_from(time).ok()
}

/// The limits that hold or are at least set.
fn granted(limits: &Limits, facts: &engine::Facts) -> Resources {
    let set = |enforcement| enforcement != engine::Enforcement::Absent;
    Resources {
        cpus: limits.cpus.filter(|_| set(facts.limits.cpus)),
        memory_mb: limits.memory.filter(|_| set(facts.limits.memory)).map(|bytes| bytes >> 20),
        disk_mb: None,
        pids: limits.pids.filter(|_| set(facts.limits.pids)),
        gpus: None,
    }
}

fn capabilities(engine: &Engine, config: &LocalConfig) -> Capabilities {
    let facts = engine.facts();
    let enforcement = |enforcement| match enforcement {
        engine::Enforcement::Enforced => Enforcement::Enforced,
        engine::Enforcement::Advisory => Enforcement::Advisory,
        engine::Enforcement::Absent => Enforcement::Absent,
    };
    let (base_name, base_root) = match config.default_base.as_str() {
        LocalConfig::HOST => (format!("host ({})", operating_system(Path::new("/"))), Path::new("/")),
        path => (path.to_owned(), Path::new(path)),
    };
    Capabilities {
        isolation: "namespaces".to_owned(),
        images: false,
        mapped_images: config.bases.keys().cloned().collect(),
        dockerfile: false,
        base: true,
        base_name,
        base_commands: commands_in(base_root),
        separate_streams: true,
        binary_output: true,
        exact_signals: true,
        tree_kill: true,
        reports_oom: facts.reports_oom,
        non_root_user: facts.non_root_user(),
        root_user: true,
        stdin: true,
        network_public: true,
        network_off: true,
        network_allowlist: false,
        snapshot: true,
        snapshot_keeps_sandbox: true,
        build_artifact: false,
        resume: false,
        attach: true,
        attach_across_processes: false,
        find_by_tag: true,
        lifetime: Enforcement::Enforced,
        cpu_limit: enforcement(facts.limits.cpus),
        memory_limit: enforcement(facts.limits.memory),
        pids_limit: enforcement(facts.limits.pids),
        disk_limit: Enforcement::Absent,
        max_upload_bytes: None,
        max_lifetime_seconds: None,
        max_concurrency: None,
        artifact_variable: Some("LOCAL_SNAPSHOT".to_owned()),
    }
}

fn commands_in(root: &Path) -> Vec<String> {
    let directories = ["usr/local/bin", "usr/bin", "bin", "usr/local/sbin", "usr/sbin", "sbin"];
    let there = |name: &&str| directories.iter().any(|directory| root.join(directory).join(name).is_file());
    COMMANDS.into_iter().filter(there).map(str::to_owned).collect()
}

fn operating_system(root: &Path) -> String {
    let release = std::fs::read_to_string(root.join("etc/os-release")).unwrap_or_default();
    let field = |name: &str| {
        let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"').to_owned())
    };
    [field("ID"), field("VERSION_ID")].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn kernel() -> Option<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(release.trim().to_owned())
}
