//! The platform as a [`Backend`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use reqwest::header::{DATE, HeaderMap};
use sandbox_bench_core::{
    Artifact, ArtifactSpec, Backend, BackendInfo, Call, Capabilities, Created, Destruction, Enforcement, Error,
    ErrorKind, Found, OutputSink, Preflight, Result, Sandbox, SandboxRef, SandboxSpec, TagQuery,
};
use sandbox_bench_kit::http::{Effect, json};
use serde_json::Value;

use crate::account::{Account, Credential};
use crate::client::{ASK_LIMIT, Client, checked};
use crate::config::DaytonaConfig;
use crate::sandbox::{DaytonaSandbox, Guest};
use crate::wire::{PlatformConfig, PushAccess, SandboxObject, SandboxPage, Usage, timestamp, whole};
use crate::{artifact, create, destroy, labels, observe};

pub(crate) const NAME: &str = "daytona";
/// Entries on a page of a list, and most pages.
const PAGE: &str = "100";
const PAGES: usize = 1000;
/// Sandboxes of a list that are looked at one by one at the same time.
const LOOKS: usize = 8;
/// Most bytes of a list with one entry.
const SMALL: usize = 1 << 20;

/// Connects to the platform with the account that the environment names ([`Account::from_environment`]).
///
/// # Errors
/// `Credentials` if it names none, `Unavailable` if the platform does not answer, `InvalidRequest` for an address that
/// is none.
pub async fn connect(config: &DaytonaConfig, call: &Call) -> Result<Arc<dyn Backend>> {
    connect_as(&Account::from_environment()?, config, call).await
}

/// As [`connect`], with this account.
///
/// # Errors
/// As [`connect`].
pub async fn connect_as(account: &Account, config: &DaytonaConfig, call: &Call) -> Result<Arc<dyn Backend>> {
    let client = Client::new(account, config)?;
    let platform: PlatformConfig = client.get(&call.within(ASK_LIMIT), "Daytona", &["config"]).await?;
    let info = BackendInfo {
        name: NAME.to_owned(),
        adapter_version: env!("CARGO_PKG_VERSION").to_owned(),
        backend_version: platform.version,
        api_version: Some("v0".to_owned()),
        endpoint: client.base().to_owned(),
        region: account.target.clone(),
        architecture: "x86_64".to_owned(),
        capabilities: capabilities(config),
    };
    let organization = match &account.credential {
        Credential::Token { organization, .. } => Some(organization.clone()),
        Credential::Key(_) => None,
    };
    Ok(Arc::new(DaytonaBackend { client: Arc::new(client), info, organization }))
}

struct DaytonaBackend {
    client: Arc<Client>,
    info: BackendInfo,
    /// The organization's id, if the credential names it.
    organization: Option<String>,
}

fn capabilities(config: &DaytonaConfig) -> Capabilities {
    Capabilities {
        isolation: "container".to_owned(),
        images: true,
        dockerfile: true,
        base: true,
        base_name: config.base_snapshot.as_ref().unwrap_or(&config.base_image).clone(),
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
        snapshot_keeps_sandbox: true,
        build_artifact: true,
        attach: true,
        attach_across_processes: true,
        find_by_tag: true,
        // To the minute, and nothing of it is left then.
        lifetime: Enforcement::Advisory,
        cpu_limit: Enforcement::Enforced,
        memory_limit: Enforcement::Enforced,
        disk_limit: Enforcement::Advisory,
        pids_limit: Enforcement::Absent,
        max_concurrency: config.max_concurrency,
        artifact_variable: Some("DAYTONA_SNAPSHOT".to_owned()),
        ..Capabilities::default()
    }
}

impl DaytonaBackend {
    fn handle(&self, guest: Guest, reference: SandboxRef) -> Arc<dyn Sandbox> {
        Arc::new(DaytonaSandbox::new(guest, reference))
    }

