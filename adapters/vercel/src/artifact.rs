//! Warm artifacts: snapshots, each with a record of where it came from.
//!
//! A snapshot has an id and nothing of ours on it. Its record is the sandbox that it was made of ([`crate::labels`]): that says
//! before the snapshot is taken what is being made, so that one whose answer was lost is found again.

use std::time::Duration;

use reqwest::Method;
use sandbox_bench_core::{Artifact, Call, Destruction, Error, ErrorKind, Result, SnapshotSpec, Tag, TagQuery};
use sandbox_bench_kit::http::{Effect, ask};
use sandbox_bench_kit::wait::{bounded, uncancelled};
use serde_json::json;

use crate::client::{Api, answer, gone};
use crate::create::is_id;
use crate::helper::{Vm, milliseconds, script};
use crate::labels::{self, Labels};
use crate::observe::{POLL, timestamp};
use crate::wire::{OfSnapshot, Sandbox, Snapshot};
use crate::{destroy, error};

/// What begins the name of every sandbox of ours.
pub(crate) const PREFIX: &str = "sbx-";
const DAY: Duration = Duration::from_secs(86_400);
/// The longest and the shortest that the service keeps a snapshot (Python client 0.10.0).
const KEPT: [Duration; 2] = [DAY, Duration::from_secs(3650 * 86_400)];

/// Saves the files of a sandbox, which ends with it.
pub(crate) async fn snapshot(vm: Vm<'_>, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
    let Vm { api, name, .. } = vm;
    let found = api.find(call, name).await?.ok_or_else(|| error::lost(name))?;
    let mut labels = Labels::read(found.sandbox.tags.as_ref());
    labels.artifact = Some((spec.tag.clone(), spec.fingerprint.clone()));
    vm.shell(call, "writing files to disk", &script("sync", &[])).await?;
    api.label(call, name, &labels).await?;
    let snapshot = take(vm, call, spec).await?;
    let snapshot = made(api, call, snapshot).await?;
    labels.snapshot = Some(snapshot.id.clone());
    api.label(call, name, &labels).await.map_err(|e| uncertain(&spec.tag, e))?;
    Ok(artifact(snapshot, Some(&labels)))
}

async fn take(vm: Vm<'_>, call: &Call, spec: &SnapshotSpec) -> Result<Snapshot> {
    let Vm { api, name, session } = vm;
    let what = format!("sandbox {name}: snapshot");
    let days = api.config.artifact_days.max(1);
    let keep = spec.keep_for.unwrap_or(DAY * days).clamp(KEPT[0], KEPT[1]);
    let request = api.of_session(Method::POST, session, &["snapshot"]);
    let request = request.json(&json!({ "expiration": milliseconds(keep) }));
    let call = &uncancelled(call, call.remaining());
    let answered = match ask(call, &what, Effect::Once, request).await {
        Ok(Ok(answer)) => sandbox_bench_kit::http::json::<OfSnapshot>(call, &what, Effect::Once, answer, 1 << 20).await,
        Ok(Err(refusal)) => Err(gone(&what, Effect::Once, &refusal)),
        Err(error) => Err(error),
    };
    match answered {
        Ok(of) => Ok(of.snapshot),
        Err(error) if matches!(error.kind(), ErrorKind::Transport | ErrorKind::DeadlineExceeded) => {
            // The answer was lost; what came of the request shows among the sandbox's snapshots.
            let newest = newest(api, call, name).await;
            newest.ok().flatten().ok_or_else(|| uncertain(&spec.tag, error))
        }
        Err(error) => Err(error),
    }
}

/// Waits until the service has made it.
async fn made(api: &Api, call: &Call, mut snapshot: Snapshot) -> Result<Snapshot> {
    let what = format!("snapshot {}", snapshot.id);
    loop {
        match snapshot.status.as_str() {
            "created" => return Ok(snapshot),
            "failed" | "deleted" => {
                return Err(Error::new(ErrorKind::Failed, format!("{what}: the service says: {}", snapshot.status)));
            }
            _ => bounded(call, &what, tokio::time::sleep(POLL)).await?,
        }
        snapshot = get(api, call, &snapshot.id).await?;
    }
}

fn uncertain(tag: &Tag, cause: Error) -> Error {
    let kind = ErrorKind::UncertainSubmission { tag: tag.clone() };
    Error::new(kind, format!("artifact {tag}: it is unknown whether it was made")).because(cause)
}

fn absent(id: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("artifact {id} is not there: it was deleted or has expired"))
}

async fn get(api: &Api, call: &Call, id: &str) -> Result<Snapshot> {
    if !is_id(id) {
        return Err(absent(id));
    }
    let request = api.request(Method::GET, &["v2", "sandboxes", "snapshots", id]);
    let found = answer::<OfSnapshot>(call, &format!("snapshot {id}"), Effect::Idempotent, request).await;
    match found {
        Ok(of) if of.snapshot.status == "deleted" => Err(absent(id)),
        Ok(of) => Ok(of.snapshot),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::SandboxLost) => Err(absent(id)),
        Err(error) => Err(error),
    }
}

