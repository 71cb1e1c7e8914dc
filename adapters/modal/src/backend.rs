//! The service as a [`Backend`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use sandbox_bench_core::{
    Artifact, Backend, BackendInfo, Call, Capabilities, Created, Destruction, Enforcement, Error, ErrorKind, Found,
    OutputSink, Preflight, Resources, Result, Sandbox, SandboxRef, SandboxSpec, SandboxState, Tag, TagQuery,
};

use crate::account::Account;
use crate::client::Client;
use crate::config::{ClientShape, ModalConfig};
use crate::create::{self, LONGEST_LIFE};
use crate::image::checked;
use crate::proto::client::EnvironmentGetOrCreateResponse;
use crate::router::Router;
use crate::sandbox::ModalSandbox;
use crate::{artifact, destroy, error, labels, observe};

/// The backend's name.
pub(crate) const NAME: &str = "modal";
/// A token that ends sooner than this is worth a warning: runs take hours.
const SOON: SignedDuration = SignedDuration::from_hours(3);
/// Limit for a question whose answer a search can do without.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// The service, with the account that the environment or `~/.modal.toml` names ([`Account::from_environment`]). Nothing is
/// asked of it yet.
///
/// # Errors
/// `Credentials` if there is none, `InvalidRequest` for an address that is none.
pub fn connect(config: &ModalConfig) -> Result<Arc<dyn Backend>> {
    connect_as(Account::from_environment()?, config)
}

/// As [`connect`], with this account.
///
/// # Errors
/// As [`connect`].
pub fn connect_as(account: Account, config: &ModalConfig) -> Result<Arc<dyn Backend>> {
    let client = Client::new(account, config.clone())?;
    let info = info(&client);
    Ok(Arc::new(ModalBackend { client: Arc::new(client), info }))
}

struct ModalBackend {
    client: Arc<Client>,
    info: BackendInfo,
}

impl ModalBackend {
    fn sandbox(&self, router: Router, tag: &Tag, granted: Resources) -> Arc<dyn Sandbox> {
        let reference = reference(router.sandbox(), tag);
        Arc::new(ModalSandbox::new(router, reference, granted))
    }

    /// What this process created and the list does not show: it may lag behind.
    async fn unlisted(&self, call: &Call, query: &TagQuery, listed: &[Found]) -> Result<Vec<Found>> {
        let mut ids: BTreeMap<String, Tag> = self.client.made().clone();
        ids.retain(|_, tag| query.matches(tag.as_str()));
        if let TagQuery::Exact(tag) = query
            && let Some(id) = self.client.named(call, tag.as_str()).await?
        {
            ids.insert(id, tag.clone());
        }
        ids.retain(|id, _| listed.iter().all(|found| found.reference.id != *id));
        let mut found = Vec::new();
        for (id, tag) in ids {
            let there = match self.client.end(&call.within(LOOK_LIMIT), &id, 0.0).await {
                Ok(end) => end.is_none(),
                Err(error) if *error.kind() == ErrorKind::NotFound => false,
                Err(error) => return Err(error),
            };
            if there {
                found.push(Found { reference: reference(&id, &tag), state: SandboxState::Unknown, created_at: None });
            } else {
                self.client.made().remove(&id);
            }
        }
        Ok(found)
    }
}

fn reference(id: &str, tag: &Tag) -> SandboxRef {
    SandboxRef { backend: NAME.to_owned(), id: id.to_owned(), tag: tag.clone() }
}

