//! A project as a [`Backend`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::Method;
use reqwest::header::DATE;
use sandbox_bench_core::{
    Artifact, Backend, BackendInfo, Call, Capabilities, Created, Destruction, Enforcement, Error, ErrorKind, Found,
    OutputSink, Preflight, Result, Sandbox, SandboxRef, SandboxSpec, Tag, TagQuery,
};
use sandbox_bench_kit::http::Effect;

use crate::api::{Api, accepted, ask};
use crate::component::Template;
use crate::config::PolyaxonConfig;
use crate::error::{lost, not_ours};
use crate::find::Start;
use crate::sandbox::PolyaxonSandbox;
use crate::settings::{Places, Settings};
use crate::wire::Installation;
use crate::{create, destroy, find, status};

/// The name of this backend.
pub(crate) const NAME: &str = "polyaxon";

/// Finds the installation and the project, and asks the installation who it is.
///
/// # Errors
/// `InvalidRequest` for a configuration that makes no sense, `Unavailable` if the installation does not answer,
/// `Credentials`.
pub async fn connect(config: &PolyaxonConfig, call: &Call) -> Result<Arc<dyn Backend>> {
    connect_with(config, &|name| std::env::var(name).ok(), call).await
}

/// As [`connect`], with another environment: `variable` reads a variable of it.
///
/// # Errors
/// As [`connect`].
pub async fn connect_with(
    config: &PolyaxonConfig,
    variable: &(dyn Fn(&str) -> Option<String> + Sync),
    call: &Call,
) -> Result<Arc<dyn Backend>> {
    let here = std::env::current_dir().unwrap_or_default();
    let settings = Settings::find(config, &Places { variable: &|name| variable(name), here: &here })?;
    let template = Template::new(config)?;
    let api = Api::new(&settings, config)?;
    let asked = ask(call, "installation", Effect::Idempotent, api.request(Method::GET, &["installation"])).await;
    let installation: Option<Installation> = match asked {
        Ok(installation) => Some(installation),
        // Not every installation tells everybody. What matters is asked in `preflight`.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Credentials | ErrorKind::Failed) => None,
        Err(e) => return Err(e),
    };
    let info = info(&api, config, &template, installation);
    Ok(Arc::new(PolyaxonBackend { api: Arc::new(api), template, info, user: settings.user }))
}

struct PolyaxonBackend {
    api: Arc<Api>,
    template: Template,
    info: BackendInfo,
    user: Option<String>,
}

impl PolyaxonBackend {
    fn sandbox(&self, id: String, tag: &Tag, (namespace, start): (String, Start)) -> Arc<dyn Sandbox> {
        let reference = SandboxRef { backend: NAME.to_owned(), id, tag: tag.clone() };
        Arc::new(PolyaxonSandbox::new(self.api.clone(), reference, namespace, start))
    }
}

#[async_trait]
impl Backend for PolyaxonBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn preflight(&self, call: &Call) -> Result<Preflight> {
        let project = format!("{}/{}", self.api.owner, self.api.project);
        let (started, asked) = (Instant::now(), Timestamp::now());
        let request = self.api.of_project(Method::GET, &[]);
        let answer = accepted(call, &format!("project {project}"), Effect::Idempotent, request).await;
        let answer = answer.map_err(|e| match e.kind() {
            ErrorKind::NotFound => e.hint(format!("make it: polyaxon project create --name {}", self.api.project)),
            _ => e,
        })?;
        let round_trip = started.elapsed();
        let middle = asked + Timestamp::now().duration_since(asked) / 2;
        let date = answer.headers().get(DATE).and_then(|date| rfc2822::parse(date.to_str().ok()?).ok());
        let mut warnings = Vec::new();
        if self.api.host().starts_with("http://")
            && !self.api.host().contains("://127.")
            && !self.api.host().contains("://localhost")
        {
            warnings.push("the connection to the installation is not encrypted".to_owned());
        }
        Ok(Preflight {
            identity: Some(self.user.as_ref().map_or_else(|| project.clone(), |user| format!("{user} in {project}"))),
            round_trip_us: u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX),
            clock_offset: date.map(|date| date.timestamp().duration_since(middle)),
            quota: BTreeMap::new(),
            warnings,
        })
    }

    async fn create(&self, call: &Call, spec: &SandboxSpec, _log: &dyn OutputSink) -> Result<Created> {
        let up = create::create(&self.api, &self.template, call, spec).await?;
        Ok(Created { sandbox: self.sandbox(up.id, &spec.tag, (up.namespace, Start::of(spec))), facts: up.facts })
    }

    async fn attach(&self, call: &Call, reference: &SandboxRef) -> Result<Arc<dyn Sandbox>> {
        let run = self.api.run(call, &reference.id).await?;
        if find::tag(&run).as_ref() != Some(&reference.tag) {
            return Err(not_ours(ErrorKind::NotFound, reference));
        }
        if status::over(run.status) || run.live_state.is_some_and(|state| state != 1) {
            return Err(lost(&reference.id, "it does not run any more"));
        }
        let namespace = self.api.namespace(call, &run).await?;
        Ok(self.sandbox(run.uuid.clone(), &reference.tag, (namespace, Start::at(&run))))
    }

    async fn find(&self, call: &Call, query: &TagQuery) -> Result<Vec<Found>> {
        find::find(&self.api, call, query).await
    }

    async fn destroy(&self, call: &Call, reference: &SandboxRef) -> Result<Destruction> {
        destroy::destroy(&self.api, call, reference).await
    }

    async fn artifact(&self, _: &Call, id: &str) -> Result<Artifact> {
        let fingerprint = self.api.config.prepulled.get(id).ok_or_else(|| no_artifact(id))?;
        Ok(Artifact {
            backend: NAME.to_owned(),
            id: id.to_owned(),
            tag: None,
            fingerprint: Some(fingerprint.clone()),
            created_at: None,
            expires_at: None,
            size_bytes: None,
            ready: true,
        })
    }
}

/// The error of a warm artifact that is not configured.
pub(crate) fn no_artifact(id: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("polyaxon: no pre-pulled image {id:?} is configured"))
        .hint("list it with the fingerprint of its environment under `prepulled` of this backend")
}

fn info(api: &Api, config: &PolyaxonConfig, template: &Template, installation: Option<Installation>) -> BackendInfo {
    let version = installation.and_then(|told| {
        let version = told.version?;
        Some(told.dist.map_or(version.clone(), |dist| format!("{version} ({dist})")))
    });
    BackendInfo {
        name: NAME.to_owned(),
        adapter_version: env!("CARGO_PKG_VERSION").to_owned(),
        backend_version: version,
        api_version: Some("v1".to_owned()),
        endpoint: api.host().to_owned(),
        region: None,
        architecture: config.architecture.clone(),
        capabilities: Capabilities {
            isolation: "container".to_owned(),
            images: true,
            base: true,
            base_name: template.image().unwrap_or(&config.base_image).to_owned(),
            base_commands: config.base_commands.clone(),
            separate_streams: true,
            binary_output: true,
            tree_kill: true,
            non_root_user: true,
            root_user: true,
            stdin: true,
            network_public: true,
            attach: true,
            attach_across_processes: true,
            find_by_tag: true,
            lifetime: Enforcement::Enforced,
            cpu_limit: Enforcement::Enforced,
            memory_limit: Enforcement::Enforced,
            artifact_variable: Some("POLYAXON_PREPULLED_IMAGE".to_owned()),
            ..Capabilities::default()
        },
    }
}
