//! Warm artifacts: images of a sandbox's files.
//!
//! An image has an id and nothing of ours on it; so it is given a name that says tag and fingerprint ([`crate::labels`]), by
//! which it is found. Should we be gone between the two, it ends by the time that it is kept for.

use std::time::Duration;

use jiff::Timestamp;
use sandbox_bench_core::{Artifact, Call, Destruction, Error, ErrorKind, Result, SnapshotSpec, Tag, TagQuery};
use sandbox_bench_kit::wait::{bounded, uncancelled, winding_up};
use tokio::time::sleep;
use tonic::Code;

use crate::client::Client;
use crate::error::{Effect, passing, retry_after};
use crate::guest::{SAID_LIMIT, as_root, script};
use crate::image::checked;
use crate::live::pause;
use crate::proto::client::ImageListTagsItem;
use crate::router::Router;
use crate::{labels, observe};

/// How often the same snapshot is asked for before it is given up.
const TRIES: u32 = 6;
/// Time to take back an image that could not be given its name.
const TAKE_BACK_LIMIT: Duration = Duration::from_secs(10);

/// Saves the files of a sandbox, which goes on.
pub(crate) async fn save(router: &Router, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
    let client = router.client();
    router.run(call, "writing files to disk", as_root(script("sync", &[])), SAID_LIMIT).await?;
    let keep = spec.keep_for.unwrap_or_else(|| client.config.kept()).as_secs().max(1);
    let keep = i64::try_from(keep).unwrap_or(i64::MAX);
    let (made_at, id) = (Timestamp::now(), take(router, call, spec, keep).await?);
    let name = labels::artifact_name(&spec.tag, &spec.fingerprint);
    if let Err(error) = client.name_image(&uncancelled(call, call.remaining()), &id, &name).await {
        return Err(match client.delete_image(&winding_up(call, TAKE_BACK_LIMIT), &id).await {
            Ok(()) => error,
            Err(failed) => uncertain(&spec.tag, error).hint(format!("image {id} may still be there: {failed}")),
        });
    }
    let expires_at = made_at.checked_add(jiff::SignedDuration::from_secs(keep)).ok();
    Ok(Artifact {
        expires_at,
        created_at: Some(made_at),
        ..artifact(id, Some((spec.tag.clone(), spec.fingerprint.clone())))
    })
}

/// Asks for a snapshot until it is known what came of it: asked for again, it is the same one.
async fn take(router: &Router, call: &Call, spec: &SnapshotSpec, keep: i64) -> Result<String> {
    let what = router.what("snapshot");
    let snapshot = uuid::Uuid::new_v4().to_string();
    let mut failures = 0;
    // Once asked for, the answer is awaited even if the caller cancels: only it names what was made.
    let patient = &uncancelled(call, call.remaining());
    loop {
        if failures == 0 && call.cancel.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, format!("{what}: cancelled")));
        }
        let status = match router.snapshot(patient, &snapshot, keep).await {
            Ok(Ok(id)) => return Ok(id),
            Ok(Err(status)) => status,
            Err(error) if *error.kind() == ErrorKind::DeadlineExceeded => return Err(uncertain(&spec.tag, error)),
            Err(error) => return Err(error),
        };
        failures += 1;
        // The official client does not ask again after these.
        let final_ = matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled);
        if !passing(&status) || final_ || failures >= TRIES {
            let error = router.refused(patient, &what, Effect::Once, &status).await;
            return Err(match error.kind() {
                ErrorKind::Transport => uncertain(&spec.tag, error),
                _ => error,
            });
        }
        call.meter.retried();
        let wait = retry_after(&status).unwrap_or_else(|| pause(failures));
        bounded(patient, &what, sleep(wait)).await.map_err(|error| uncertain(&spec.tag, error))?;
    }
}

fn uncertain(tag: &Tag, cause: Error) -> Error {
    let kind = ErrorKind::UncertainSubmission { tag: tag.clone() };
    Error::new(kind, format!("artifact {tag}: it is unknown whether it was made")).because(cause)
}

