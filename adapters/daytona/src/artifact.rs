//! Warm artifacts: the platform's snapshots, saved from a sandbox or built from a source.

use std::pin::pin;
use std::time::Duration;

use sandbox_bench_core::{
    Artifact, ArtifactSpec, Call, Destruction, Error, ErrorKind, OutputSink, Result, SnapshotSpec, Tag, TagQuery,
};
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::{bounded, winding_up};
use tokio::time::{Instant, sleep, timeout};

use crate::build::{self, BuildLog};
use crate::client::{Client, checked};
use crate::error::No;
use crate::labels;
use crate::sandbox::Guest;
use crate::wire::{CreateSnapshot, SnapshotObject, SnapshotPage, SnapshotSandbox, SnapshotState, State, timestamp};

/// Pause between two looks, at first and at last. The official client looks once a second.
const FIRST: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_secs(1);
/// How long a saved snapshot may take to be listed at all.
const APPEAR_LIMIT: Duration = Duration::from_secs(30);
/// Time to take back what a failed build has made.
const TAKE_BACK_LIMIT: Duration = Duration::from_secs(15);
/// How long the rest of a build log is awaited when the build is over.
const LOG_REST: Duration = Duration::from_secs(1);
/// Snapshots on a page, and most pages.
const PAGE: u64 = 100;
const PAGES: u64 = 1000;
/// What is left of the call's time to say that an artifact is not known to be gone.
const MARGIN: Duration = Duration::from_millis(200);

/// Saves the files of a sandbox, which goes on.
pub(crate) async fn save(guest: &Guest, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
    let client = &guest.client;
    let what = guest.what("snapshot");
    let name = labels::artifact_name(&spec.tag, &spec.fingerprint);
    let body = SnapshotSandbox { name: &name, include_memory: false };
    match client.save(call, &what, &guest.id, &body).await {
        Ok(Ok(())) => {}
        Ok(Err(no)) => return Err(guest.explained(call, refused(&what, &spec.tag, &no)).await),
        Err(error) => return Err(unanswered(&spec.tag, error)),
    }
    let saved = async {
        let mut pause = FIRST;
        // That it leaves this state does not say that it worked.
        while client.sandbox(call, &guest.id).await?.state == Some(State::Snapshotting) {
            bounded(call, &what, sleep(pause)).await?;
            pause = (pause * 3 / 2).min(LAST);
        }
        active(client, call, &name, APPEAR_LIMIT).await
    };
    saved.await.map(artifact).map_err(|error| unanswered(&spec.tag, error))
}

/// Has a snapshot built from a source.
pub(crate) async fn build(client: &Client, call: &Call, spec: &ArtifactSpec, log: &dyn OutputSink) -> Result<Artifact> {
    let what = format!("artifact {}: build", spec.tag);
    let build_info = build::request(client, call, &spec.source).await?.ok_or_else(|| {
        Error::unsupported(format!("{what}: {} is a snapshot already", build::named(&spec.source)))
            .hint("start a sandbox from it and save that")
    })?;
    let body = CreateSnapshot {
        name: labels::artifact_name(&spec.tag, &spec.fingerprint),
        build_info,
        region_id: client.target.clone(),
        sandbox_class: "container",
    };
    let made = match client.build_snapshot(call, &what, &body).await {
        Ok(Ok(made)) => made,
        Ok(Err(no)) => return Err(refused(&what, &spec.tag, &no)),
        Err(error) => return Err(unanswered(&spec.tag, error)),
    };
    match built(client, call, (spec, &made), log).await {
        Ok(snapshot) => Ok(artifact(snapshot)),
        Err(error) => match delete(client, &winding_up(call, TAKE_BACK_LIMIT), &made.name).await {
            Ok(Destruction::Confirmed) => Err(error),
            _ => Err(unanswered(&spec.tag, Error::new(ErrorKind::Transport, "it may still be there").because(error))),
        },
    }
}

