//! The service as a [`Backend`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use reqwest::header::{DATE, HeaderMap};
use sandbox_bench_core::{
    Artifact, Backend, BackendInfo, Call, Capabilities, Created, Destruction, Enforcement, Error, ErrorKind, Found,
    OutputSink, Preflight, Result, Sandbox, SandboxRef, SandboxSpec, Tag, TagQuery,
};
use sandbox_bench_kit::http::{Effect, ask};

use crate::client::Api;
use crate::config::VercelConfig;
use crate::credentials::Credentials;
use crate::labels::Labels;
use crate::sandbox::VercelSandbox;
use crate::wire::{Opened, Session};
use crate::{artifact, create, destroy, error, observe};

/// The backend's name.
pub(crate) const NAME: &str = "vercel";
/// A token that ends sooner than this is worth a warning: runs take hours.
const SOON: SignedDuration = SignedDuration::from_hours(3);

/// The service, with `config` over what the environment says. Nothing is asked of it yet.
///
/// # Errors
/// `Credentials` if there are none, `InvalidRequest` for an address that is none.
pub fn connect(config: &VercelConfig) -> Result<Arc<dyn Backend>> {
    connect_with(config, |name| std::env::var(name).ok())
}

/// As [`connect`], with `variable` for the variables of the environment.
///
/// # Errors
/// As [`connect`].
pub fn connect_with(
    config: &VercelConfig,
    variable: impl Fn(&str) -> Option<String> + Copy,
) -> Result<Arc<dyn Backend>> {
    let config = config.resolved(variable);
    let credentials = Credentials::resolve(&config, variable)?;
    let api = Api::new(config, credentials)?;
    let info = info(&api);
    Ok(Arc::new(VercelBackend { api: Arc::new(api), info }))
}

struct VercelBackend {
    api: Arc<Api>,
    info: BackendInfo,
}

impl VercelBackend {
    fn sandbox(&self, tag: &Tag, session: Session, workdir: Option<String>) -> Arc<dyn Sandbox> {
        Arc::new(VercelSandbox::new(self.api.clone(), reference(tag), session, workdir))
    }
}

/// Sandboxes are named by their tags.
fn reference(tag: &Tag) -> SandboxRef {
    SandboxRef { backend: NAME.to_owned(), id: tag.to_string(), tag: tag.clone() }
}

#[async_trait]
impl Backend for VercelBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn preflight(&self, call: &Call) -> Result<Preflight> {
        let Credentials { team, project, .. } = &self.api.credentials;
        let request = self.api.request(Method::GET, &["v2", "sandboxes"]);
        let request = request.query(&[("project", project.as_str()), ("limit", "1")]);
        let (started, asked) = (Instant::now(), Timestamp::now());
        let answer = ask(call, "preflight", Effect::Idempotent, request).await?;
        let (round_trip, answered) = (started.elapsed(), Timestamp::now());
        let answer = answer.map_err(|refusal| error::refused("preflight", Effect::Idempotent, &refusal))?;
        let middle = asked + answered.duration_since(asked) / 2;
        Ok(Preflight {
            identity: Some(format!("team {team}, project {project}")),
            round_trip_us: u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX),
            clock_offset: date(answer.headers()).map(|clock| clock.duration_since(middle)),
            quota: quota(answer.headers()),
            warnings: expiry(&self.api.credentials, Timestamp::now()).into_iter().collect(),
        })
    }

    async fn create(&self, call: &Call, spec: &SandboxSpec, _: &dyn OutputSink) -> Result<Created> {
        let (opened, facts) = create::create(&self.api, call, spec).await?;
        Ok(Created { sandbox: self.sandbox(&spec.tag, opened.session, spec.workdir.clone()), facts })
    }

    async fn attach(&self, call: &Call, reference: &SandboxRef) -> Result<Arc<dyn Sandbox>> {
        let SandboxRef { id, tag, .. } = reference;
        let absent = || Error::new(ErrorKind::NotFound, format!("there is no sandbox {id:?} with the tag {tag}"));
        if id != tag.as_str() {
            return Err(absent());
        }
        let Opened { sandbox, session } = self.api.find(call, id).await?.ok_or_else(absent)?;
        let labels = Labels::read(sandbox.tags.as_ref());
        if labels.sandbox.as_ref() != Some(tag) {
            return Err(absent());
        }
        if session.status.over() {
            return Err(error::lost(id));
        }
        Ok(self.sandbox(tag, session, labels.workdir))
    }

    async fn find(&self, call: &Call, query: &TagQuery) -> Result<Vec<Found>> {
        let sandboxes = match query {
            TagQuery::Exact(tag) => {
                self.api.find(call, tag.as_str()).await?.map(|opened| opened.sandbox).into_iter().collect()
            }
            TagQuery::Run(run) => self.api.sandboxes(call, &prefix(run)).await?,
            TagQuery::All => self.api.sandboxes(call, artifact::PREFIX).await?,
        };
        let found = sandboxes.into_iter().filter_map(|sandbox| {
            let tag = Labels::read(sandbox.tags.as_ref()).sandbox.filter(|tag| tag.as_str() == sandbox.name)?;
            query.matches(tag.as_str()).then(|| Found {
                reference: reference(&tag),
                state: observe::state(sandbox.status),
                created_at: sandbox.created_at.and_then(observe::timestamp),
            })
        });
        Ok(found.collect())
    }

    async fn destroy(&self, call: &Call, reference: &SandboxRef) -> Result<Destruction> {
        if reference.id != reference.tag.as_str() {
            // Sandboxes of ours are named by their tags: no other name is one.
            return Ok(Destruction::Confirmed);
        }
        destroy::destroy(&self.api, call, &reference.tag).await
    }

    async fn artifact(&self, call: &Call, id: &str) -> Result<Artifact> {
        artifact::find(&self.api, call, id).await
    }

    async fn artifacts(&self, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
        artifact::list(&self.api, call, query).await
    }

    async fn delete_artifact(&self, call: &Call, id: &str) -> Result<Destruction> {
        artifact::delete(&self.api, call, id).await
    }
}