fn artifact(id: String, known: Option<(Tag, sandbox_bench_core::Digest)>) -> Artifact {
    let (tag, fingerprint) = known.unzip();
    Artifact {
        backend: crate::backend::NAME.to_owned(),
        id,
        tag,
        fingerprint,
        created_at: None,
        expires_at: None,
        size_bytes: None,
        ready: true,
    }
}

/// What a name says of the image that has it.
fn named(item: &ImageListTagsItem) -> Option<Artifact> {
    let known = labels::parse_artifact_name(&item.tag)?;
    Some(Artifact { created_at: observe::timestamp(item.created_at), ..artifact(item.image_id.clone(), Some(known)) })
}

/// The artifact of this id.
pub(crate) async fn find(client: &Client, call: &Call, id: &str) -> Result<Artifact> {
    let absent =
        || Error::new(ErrorKind::NotFound, format!("artifact {id} is not there: it was deleted or has expired"));
    let Ok(id) = checked(id) else { return Err(absent()) };
    client.image_by_id(call, id).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => absent().because(error),
        _ => error,
    })?;
    let names = client.named_images(call, ("", id)).await?;
    let ours = names.iter().filter(|item| item.image_id == id).find_map(named);
    Ok(ours.unwrap_or_else(|| artifact(id.to_owned(), None)))
}

/// Every artifact whose tag matches.
pub(crate) async fn list(client: &Client, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
    let names = client.named_images(call, (&labels::artifact_prefix(query), "")).await?;
    let wanted = names.iter().filter_map(named);
    let mut all = Vec::new();
    for artifact in wanted.filter(|artifact| artifact.tag.as_ref().is_some_and(|tag| query.matches(tag.as_str()))) {
        match client.image_by_id(call, &artifact.id).await {
            Ok(_) => all.push(artifact),
            // Expired, or deleted by hand: the name alone is left.
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Deletes an artifact and its name; one that is gone already is confirmed.
pub(crate) async fn delete(client: &Client, call: &Call, id: &str) -> Result<Destruction> {
    // An id that the service cannot have given out is none of an artifact.
    let Ok(id) = checked(id) else { return Ok(Destruction::Confirmed) };
    let names: Vec<String> = client
        .named_images(call, ("", id))
        .await?
        .into_iter()
        .filter(|item| item.image_id == id && labels::parse_artifact_name(&item.tag).is_some())
        .map(|item| item.tag)
        .collect();
    let there = |error: Error| if *error.kind() == ErrorKind::NotFound { Ok(false) } else { Err(error) };
    if client.image_by_id(call, id).await.map_or_else(there, |_| Ok(true))? {
        if names.is_empty() {
            return Err(Error::invalid(format!("image {id} is not an artifact of ours; it is not deleted")));
        }
        client.delete_image(call, id).await.map_or_else(there, |()| Ok(true))?;
        if client.image_by_id(call, id).await.map_or_else(there, |_| Ok(true))? {
            return Ok(Destruction::Unconfirmed { why: "it was deleted, but the service still shows it".to_owned() });
        }
    }
    for name in names {
        let name = name.rsplit('/').next().unwrap_or(&name);
        client.forget_name(call, name).await.map_or_else(there, |()| Ok(true))?;
    }
    Ok(Destruction::Confirmed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandbox_bench_core::Digest;

    use super::*;

    #[test]
    fn a_name_says_whose_an_image_is_and_of_what() {
        let (tag, fingerprint) = (Tag::new("run", "unit"), Digest::of(b"x"));
        let item = |tag: String| ImageListTagsItem { tag, image_id: "im-1".into(), created_at: 1_800_000_000.0 };
        let ours = named(&item(labels::artifact_name(&tag, &fingerprint))).unwrap();
        assert_eq!((ours.id.as_str(), ours.tag, ours.fingerprint), ("im-1", Some(tag), Some(fingerprint)));
        assert!(ours.created_at.is_some());
        assert_eq!(named(&item("somebody-elses:latest".into())), None);
    }
}