async fn built(
    client: &Client,
    call: &Call,
    (spec, made): (&ArtifactSpec, &SnapshotObject),
    log: &dyn OutputSink,
) -> Result<SnapshotObject> {
    let what = build::named(&spec.source);
    let build_log = BuildLog::new(client, ("snapshots", &made.id), log);
    let mut follow = pin!(build_log.follow(call));
    let mut settled = pin!(settled(client, call, &made.id, APPEAR_LIMIT));
    let mut followed = false;
    let seen = loop {
        tokio::select! {
            seen = &mut settled => break seen?,
            () = &mut follow, if !followed => followed = true,
        }
    };
    if !followed {
        // The stream need not end by itself.
        let _ = timeout(LOG_REST, &mut follow).await;
    }
    match seen.state {
        Some(SnapshotState::Active) => Ok(seen),
        _ => Err(build_log.failure(&format!("build of {what}"), seen.error_reason.as_deref())),
    }
}

/// Makes a snapshot usable that the platform put aside because nobody used it for long.
pub(crate) async fn activate(client: &Client, call: &Call, name: &str) -> Result<()> {
    let what = format!("artifact {name}: activation");
    let id = client.snapshot(call, name).await?.id;
    match client.activate(call, &what, &id).await? {
        // Somebody else did, a moment ago.
        Err(no) if no.status() != 400 => return Err(no.error(&what, Effect::Idempotent)),
        _ => {}
    }
    active(client, call, &id, APPEAR_LIMIT).await.map(drop)
}

/// Waits until a snapshot can be used.
async fn active(client: &Client, call: &Call, id: &str, appear: Duration) -> Result<SnapshotObject> {
    let seen = settled(client, call, id, appear).await?;
    if seen.state == Some(SnapshotState::Active) {
        return Ok(seen);
    }
    let reason = seen.error_reason.as_deref().unwrap_or("no reason was given");
    Err(Error::new(ErrorKind::Failed, format!("artifact {id}: the platform could not make it: {reason}")))
}

/// Waits until a snapshot is usable or has failed. One that was just made may not be there yet.
async fn settled(client: &Client, call: &Call, id: &str, appear: Duration) -> Result<SnapshotObject> {
    let what = format!("artifact {id}");
    let missing_until = Instant::now() + appear;
    let mut pause = FIRST;
    loop {
        match client.snapshot(call, id).await {
            Ok(seen)
                if matches!(
                    seen.state,
                    Some(SnapshotState::Active | SnapshotState::Error | SnapshotState::BuildFailed)
                ) =>
            {
                return Ok(seen);
            }
            Ok(_) => {}
            Err(error) if *error.kind() == ErrorKind::NotFound && Instant::now() < missing_until => {}
            Err(error) if *error.kind() == ErrorKind::Unavailable => call.meter.retried(),
            Err(error) => return Err(error),
        }
        bounded(call, &what, sleep(pause)).await?;
        pause = (pause * 3 / 2).min(LAST);
    }
}

/// The artifact of this id.
pub(crate) async fn find(client: &Client, call: &Call, id: &str) -> Result<Artifact> {
    let seen = client.snapshot(call, checked("an artifact", id)?).await?;
    if seen.state == Some(SnapshotState::Removing) {
        return Err(Error::new(ErrorKind::NotFound, format!("artifact {id}: it is being deleted")));
    }
    Ok(artifact(seen))
}

/// Every artifact of ours whose tag matches.
pub(crate) async fn list(client: &Client, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
    let mut found = Vec::new();
    for page in 1..=PAGES {
        let (number, limit) = (page.to_string(), PAGE.to_string());
        let query_parts = [("page", number.as_str()), ("limit", limit.as_str())];
        let listed: SnapshotPage = client.query(call, "list of artifacts", &["snapshots"], &query_parts).await?;
        let wanted = listed.items.into_iter().filter(|seen| seen.state != Some(SnapshotState::Removing)).map(artifact);
        found.extend(wanted.filter(|artifact| artifact.tag.as_ref().is_some_and(|tag| query.matches(tag.as_str()))));
        if page >= listed.total_pages {
            break;
        }
    }
    Ok(found)
}