#[async_trait]
impl Backend for ModalBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn preflight(&self, call: &Call) -> Result<Preflight> {
        // The first request of a connection pays for the connection.
        let environment = self.client.environment(call).await?;
        let started = Instant::now();
        let token = match self.client.token_info(call).await {
            Ok(token) => Some(token),
            Err(error) if *error.kind() == ErrorKind::Unsupported => None,
            Err(error) => return Err(error),
        };
        let round_trip = started.elapsed();
        let expires = token.as_ref().and_then(|token| Timestamp::from_second(token.expires_at?.seconds).ok());
        let name = environment.metadata.as_ref().map(|metadata| metadata.name.clone()).unwrap_or_default();
        let workspace = token.map(|token| token.workspace_name).filter(|name| !name.is_empty());
        let identity = workspace.map(|workspace| format!("workspace {workspace}, environment {name}"));
        Ok(Preflight {
            identity: identity.or_else(|| (!name.is_empty()).then(|| format!("environment {name}"))),
            round_trip_us: u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX),
            clock_offset: None,
            quota: quota(&environment),
            warnings: expiry(expires, Timestamp::now()).into_iter().collect(),
        })
    }

    async fn create(&self, call: &Call, spec: &SandboxSpec, log: &dyn OutputSink) -> Result<Created> {
        let (router, facts) = create::create(&self.client, call, spec, log).await?;
        Ok(Created { sandbox: self.sandbox(router, &spec.tag, facts.granted.clone()), facts })
    }

    async fn attach(&self, call: &Call, reference: &SandboxRef) -> Result<Arc<dyn Sandbox>> {
        let SandboxRef { id, tag, .. } = reference;
        let absent = || Error::new(ErrorKind::NotFound, format!("there is no sandbox {id:?} with the tag {tag}"));
        let id = checked(id).map_err(|_| absent())?;
        match self.client.tags(call, id).await {
            Ok(tags) if labels::read(&tags).as_ref() == Some(tag) => {}
            Ok(_) => return Err(absent()),
            Err(error) if *error.kind() == ErrorKind::NotFound => return Err(absent().because(error)),
            Err(error) => return Err(error),
        }
        if let Some(result) = self.client.end(call, id, 0.0).await? {
            return Err(error::lost(id, result.status().as_str_name()));
        }
        let router = create::attach(&self.client, call, id).await?;
        Ok(self.sandbox(router, tag, Resources::default()))
    }

    async fn find(&self, call: &Call, query: &TagQuery) -> Result<Vec<Found>> {
        let wanted = labels::wanted(query);
        // What runs, and what has ended by itself and was not destroyed.
        let mut listed = self.client.list(call, vec![wanted.clone()], false).await?;
        let known: BTreeSet<String> = listed.iter().map(|info| info.id.clone()).collect();
        let open = self.client.list(call, vec![wanted, labels::open()], true).await?;
        let unmarked = self.client.unmarked().clone();
        listed.extend(open.into_iter().filter(|info| !known.contains(&info.id) && !unmarked.contains(&info.id)));
        let ours = listed.iter().filter_map(|info| {
            let tag = labels::read(&info.tags).filter(|tag| query.matches(tag.as_str()))?;
            let (state, created_at) = (observe::state(info), observe::timestamp(info.created_at));
            Some(Found { reference: reference(&info.id, &tag), state, created_at })
        });
        let mut found: Vec<Found> = ours.collect();
        found.extend(self.unlisted(call, query, &found).await?);
        Ok(found)
    }

    async fn destroy(&self, call: &Call, reference: &SandboxRef) -> Result<Destruction> {
        // An id that the service cannot have given out is none of ours.
        let Ok(id) = checked(&reference.id) else { return Ok(Destruction::Confirmed) };
        destroy::destroy(&self.client, call, (id, &reference.tag)).await
    }

    async fn artifact(&self, call: &Call, id: &str) -> Result<Artifact> {
        artifact::find(&self.client, call, id).await
    }

    async fn artifacts(&self, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
        artifact::list(&self.client, call, query).await
    }

    async fn delete_artifact(&self, call: &Call, id: &str) -> Result<Destruction> {
        artifact::delete(&self.client, call, id).await
    }
}

/// Limits of the environment, and what builds its images.
fn quota(environment: &EnvironmentGetOrCreateResponse) -> BTreeMap<String, String> {
    let settings = environment.metadata.clone().unwrap_or_default().settings.unwrap_or_default();
    [
        ("image builder", Some(settings.image_builder_version).filter(|version| !version.is_empty())),
        ("tasks at one time", settings.max_concurrent_tasks.map(|most| most.to_string())),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect()
}

/// A warning about a token that ends soon.
fn expiry(expires: Option<Timestamp>, now: Timestamp) -> Option<String> {
    let left = expires?.duration_since(now);
    if left > SOON {
        return None;
    }
    let minutes = left.as_mins();
    let when = if minutes > 0 { format!("ends in {minutes} minutes") } else { "has ended".to_owned() };
    Some(format!("the token {when}: make a new one (`modal token new`)"))
}

fn info(client: &Client) -> BackendInfo {
    let config = &client.config;
    let shape = match config.client {
        ClientShape::Libmodal => "libmodal",
        ClientShape::Python => "python 1.6.4",
    };
    BackendInfo {
        name: NAME.to_owned(),
        adapter_version: env!("CARGO_PKG_VERSION").to_owned(),
        backend_version: None,
        api_version: Some(format!("sandboxes v2, task command router, as {shape}")),
        endpoint: client.endpoint().to_owned(),
        region: config.region.clone(),
        architecture: "x86_64".to_owned(),
        capabilities: capabilities(config),
    }
}

fn capabilities(config: &ModalConfig) -> Capabilities {
    Capabilities {
        isolation: config.runtime.clone().unwrap_or_else(|| "gvisor".to_owned()),
        images: true,
        dockerfile: true,
        base: true,
        base_name: config.base_image.clone(),
        base_commands: config.base_commands.clone(),
        separate_streams: true,
        binary_output: true,
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
        snapshot_keeps_sandbox: true,
        build_artifact: false,
        attach: true,
        attach_across_processes: true,
        find_by_tag: true,
        lifetime: Enforcement::Enforced,
        cpu_limit: Enforcement::Enforced,
        memory_limit: Enforcement::Enforced,
        pids_limit: Enforcement::Absent,
        disk_limit: Enforcement::Absent,
        max_lifetime_seconds: Some(LONGEST_LIFE),
        max_concurrency: config.max_concurrency,
        artifact_variable: Some("MODAL_IMAGE_ID".to_owned()),
        ..Capabilities::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_that_ends_soon_is_warned_of() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let warning = |left: i64| expiry(Timestamp::from_second(1_800_000_000 + left).ok(), now);
        assert_eq!((expiry(None, now), warning(12 * 3600)), (None, None));
        assert!(warning(600).unwrap().contains("ends in 10 minutes"));
        assert!(warning(-5).unwrap().contains("has ended"));
    }
}
