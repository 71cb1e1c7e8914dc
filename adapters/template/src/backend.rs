//! The service as a [`Backend`].

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use sandbox_bench_core::{
    Artifact, Backend, BackendInfo, Call, Capabilities, Created, Destruction, Enforcement, Error, ErrorKind, Found,
    OutputSink, Preflight, Result, Sandbox, SandboxRef, SandboxSpec, SandboxState, Tag, TagQuery,
};

use crate::client::{Api, GENERATION};
use crate::config::TemplateConfig;
use crate::labels::Labels;
use crate::sandbox::TemplateSandbox;
use crate::wire::State;
use crate::{artifact, create, destroy, error, wire};

/// The backend's name.
pub(crate) const NAME: &str = "template";
/// What begins every tag, and so the name of everything of ours.
const PREFIX: &str = "sbx-";

/// The service, with `config` over what the environment says. Nothing is asked of it yet.
///
/// # Errors
/// `Credentials` if there are none, `InvalidRequest` for an address that is none.
pub fn connect(config: &TemplateConfig) -> Result<Arc<dyn Backend>> {
    connect_with(config, |name| std::env::var(name).ok())
}

/// As [`connect`], with `variable` for the variables of the environment.
///
/// # Errors
/// As [`connect`].
pub fn connect_with(config: &TemplateConfig, variable: impl Fn(&str) -> Option<String>) -> Result<Arc<dyn Backend>> {
    let api = Api::new(&config.access(variable)?)?;
    let info = BackendInfo {
        name: NAME.to_owned(),
        adapter_version: env!("CARGO_PKG_VERSION").to_owned(),
        backend_version: None,
        api_version: Some(GENERATION.to_owned()),
        endpoint: api.endpoint().to_owned(),
        region: None,
        // REPLACE: of the vendor's machines. The example service runs on this one.
        architecture: std::env::consts::ARCH.to_owned(),
        capabilities: capabilities(config),
    };
    Ok(Arc::new(TemplateBackend { api: Arc::new(api), info }))
}

/// REPLACE: what is true. The suite holds you to what you claim and skips what you do not.
fn capabilities(config: &TemplateConfig) -> Capabilities {
    Capabilities {
        isolation: "namespaces".to_owned(),
        base: true,
        base_name: "example".to_owned(),
        separate_streams: true,
        binary_output: true,
        tree_kill: true,
        non_root_user: true,
        root_user: true,
        stdin: true,
        network_public: true,
        network_off: true,
        snapshot: true,
        snapshot_keeps_sandbox: true,
        attach: true,
        attach_across_processes: true,
        find_by_tag: true,
        lifetime: Enforcement::Enforced,
        max_concurrency: config.max_concurrency,
        artifact_variable: Some("TEMPLATE_SNAPSHOT".to_owned()),
        ..Capabilities::default()
    }
}

struct TemplateBackend {
    api: Arc<Api>,
    info: BackendInfo,
}

impl TemplateBackend {
    fn handle(&self, labels: Labels) -> Arc<dyn Sandbox> {
        Arc::new(TemplateSandbox::new(self.api.clone(), reference(&labels.tag), labels))
    }
}

/// Sandboxes are named by their tags. REPLACE where the service gives out ids.
fn reference(tag: &Tag) -> SandboxRef {
    SandboxRef { backend: NAME.to_owned(), id: tag.to_string(), tag: tag.clone() }
}

/// What the names of all that the query is for begin with.
pub(crate) fn prefix(query: &TagQuery) -> String {
    let tag = match query {
        TagQuery::Exact(tag) => return tag.to_string(),
        TagQuery::Run(run) => Tag::new(run, "unit"),
        TagQuery::All => return PREFIX.to_owned(),
    };
    tag.as_str().split_once("--").map_or_else(|| PREFIX.to_owned(), |(run, _)| format!("{run}--"))
}

#[async_trait]
impl Backend for TemplateBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn preflight(&self, call: &Call) -> Result<Preflight> {
        let started = Instant::now();
        let account = self.api.account(call).await?;
        let round_trip = started.elapsed();
        Ok(Preflight {
            identity: Some(account.name),
            round_trip_us: u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX),
            // REPLACE where answers carry a date.
            clock_offset: None,
            quota: [("sandboxes".to_owned(), format!("{} of {}", account.sandboxes, account.limit))].into(),
            warnings: Vec::new(),
        })
    }

    async fn create(&self, call: &Call, spec: &SandboxSpec, _: &dyn OutputSink) -> Result<Created> {
        let facts = create::create(&self.api, call, spec).await?;
        Ok(Created { sandbox: self.handle(Labels::of(spec)), facts })
    }

    async fn attach(&self, call: &Call, reference: &SandboxRef) -> Result<Arc<dyn Sandbox>> {
        let SandboxRef { id, tag, .. } = reference;
        let absent = || Error::new(ErrorKind::NotFound, format!("there is no sandbox {id:?} with the tag {tag}"));
        if id != tag.as_str() {
            return Err(absent());
        }
        let found = self.api.sandbox(call, id).await?.ok_or_else(absent)?;
        let labels = Labels::read(&found.labels).filter(|labels| labels.tag == *tag).ok_or_else(absent)?;
        match found.state {
            State::Ending | State::Ended => Err(error::lost(id)),
            State::Starting | State::Running | State::Unknown => Ok(self.handle(labels)),
        }
    }

    async fn find(&self, call: &Call, query: &TagQuery) -> Result<Vec<Found>> {
        let found = self.api.sandboxes(call, &prefix(query)).await?;
        let ours = found.into_iter().filter_map(|sandbox| {
            let tag = Labels::read(&sandbox.labels)?.tag;
            (tag.as_str() == sandbox.name && query.matches(tag.as_str())).then(|| Found {
                reference: reference(&tag),
                state: state(&sandbox),
                created_at: sandbox.created_at,
            })
        });
        Ok(ours.collect())
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

fn state(sandbox: &wire::Sandbox) -> SandboxState {
    match sandbox.state {
        State::Starting => SandboxState::Starting,
        State::Running | State::Ending => SandboxState::Running,
        State::Ended => SandboxState::Stopped,
        State::Unknown => SandboxState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_of_a_run_begins_alike() {
        for run in ["run", "a run of a long name that no tag can hold whole", "ü"] {
            let (tag, prefix) = (Tag::new(run, "unit-1"), prefix(&TagQuery::Run(run.to_owned())));
            assert!(tag.as_str().starts_with(&prefix) && prefix.ends_with("--"), "{tag} {prefix}");
        }
    }
}
