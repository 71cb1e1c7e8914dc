//! The service as a [`Backend`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use sandbox_bench_core::{
    Artifact, ArtifactSpec, Backend, BackendInfo, Call, Capabilities, Created, Destruction, Enforcement, Error,
    ErrorKind, Found, OutputSink, Preflight, Resources, Result, Sandbox, SandboxRef, SandboxSpec, Tag, TagQuery,
};
use sandbox_bench_kit::http::Effect;

use crate::cloud::{Cloud, ask};
use crate::config::{AwsMicrovmConfig, LONGEST, Settings};
use crate::create::Run;
use crate::image::Images;
use crate::program::Program;
use crate::sandbox::{Defaults, MicrovmSandbox};
use crate::size::Size;
use crate::vm::Vm;
use crate::{artifact, create, destroy, error, find};

/// The backend's name.
pub(crate) const NAME: &str = "aws-microvm";
/// Regions that had the service in August 2026, by the developer guide.
const REGIONS: [&str; 10] = [
    "us-east-1",
    "us-east-2",
    "us-west-2",
    "eu-west-1",
    "ap-northeast-1",
    "ap-south-1",
    "ap-southeast-1",
    "ap-southeast-2",
    "eu-central-1",
    "eu-north-1",
];

/// The service, with `config` over what the environment says. Nothing is asked of it yet.
///
/// # Errors
/// `InvalidRequest` for a setting that cannot be used, `Credentials` for half a key.
pub async fn connect(config: &AwsMicrovmConfig) -> Result<Arc<dyn Backend>> {
    connect_with(config, |name| std::env::var(name).ok()).await
}

/// As [`connect`], with `variable` for the variables of the environment.
///
/// # Errors
/// As [`connect`].
pub async fn connect_with(
    config: &AwsMicrovmConfig,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Arc<dyn Backend>> {
    let settings = config.resolved(&variable)?;
    let cloud = Arc::new(Cloud::new(settings, &variable).await?);
    let info = info(&cloud);
    let state = State { cloud, images: Arc::default(), program: OnceLock::new(), memory: Mutex::default() };
    Ok(Arc::new(MicrovmBackend { state, info }))
}

/// What the backend's operations share.
pub(crate) struct State {
    pub(crate) cloud: Arc<Cloud>,
    pub(crate) images: Arc<Images>,
    program: OnceLock<Arc<Program>>,
    memory: Mutex<Memory>,
}

/// What this process has made, and not yet seen gone.
#[derive(Default)]
struct Memory {
    vms: HashMap<String, Arc<Vm>>,
    defaults: HashMap<String, Defaults>,
    pending: HashMap<Tag, Run>,
}

impl State {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The runner that images are given.
    ///
    /// # Errors
    /// As [`Program::find`].
    pub(crate) fn program(&self) -> Result<Arc<Program>> {
        if let Some(program) = self.program.get() {
            return Ok(program.clone());
        }
        let settings = &self.cloud.settings;
        let program = Arc::new(Program::find(settings.runner.as_deref(), settings.architecture)?);
        Ok(self.program.get_or_init(|| program).clone())
    }

    pub(crate) fn remember(&self, vm: Arc<Vm>) {
        self.memory().vms.insert(vm.id.clone(), vm);
    }

    pub(crate) fn known(&self, id: &str) -> Option<Arc<Vm>> {
        self.memory().vms.get(id).cloned()
    }

    pub(crate) fn all_known(&self) -> Vec<Arc<Vm>> {
        self.memory().vms.values().cloned().collect()
    }

    pub(crate) fn forget(&self, id: &str) -> Option<Arc<Vm>> {
        let mut memory = self.memory();
        memory.defaults.remove(id);
        memory.vms.remove(id)
    }

    /// Keeps a request of which it is not known what came of it.
    pub(crate) fn keep_pending(&self, run: Run) {
        self.memory().pending.insert(run.tag().clone(), run);
    }

    pub(crate) fn pending(&self, meant: impl Fn(&Tag) -> bool) -> Vec<Run> {
        self.memory().pending.values().filter(|run| meant(run.tag())).cloned().collect()
    }

    pub(crate) fn settled(&self, run: &Run) {
        self.memory().pending.remove(run.tag());
    }
}

/// How a sandbox is named.
pub(crate) fn reference(id: &str, tag: &Tag) -> SandboxRef {
    SandboxRef { backend: NAME.to_owned(), id: id.to_owned(), tag: tag.clone() }
}

struct MicrovmBackend {
    state: State,
    info: BackendInfo,
}

#[async_trait]
impl Backend for MicrovmBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn preflight(&self, call: &Call) -> Result<Preflight> {
        let cloud = &self.state.cloud;
        let started = Instant::now();
        let request = cloud.lambda.list_microvm_images().max_results(1);
        ask(call, "preflight", Effect::Idempotent, request.send()).await?;
        Ok(Preflight {
            identity: cloud.identity.clone(),
            round_trip_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            clock_offset: None,
            quota: BTreeMap::from([(
                "account memory, as configured".to_owned(),
                format!("{} GB", cloud.settings.account_memory_gb),
            )]),
            warnings: warnings(&cloud.settings),
        })
    }

    async fn create(&self, call: &Call, spec: &SandboxSpec, log: &dyn OutputSink) -> Result<Created> {
        let (vm, facts) = create::create(&self.state, call, spec, log).await?;
        let defaults = Defaults { workdir: spec.workdir.clone(), env: spec.env.clone() };
        self.state.memory().defaults.insert(vm.id.clone(), defaults.clone());
        Ok(Created { sandbox: Arc::new(MicrovmSandbox::new(vm, defaults)), facts })
    }

    async fn attach(&self, call: &Call, reference: &SandboxRef) -> Result<Arc<dyn Sandbox>> {
        let SandboxRef { id, tag, .. } = reference;
        let absent =
            |why: &str| Error::new(ErrorKind::NotFound, format!("there is no sandbox {id:?} with the tag {tag}{why}"));
        if !destroy::is_id(id) {
            return Err(absent(""));
        }
        let Some(vm) = self.state.known(id).filter(|vm| vm.tag == *tag) else {
            return match self.state.cloud.microvm(call, id).await {
                Ok(seen) if crate::cloud::over(&seen.state) => Err(error::lost(id, seen.state_reason.as_deref())),
                Ok(_) => Err(absent(" of this process: another one has the token of its runner")),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidRequest) => {
                    Err(absent(""))
                }
                Err(error) => Err(error),
            };
        };
        vm.look(call).await?;
        let defaults = self.state.memory().defaults.get(id).cloned().unwrap_or_default();
        Ok(Arc::new(MicrovmSandbox::new(vm, defaults)))
    }

    async fn find(&self, call: &Call, query: &TagQuery) -> Result<Vec<Found>> {
        find::find(&self.state, call, query).await
    }

    async fn destroy(&self, call: &Call, reference: &SandboxRef) -> Result<Destruction> {
        destroy::destroy(&self.state, call, &reference.id).await
    }

    async fn build_artifact(&self, call: &Call, spec: &ArtifactSpec, log: &dyn OutputSink) -> Result<Artifact> {
        artifact::build(&self.state, call, spec, log).await
    }

    async fn artifact(&self, call: &Call, id: &str) -> Result<Artifact> {
        artifact::find(&self.state.cloud, call, id).await
    }

    async fn artifacts(&self, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
        artifact::list(&self.state.cloud, call, query).await
    }

    async fn delete_artifact(&self, call: &Call, id: &str) -> Result<Destruction> {
        artifact::delete(&self.state.cloud, call, id).await
    }
}