    /// The sandbox that `reference` names.
    ///
    /// # Errors
    /// `NotFound` if there is none, or it is not the one with this tag.
    async fn named(&self, call: &Call, reference: &SandboxRef) -> Result<SandboxObject> {
        let id = checked("a sandbox", &reference.id)?;
        let seen = self.client.sandbox(call, id).await?;
        // The platform takes names for ids.
        if seen.id != id || observe::gone(&seen) || labels::tag(&seen.labels).as_ref() != Some(&reference.tag) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("sandbox {id} is not the one tagged {}", reference.tag),
            ));
        }
        Ok(seen)
    }

    /// Ids of everything that may be ours: what the platform lists, and what this process created and the list may not
    /// show yet. One that is looked for by its tag also has that as its name.
    async fn candidates(&self, call: &Call, query: &TagQuery) -> Result<BTreeSet<String>> {
        let (name, value) = match query {
            TagQuery::Exact(tag) => (labels::TAG, tag.as_str()),
            TagQuery::Run(_) | TagQuery::All => labels::OURS,
        };
        let filter = serde_json::json!({ name: value }).to_string();
        let mut ids = self.client.journal().clone();
        let mut cursor = String::new();
        for _ in 0..PAGES {
            let mut parts = vec![("labels", filter.as_str()), ("limit", PAGE)];
            if !cursor.is_empty() {
                parts.push(("cursor", cursor.as_str()));
            }
            let page: SandboxPage = self.client.query(call, "list of sandboxes", &["sandbox"], &parts).await?;
            ids.extend(page.items.into_iter().map(|seen| seen.id));
            match page.next_cursor.filter(|next| !next.is_empty()) {
                Some(next) => cursor = next,
                None => break,
            }
        }
        if let TagQuery::Exact(tag) = query {
            match self.client.sandbox(call, tag.as_str()).await {
                Ok(seen) => drop(ids.insert(seen.id)),
                Err(error) if *error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ids)
    }

    /// Looks at one of them: lists lag behind in both directions.
    async fn look(&self, call: &Call, id: String, query: &TagQuery) -> Result<Option<Found>> {
        let seen = match self.client.sandbox(call, &id).await {
            Ok(seen) if !observe::gone(&seen) => seen,
            Ok(_) => return Ok(None),
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let tag = labels::tag(&seen.labels).filter(|tag| query.matches(tag.as_str()));
        Ok(tag.map(|tag| Found {
            state: observe::state(&seen),
            created_at: timestamp(seen.created_at.as_deref()),
            reference: SandboxRef { backend: NAME.to_owned(), id: seen.id, tag },
        }))
    }

    /// The organization's id: that of the credential, else as the platform's answers have it.
    async fn organization(&self, call: &Call, page: &SandboxPage) -> Option<String> {
        let listed = || page.items.iter().find_map(|seen| seen.organization_id.clone());
        if let Some(id) = self.organization.clone().or_else(listed) {
            return Some(id);
        }
        let access = self.client.get::<PushAccess>(call, "organization", &["object-storage", "push-access"]).await;
        access.ok().map(|access| access.organization_id)
    }
}

#[async_trait]
impl Backend for DaytonaBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn preflight(&self, call: &Call) -> Result<Preflight> {
        let (started, asked) = (Instant::now(), Timestamp::now());
        let what = "list of sandboxes";
        let answer = self.client.head(call, what, &["sandbox"], &[("limit", "1")]).await?;
        let round_trip = started.elapsed();
        let clock_offset = clock_offset(answer.headers(), asked, round_trip);
        let page: SandboxPage = json(call, what, Effect::Idempotent, answer, SMALL).await?;
        let organization = self.organization(call, &page).await;
        let mut warnings = Vec::new();
        let mut limits = BTreeMap::new();
        if let Some(id) = &organization {
            match self.client.get::<Usage>(call, "usage", &["organizations", id, "usage"]).await {
                Ok(usage) => limits = quota(usage),
                Err(error) => warnings.push(format!("the organization's quota cannot be told: {error}")),
            }
        }
        Ok(Preflight {
            identity: organization.map(|id| format!("organization {id}")),
            round_trip_us: u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX),
            clock_offset,
            quota: limits,
            warnings,
        })
    }

    async fn create(&self, call: &Call, spec: &SandboxSpec, log: &dyn OutputSink) -> Result<Created> {
        let (guest, facts) = create::create(&self.client, call, spec, log).await?;
        let reference = SandboxRef { backend: NAME.to_owned(), id: guest.id.clone(), tag: spec.tag.clone() };
        Ok(Created { sandbox: self.handle(guest, reference), facts })
    }

    async fn attach(&self, call: &Call, reference: &SandboxRef) -> Result<Arc<dyn Sandbox>> {
        let seen = self.named(call, reference).await?;
        if !observe::alive(&seen) {
            return Err(observe::ended(&seen));
        }
        Ok(self.handle(Guest::of(&self.client, call, &seen).await?, reference.clone()))
    }

    async fn find(&self, call: &Call, query: &TagQuery) -> Result<Vec<Found>> {
        let ids = self.candidates(call, query).await?;
        let looks = stream::iter(ids).map(|id| self.look(call, id, query)).buffered(LOOKS);
        let found: Vec<Result<Option<Found>>> = looks.collect().await;
        found.into_iter().filter_map(Result::transpose).collect()
    }

    async fn destroy(&self, call: &Call, reference: &SandboxRef) -> Result<Destruction> {
        let id = checked("a sandbox", &reference.id)?;
        match self.client.sandbox(call, id).await {
            Ok(seen) if seen.id == id && labels::tag(&seen.labels).as_ref() == Some(&reference.tag) => {
                destroy::remove(&self.client, call, id).await
            }
            Ok(_) => {
                let message = format!("sandbox {id} is not the one tagged {}; it is not deleted", reference.tag);
                Err(Error::invalid(message))
            }
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                self.client.journal().remove(id);
                Ok(Destruction::Confirmed)
            }
            Err(error) => Err(error),
        }
    }

    async fn build_artifact(&self, call: &Call, spec: &ArtifactSpec, log: &dyn OutputSink) -> Result<Artifact> {
        artifact::build(&self.client, call, spec, log).await
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

/// The platform's clock minus ours, from the `Date` of an answer, which has whole seconds.
fn clock_offset(headers: &HeaderMap, asked: Timestamp, round_trip: Duration) -> Option<SignedDuration> {
    let date = rfc2822::parse(headers.get(DATE)?.to_str().ok()?).ok()?.timestamp();
    Some(date.duration_since(asked + round_trip / 2))
}

/// Quotas by region, and of snapshots.
fn quota(usage: Usage) -> BTreeMap<String, String> {
    let mut quota = BTreeMap::new();
    for region in usage.region_usage {
        let id = region.get("regionId").and_then(Value::as_str).unwrap_or("region").to_owned();
        for (name, value) in region.iter().filter(|(_, value)| value.is_number()) {
            quota.insert(format!("{id}.{name}"), value.to_string());
        }
    }
    let snapshots = [("snapshots", usage.total_snapshot_quota), ("snapshots_used", usage.current_snapshot_usage)];
    quota.extend(snapshots.into_iter().filter_map(|(name, n)| Some((name.to_owned(), whole(n)?.to_string()))));
    quota
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn quotas_are_told_by_region() {
        let usage = serde_json::json!({
            "regionUsage": [{"regionId": "us", "totalCpuQuota": 100, "currentCpuUsage": 3, "maxDiskPerGpu": null}],
            "totalSnapshotQuota": 30, "currentSnapshotUsage": 4,
        });
        let quota = quota(serde_json::from_value(usage).unwrap());
        assert_eq!(quota.get("us.totalCpuQuota").map(String::as_str), Some("100"));
        assert_eq!(quota.get("snapshots_used").map(String::as_str), Some("4"));
        assert!(!quota.contains_key("us.maxDiskPerGpu"));
    }
}
