//! Warm artifacts: snapshots, whose names say under which tag and from which environment they were made.

use reqwest::Method;
use sandbox_bench_core::{Artifact, Call, Destruction, Error, ErrorKind, Result, SnapshotSpec, TagQuery};
use sandbox_bench_kit::http::{Effect, ask, json};
use sandbox_bench_kit::wait::uncancelled;
use serde_json::json;

use crate::backend::{NAME, prefix};
use crate::client::Api;
use crate::error;
use crate::exec::Guest;
use crate::labels::{artifact_name, parse_artifact_name};
use crate::wire::Snapshot;

/// Most bytes of one answer.
const ANSWER_LIMIT: usize = 64 << 10;

/// Saves the files of a sandbox. An answer that is lost is looked for under the name.
pub(crate) async fn snapshot(guest: Guest<'_>, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
    let (what, name) = (guest.what("snapshot"), artifact_name(&spec.tag, &spec.fingerprint));
    let request = guest.api.of(Method::POST, guest.name, &["snapshots"]).json(&json!({ "name": name }));
    let patient = &uncancelled(call, call.remaining());
    let made = match ask(patient, &what, Effect::Once, request).await {
        Ok(Ok(answer)) => json(patient, &what, Effect::Once, answer, ANSWER_LIMIT).await,
        Ok(Err(refusal)) => Err(error::gone(&what, Effect::Once, &refusal)),
        Err(error) => Err(error),
    };
    match made {
        Ok(made) => Ok(artifact(made)),
        Err(error) if error::unanswered(&error) => {
            let found = guest.api.snapshot(call, &name).await.ok().flatten();
            found.map(artifact).ok_or_else(|| error::uncertain(&what, &spec.tag, error))
        }
        Err(error) => Err(error),
    }
}

fn artifact(snapshot: Snapshot) -> Artifact {
    let (tag, fingerprint) = parse_artifact_name(&snapshot.name).unzip();
    Artifact {
        backend: NAME.to_owned(),
        tag,
        fingerprint,
        created_at: snapshot.created_at,
        // REPLACE: what the service says; and whether it still works on it.
        expires_at: None,
        size_bytes: snapshot.size_bytes,
        ready: true,
        id: snapshot.name,
    }
}

/// The artifact of this id.
pub(crate) async fn find(api: &Api, call: &Call, id: &str) -> Result<Artifact> {
    let found = match parse_artifact_name(id) {
        Some(_) => api.snapshot(call, id).await?,
        None => None,
    };
    found.map(artifact).ok_or_else(|| Error::new(ErrorKind::NotFound, format!("artifact {id:?} is not there")))
}

/// Every artifact whose tag matches.
pub(crate) async fn list(api: &Api, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
    let found = api.snapshots(call, &prefix(query)).await?.into_iter().map(artifact);
    Ok(found.filter(|found| found.tag.as_ref().is_some_and(|tag| query.matches(tag.as_str()))).collect())
}

/// Deletes an artifact; one that is gone already, or that cannot be ours, is confirmed.
pub(crate) async fn delete(api: &Api, call: &Call, id: &str) -> Result<Destruction> {
    if parse_artifact_name(id).is_none() {
        return Ok(Destruction::Confirmed);
    }
    let what = format!("artifact {id}: delete");
    match ask(call, &what, Effect::Idempotent, api.request(Method::DELETE, &["snapshots", id])).await? {
        Err(refusal) if refusal.status == 409 => return Ok(Destruction::Unconfirmed { why: refusal.text() }),
        Err(refusal) if refusal.status != 404 => return Err(error::refused(&what, Effect::Idempotent, &refusal)),
        _ => {}
    }
    Ok(match api.snapshot(call, id).await? {
        None => Destruction::Confirmed,
        Some(_) => Destruction::Unconfirmed { why: "it was deleted, but the service still shows it".to_owned() },
    })
}