/// What begins the name of every sandbox of a run.
fn prefix(run: &str) -> String {
    let tag = Tag::new(run, "unit");
    tag.as_str().split_once("--").map_or_else(|| artifact::PREFIX.to_owned(), |(run, _)| format!("{run}--"))
}

/// The clock of the service.
fn date(headers: &HeaderMap) -> Option<Timestamp> {
    Some(rfc2822::parse(headers.get(DATE)?.to_str().ok()?).ok()?.timestamp())
}

/// What the headers say of limits.
fn quota(headers: &HeaderMap) -> BTreeMap<String, String> {
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    [("requests", "x-ratelimit-limit"), ("requests left", "x-ratelimit-remaining")]
        .into_iter()
        .filter_map(|(name, header)| Some((name.to_owned(), value(header)?)))
        .collect()
}

/// A warning about a token that ends soon.
fn expiry(credentials: &Credentials, now: Timestamp) -> Option<String> {
    let left = credentials.expires?.duration_since(now);
    if left > SOON {
        return None;
    }
    let minutes = left.as_mins();
    let when = if minutes > 0 { format!("ends in {minutes} minutes") } else { "has ended".to_owned() };
    Some(format!("the token in {} {when}; for long runs use an access token in VERCEL_TOKEN", credentials.origin))
}

fn info(api: &Api) -> BackendInfo {
    let config = &api.config;
    BackendInfo {
        name: NAME.to_owned(),
        adapter_version: env!("CARGO_PKG_VERSION").to_owned(),
        backend_version: None,
        api_version: Some("create v3 (v2 for runtimes), else v2".to_owned()),
        endpoint: api.endpoint().to_owned(),
        region: config.region.clone(),
        architecture: "x86_64".to_owned(),
        capabilities: capabilities(config),
    }
}

fn capabilities(config: &VercelConfig) -> Capabilities {
    Capabilities {
        isolation: "microvm".to_owned(),
        images: false,
        mapped_images: config.images.keys().cloned().collect(),
        dockerfile: false,
        base: true,
        base_name: config.base(),
        base_commands: config.base_commands.clone(),
        separate_streams: true,
        binary_output: false,
        exact_signals: false,
        tree_kill: true,
        reports_oom: false,
        non_root_user: true,
        root_user: true,
        stdin: true,
        network_public: true,
        network_off: true,
        network_allowlist: true,
        snapshot: true,
        snapshot_keeps_sandbox: false,
        build_artifact: false,
        resume: false,
        attach: true,
        attach_across_processes: true,
        find_by_tag: true,
        lifetime: Enforcement::Enforced,
        cpu_limit: Enforcement::Enforced,
        // It comes with the CPUs and is never less than asked for, but often more.
        memory_limit: Enforcement::Advisory,
        pids_limit: Enforcement::Absent,
        disk_limit: Enforcement::Absent,
        max_upload_bytes: None,
        max_lifetime_seconds: Some(config.plan.lifetime_seconds()),
        max_concurrency: config.plan.concurrency(),
        artifact_variable: Some("VERCEL_SNAPSHOT_ID".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_run_is_found_by_what_its_names_begin_with() {
        for run in ["run", "a run of a long name that no tag can hold whole", "ü"] {
            let tag = Tag::new(run, "unit-1");
            assert!(tag.as_str().starts_with(&prefix(run)), "{tag}");
            assert!(prefix(run).ends_with("--"));
        }
    }

    #[test]
    fn a_token_that_ends_soon_is_warned_of() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let warning = |seconds: Option<i64>| {
            let expires = seconds.map(|left| Timestamp::from_second(1_800_000_000 + left).unwrap());
            let token = secrecy::SecretString::from("s3cret");
            let (team, project) = (String::new(), String::new());
            expiry(&Credentials { token, origin: "VERCEL_OIDC_TOKEN", team, project, expires }, now)
        };
        assert_eq!(warning(None), None);
        assert_eq!(warning(Some(12 * 3600)), None);
        assert!(warning(Some(600)).unwrap().contains("ends in 10 minutes"));
        assert!(warning(Some(-5)).unwrap().contains("has ended"));
    }
}