fn warnings(settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    if !REGIONS.contains(&settings.region.as_str()) {
        warnings.push(format!("the region {} was not known to have Lambda MicroVMs in August 2026", settings.region));
    }
    if settings.bucket.is_none() || settings.build_role_arn.is_none() {
        warnings.push(
            "no bucket or no build role is set (AWS_MICROVM_ARTIFACT_BUCKET, AWS_MICROVM_BUILD_ROLE_ARN): only images \
             that are there can be started from"
                .to_owned(),
        );
    }
    if settings.runner.is_none() {
        warnings.push(
            "AWS_MICROVM_RUNNER is not set: each image build compiles the runner from its sources, which takes minutes"
                .to_owned(),
        );
    }
    if settings.execution_role_arn.is_some() {
        warnings.push("an execution role is set: every command in a sandbox can use it".to_owned());
    }
    warnings
}

fn info(cloud: &Cloud) -> BackendInfo {
    let settings = &cloud.settings;
    BackendInfo {
        name: NAME.to_owned(),
        adapter_version: env!("CARGO_PKG_VERSION").to_owned(),
        backend_version: None,
        api_version: Some("2025-09-09".to_owned()),
        endpoint: cloud.endpoint(),
        region: Some(settings.region.clone()),
        architecture: settings.architecture.machine().to_owned(),
        capabilities: capabilities(settings),
    }
}

fn capabilities(settings: &Settings) -> Capabilities {
    let default = Size::fitting(&Resources::default(), settings.sizing).map_or(2, |size| size.memory_mb.div_ceil(1024));
    let fitting = u32::try_from(u64::from(settings.account_memory_gb) / default.max(1)).unwrap_or(u32::MAX).max(1);
    Capabilities {
        isolation: "microvm".to_owned(),
        images: true,
        mapped_images: Vec::new(),
        dockerfile: true,
        base: true,
        base_name: settings.base_image.clone(),
        base_commands: settings.base_commands.clone(),
        separate_streams: true,
        binary_output: true,
        exact_signals: false,
        tree_kill: true,
        reports_oom: false,
        non_root_user: true,
        root_user: true,
        stdin: true,
        network_public: true,
        network_off: settings.no_network.is_some(),
        network_allowlist: false,
        snapshot: true,
        snapshot_keeps_sandbox: true,
        build_artifact: true,
        resume: true,
        attach: true,
        attach_across_processes: false,
        find_by_tag: true,
        // It ends, and nothing of it can then be found by its tag.
        lifetime: Enforcement::Advisory,
        cpu_limit: Enforcement::Advisory,
        memory_limit: Enforcement::Advisory,
        pids_limit: Enforcement::Absent,
        // It comes with the size, and is never less than asked for.
        disk_limit: Enforcement::Advisory,
        max_upload_bytes: None,
        max_lifetime_seconds: Some(LONGEST),
        max_concurrency: Some(settings.concurrency.unwrap_or(fitting)),
        artifact_variable: Some("AWS_MICROVM_IMAGE_ID".to_owned()),
    }
}