/// The sandbox's newest snapshot that is or will be usable.
async fn newest(api: &Api, call: &Call, name: &str) -> Result<Option<Snapshot>> {
    let all: Vec<Snapshot> = api.list(call, &["snapshots"], &[("name", name)]).await?;
    let usable = all.into_iter().filter(|snapshot| !["deleted", "failed"].contains(&snapshot.status.as_str()));
    Ok(usable.max_by_key(|snapshot| snapshot.created_at))
}

/// Id of the artifact that was made of a sandbox, if one was.
pub(crate) async fn made_of(api: &Api, call: &Call, sandbox: &Sandbox, labels: &Labels) -> Result<Option<String>> {
    match (&labels.artifact, &labels.snapshot) {
        (None, _) => Ok(None),
        (Some(_), Some(id)) => Ok(Some(id.clone())),
        // Its making was begun; how it came out was not written down.
        (Some(_), None) => Ok(newest(api, call, &sandbox.name).await?.map(|snapshot| snapshot.id)),
    }
}

fn artifact(snapshot: Snapshot, labels: Option<&Labels>) -> Artifact {
    let (tag, fingerprint) = labels.and_then(|labels| labels.artifact.clone()).unzip();
    Artifact {
        backend: crate::backend::NAME.to_owned(),
        tag,
        fingerprint,
        created_at: snapshot.created_at.and_then(timestamp),
        expires_at: snapshot.expires_at.and_then(timestamp),
        size_bytes: snapshot.size_bytes,
        ready: snapshot.status == "created",
        id: snapshot.id,
    }
}

/// The record of a snapshot.
async fn record(api: &Api, call: &Call, id: &str) -> Result<Option<(Sandbox, Labels)>> {
    let found = api.labelled(call, labels::SNAPSHOT, id).await?;
    let read = |sandbox: Sandbox| {
        let labels = Labels::read(sandbox.tags.as_ref());
        (sandbox, labels)
    };
    Ok(found.into_iter().map(read).find(|(_, labels)| labels.artifact.is_some()))
}

/// The artifact of this id.
pub(crate) async fn find(api: &Api, call: &Call, id: &str) -> Result<Artifact> {
    let snapshot = get(api, call, id).await?;
    let record = record(api, call, id).await?;
    Ok(artifact(snapshot, record.as_ref().map(|(_, labels)| labels)))
}

/// Every artifact whose tag matches.
pub(crate) async fn list(api: &Api, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
    let records = match query {
        TagQuery::Exact(tag) => api.labelled(call, labels::ARTIFACT, tag.as_str()).await?,
        TagQuery::Run(_) | TagQuery::All => api.sandboxes(call, PREFIX).await?,
    };
    let mut all = Vec::new();
    for sandbox in records {
        let labels = Labels::read(sandbox.tags.as_ref());
        if !labels.artifact.as_ref().is_some_and(|(tag, _)| query.matches(tag.as_str())) {
            continue;
        }
        let Some(id) = made_of(api, call, &sandbox, &labels).await? else { continue };
        match get(api, call, &id).await {
            Ok(snapshot) => all.push(artifact(snapshot, Some(&labels))),
            // Deleted or expired: its record is all that is left.
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Deletes an artifact and its record; one that is gone already is confirmed.
pub(crate) async fn delete(api: &Api, call: &Call, id: &str) -> Result<Destruction> {
    if !is_id(id) {
        return Ok(Destruction::Confirmed);
    }
    let record = record(api, call, id).await?;
    match get(api, call, id).await {
        Ok(_) if record.is_none() => {
            return Err(Error::invalid(format!("snapshot {id} is not an artifact of ours; it is not deleted")));
        }
        Ok(_) => remove(api, call, id).await?,
        Err(error) if *error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if get(api, call, id).await.is_ok() {
        return Ok(Destruction::Unconfirmed { why: "it was deleted, but the service still shows it".to_owned() });
    }
    match record {
        None => Ok(Destruction::Confirmed),
        Some((sandbox, Labels { sandbox: None, .. })) => destroy::remove(api, call, &sandbox.name).await,
        // The sandbox that it was made of is still to be destroyed by its owner.
        Some((sandbox, labels)) => {
            let labels = Labels { artifact: None, snapshot: None, ..labels };
            api.label(call, &sandbox.name, &labels).await.map(|_| Destruction::Confirmed)
        }
    }
}

async fn remove(api: &Api, call: &Call, id: &str) -> Result<()> {
    let what = format!("snapshot {id}: delete");
    let request = api.request(Method::DELETE, &["v2", "sandboxes", "snapshots", id]);
    match ask(call, &what, Effect::Idempotent, request).await? {
        Ok(_) => Ok(()),
        Err(refusal) if matches!(refusal.status, 404 | 410) => Ok(()),
        Err(refusal) => Err(error::refused(&what, Effect::Idempotent, &refusal)),
    }
}