/// Deletes an artifact of ours, and waits until the platform says that it is gone. One that is gone already is confirmed.
pub(crate) async fn delete(client: &Client, call: &Call, id: &str) -> Result<Destruction> {
    let id = checked("an artifact", id)?;
    let what = format!("artifact {id}: delete");
    let seen = match client.snapshot(call, id).await {
        Ok(seen) => seen,
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(Destruction::Confirmed),
        Err(error) => return Err(error),
    };
    if labels::parse_artifact_name(&seen.name).is_none() {
        return Err(Error::invalid(format!("snapshot {} is not an artifact of ours; it is not deleted", seen.name)));
    }
    let deadline = call.deadline - MARGIN.min(call.remaining());
    let (mut pause, mut asked) = (FIRST, false);
    let mut why = "it was not answered in time".to_owned();
    loop {
        if !asked {
            match client.delete_snapshot(call, &what, &seen.id).await {
                Ok(Ok(())) => asked = true,
                Ok(Err(no)) if no.status() == 404 => return Ok(Destruction::Confirmed),
                Ok(Err(no)) if no.status() == 409 || no.in_transition() => why = no.message,
                Ok(Err(no)) => return Err(no.error(&what, Effect::Idempotent)),
                Err(error) if matches!(error.kind(), ErrorKind::DeadlineExceeded | ErrorKind::Cancelled) => {
                    return Ok(Destruction::Unconfirmed { why: error.to_string() });
                }
                Err(error) => return Err(error),
            }
        }
        match client.snapshot(call, &seen.id).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(Destruction::Confirmed),
            Ok(seen) if asked => why = format!("it is {:?}", seen.state).to_lowercase(),
            Ok(_) => {}
            Err(error) => why = error.to_string(),
        }
        if Instant::now() + pause >= deadline || call.cancel.is_cancelled() {
            return Ok(Destruction::Unconfirmed { why });
        }
        sleep(pause).await;
        pause = (pause * 3 / 2).min(LAST);
    }
}

fn artifact(seen: SnapshotObject) -> Artifact {
    let known = labels::parse_artifact_name(&seen.name);
    let (tag, fingerprint) = known.map_or((None, None), |(tag, fingerprint)| (Some(tag), Some(fingerprint)));
    Artifact {
        backend: crate::backend::NAME.to_owned(),
        tag,
        fingerprint,
        created_at: timestamp(seen.created_at.as_deref()),
        expires_at: None,
        size_bytes: seen.size.filter(|gib| *gib > 0.0).map(|gib| (gib * f64::from(1 << 30)) as u64),
        ready: seen.state == Some(SnapshotState::Active),
        id: seen.name,
    }
}

/// A refusal to make an artifact.
fn refused(what: &str, tag: &Tag, no: &No) -> Error {
    let error = no.error(what, Effect::Once);
    if *error.kind() == ErrorKind::Transport { unanswered(tag, error) } else { error }
}

/// An error after which it is not known whether the artifact was made, unless nothing was sent or the platform said no.
fn unanswered(tag: &Tag, cause: Error) -> Error {
    match cause.kind() {
        ErrorKind::Unavailable | ErrorKind::Failed | ErrorKind::SandboxLost | ErrorKind::NotFound => cause,
        _ => {
            let kind = ErrorKind::UncertainSubmission { tag: tag.clone() };
            Error::new(kind, format!("artifact {tag}: it is unknown whether it was made")).because(cause)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandbox_bench_core::Digest;

    use super::*;

    #[test]
    fn the_name_says_whose_a_snapshot_is_and_of_what() {
        let (tag, fingerprint) = (Tag::new("run", "unit"), Digest::of(b"x"));
        let object = |name: &str, state: &str| {
            serde_json::from_value(serde_json::json!({"id": "1", "name": name, "state": state, "size": 0.5})).unwrap()
        };
        let ours = artifact(object(&labels::artifact_name(&tag, &fingerprint), "active"));
        assert_eq!((ours.tag, ours.fingerprint, ours.ready), (Some(tag), Some(fingerprint), true));
        assert_eq!(ours.size_bytes, Some(1 << 29));
        let other = artifact(object("daytona-small", "pulling"));
        assert_eq!((other.tag, other.ready, other.id.as_str()), (None, false, "daytona-small"));
    }
}
