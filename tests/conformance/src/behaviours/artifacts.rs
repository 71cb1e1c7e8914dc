//! Warm artifacts: what they hold, and that they share nothing with what came before or comes after.

use std::collections::BTreeMap;

use sandbox_bench_core::{
    Artifact, ArtifactSpec, Created, Destruction, Digest, Sandbox, SandboxSpec, SnapshotSpec, Source, TagQuery,
    TailSink,
};

use super::upload::{same_tree, varied};
use crate::check::{Check, refused, same};
use crate::ensure;
use crate::harness::{Handle, Harness};

async fn snapshot(h: &Harness, s: &Handle) -> Check<Artifact> {
    let spec = SnapshotSpec { tag: h.tag(), fingerprint: Digest::of(h.run.as_bytes()), keep_for: None };
    Ok(Sandbox::snapshot(&**s, &h.call(), &spec).await?)
}

async fn created_from(h: &Harness, artifact: &Artifact) -> Check<Created> {
    Ok(h.create(&SandboxSpec { source: Source::Artifact(artifact.id.clone()), ..h.spec() }).await?)
}

async fn clone_of(h: &Harness, artifact: &Artifact) -> Check<Handle> {
    Ok(created_from(h, artifact).await?.sandbox)
}

/// A sandbox with a known state, and the artifact of it.
async fn original(h: &Harness) -> Check<(Handle, Artifact)> {
    let s = h.sandbox().await?;
    h.sh(&s, "mkdir /conformance && echo original > /conformance/state").await?;
    let artifact = snapshot(h, &s).await?;
    Ok((s, artifact))
}

const STATE: &str = "cat /conformance/state";

pub async fn a_clone_has_the_files(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.put_tree(&s, "/conformance/tree", &varied()).await?;
    // A directory of the source, emptied and made anew: its old files must not shine through.
    let dir = h.sh(&s, "ls -d /usr/share/common-licenses /etc/skel /etc/profile.d 2>/dev/null | head -n 1").await?;
    ensure!(!dir.is_empty(), "the suite knows no directory of this source to replace");
    h.sh(&s, &format!("echo changed >> /etc/passwd; rm /etc/group; rm -rf {dir}; mkdir {dir}; echo new > {dir}/new"))
        .await?;
    let list = format!("ls -A {dir}; ls /etc/group 2>/dev/null; tail -n 1 /etc/passwd");
    let before = (h.get(&s, "/conformance").await?, h.sh(&s, &list).await?);
    same("changes and deletions in the original", before.1.clone(), "new\nchanged".into())?;
    let clone = clone_of(h, &snapshot(h, &s).await?).await?;
    same("changes and deletions in the clone", h.sh(&clone, &list).await?, before.1)?;
    same_tree(&h.get(&clone, "/conformance").await?, &before.0)
}

pub async fn a_clone_has_no_processes_of_the_original(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.sh(&s, &super::beats::starting(&[&h.run], "true")).await?;
    let clone = clone_of(h, &snapshot(h, &s).await?).await?;
    let list = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline && echo; done 2>/dev/null; true";
    let listed = h.sh(&clone, list).await?;
    ensure!(!listed.contains(&format!("done {}", h.run)), "a process of the original runs in the clone: {listed:?}");
    Ok(())
}

pub async fn clones_share_nothing(h: &Harness) -> Check {
    let (s, artifact) = original(h).await?;
    let (a, b) = (clone_of(h, &artifact).await?, clone_of(h, &artifact).await?);
    h.sh(&a, "echo of a > /conformance/state; touch /conformance/only-a").await?;
    same("the other clone", h.sh(&b, "cat /conformance/state; ls /conformance").await?, "original\nstate".into())?;
    h.sh(&b, "rm -r /conformance").await?;
    same("the first clone", h.sh(&a, STATE).await?, "of a".into())?;
    same("a later clone", h.sh(&clone_of(h, &artifact).await?, STATE).await?, "original".into())?;
    h.destroy(&s).await?;
    h.destroy(&a).await?;
    same("a clone after the original is gone", h.sh(&clone_of(h, &artifact).await?, STATE).await?, "original".into())
}

pub async fn the_original_goes_on_apart(h: &Harness) -> Check {
    let (s, artifact) = original(h).await?;
    let clone = clone_of(h, &artifact).await?;
    h.sh(&clone, "echo of the clone > /conformance/state").await?;
    same("the original after a change in the clone", h.sh(&s, STATE).await?, "original".into())?;
    h.sh(&s, "echo of the original > /conformance/state").await?;
    same("the clone after a change in the original", h.sh(&clone, STATE).await?, "of the clone".into())?;
    same("a later clone", h.sh(&clone_of(h, &artifact).await?, STATE).await?, "original".into())
}

pub async fn a_clone_can_be_saved_again(h: &Harness) -> Check {
    let (_s, first) = original(h).await?;
    let clone = clone_of(h, &first).await?;
    h.sh(&clone, "echo second >> /conformance/state").await?;
    let second = snapshot(h, &clone).await?;
    same("the second generation", h.sh(&clone_of(h, &second).await?, STATE).await?, "original\nsecond".into())?;
    same("the first generation", h.sh(&clone_of(h, &first).await?, STATE).await?, "original".into())
}

pub async fn generations_are_deleted_in_any_order(h: &Harness) -> Check {
    let (s, first) = original(h).await?;
    let clone = clone_of(h, &first).await?;
    h.sh(&clone, "echo second >> /conformance/state").await?;
    let second = snapshot(h, &clone).await?;
    h.destroy(&clone).await?;
    h.destroy(&s).await?;
    for _ in 0..2 {
        same("delete", h.backend.delete_artifact(&h.call(), &first.id).await?, Destruction::Confirmed)?;
        refused("looking the first up", h.backend.artifact(&h.call(), &first.id).await, &["not_found"])?;
    }
    let spec = SandboxSpec { source: Source::Artifact(first.id), ..h.spec() };
    refused("create from the first", h.create(&spec).await, &["not_found"])?;
    let later = clone_of(h, &second).await?;
    same("the second generation", h.sh(&later, STATE).await?, "original\nsecond".into())?;
    h.destroy(&later).await?;
    same("delete", h.backend.delete_artifact(&h.call(), &second.id).await?, Destruction::Confirmed)
}

pub async fn a_clone_says_what_it_started_from(h: &Harness) -> Check {
    let (_s, artifact) = original(h).await?;
    let created = created_from(h, &artifact).await?;
    same("the resolved source", created.facts.resolved_source, artifact.id)
}

pub async fn settings_of_the_original_are_not_in_the_clone(h: &Harness) -> Check {
    let env = BTreeMap::from([("OF_THE_ORIGINAL".to_owned(), "yes".to_owned())]);
    let s = h.create(&SandboxSpec { env, ..h.spec() }).await?.sandbox;
    let clone = clone_of(h, &snapshot(h, &s).await?).await?;
    same("the original's variable, in the clone", h.sh(&clone, "echo ${OF_THE_ORIGINAL-unset}").await?, "unset".into())
}

pub async fn artifacts_are_listed_with_tag_and_fingerprint(h: &Harness) -> Check {
    let (_s, made) = original(h).await?;
    same("the backend's name", made.backend.clone(), h.backend.info().name.clone())?;
    same("the fingerprint", made.fingerprint.clone(), Some(Digest::of(h.run.as_bytes())))?;
    ensure!(made.ready, "it is not ready when snapshot returns");
    let Some(tag) = made.tag.clone() else { return same("the tag", None, Some(h.tag())) };
    let again = h.connect_again().await?;
    for backend in [&h.backend, &again] {
        let looked_up = backend.artifact(&h.call(), &made.id).await?;
        same("looked up by id", (looked_up.tag, looked_up.fingerprint), (made.tag.clone(), made.fingerprint.clone()))?;
        for query in [TagQuery::Exact(tag.clone()), TagQuery::Run(h.run.clone())] {
            let listed = backend.artifacts(&h.call(), &query).await?;
            same("listed by tag", listed.into_iter().map(|a| a.id).collect(), vec![made.id.clone()])?;
        }
        same("listed by another tag", backend.artifacts(&h.call(), &TagQuery::Exact(h.tag())).await?.len(), 0)?;
    }
    // Artifacts are not sandboxes.
    same("sandboxes found by the artifact's tag", h.found(TagQuery::Exact(tag)).await?, Vec::new())
}

pub async fn deleting_an_artifact_twice_is_confirmed_twice(h: &Harness) -> Check {
    let (_s, artifact) = original(h).await?;
    for _ in 0..2 {
        same("delete", h.backend.delete_artifact(&h.call(), &artifact.id).await?, Destruction::Confirmed)?;
        refused("looking it up", h.backend.artifact(&h.call(), &artifact.id).await, &["not_found"])?;
        same("listed", h.backend.artifacts(&h.call(), &TagQuery::Run(h.run.clone())).await?.len(), 0)?;
    }
    let spec = SandboxSpec { source: Source::Artifact(artifact.id.clone()), ..h.spec() };
    refused("create from a deleted artifact", h.create(&spec).await, &["not_found"])?;
    same("sandboxes after it", h.found(TagQuery::Exact(spec.tag)).await?, Vec::new())?;
    let never = "sha256:".to_owned() + &"0123456789abcdef".repeat(4);
    same(
        "delete of one that never existed",
        h.backend.delete_artifact(&h.call(), &never).await?,
        Destruction::Confirmed,
    )
}

pub async fn deleting_an_artifact_does_not_break_its_clones(h: &Harness) -> Check {
    let (s, artifact) = original(h).await?;
    let clone = clone_of(h, &artifact).await?;
    // Refusing is allowed; breaking the clone is not.
    let deleted = h.backend.delete_artifact(&h.call(), &artifact.id).await;
    same(
        "the clone afterwards",
        h.sh(&clone, "cat /conformance/state; echo more > /conformance/new").await?,
        "original".into(),
    )?;
    if h.can().snapshot_keeps_sandbox {
        same("the original afterwards", h.sh(&s, STATE).await?, "original".into())?;
    }
    h.destroy(&clone).await?;
    h.destroy(&s).await?;
    match deleted {
        Ok(Destruction::Confirmed) => Ok(()),
        _ => same(
            "delete when no clone runs",
            h.backend.delete_artifact(&h.call(), &artifact.id).await?,
            Destruction::Confirmed,
        ),
    }
}

pub async fn an_artifact_is_built_from_a_source(h: &Harness) -> Check {
    let fingerprint = Digest::of(h.run.as_bytes());
    let spec =
        ArtifactSpec { tag: h.tag(), fingerprint: fingerprint.clone(), source: h.source(), labels: BTreeMap::new() };
    let built = h.backend.build_artifact(&h.call(), &spec, &TailSink::new(4096)).await?;
    same(
        "tag and fingerprint",
        (built.tag.clone(), built.fingerprint.clone()),
        (Some(spec.tag.clone()), Some(fingerprint)),
    )?;
    let listed = h.backend.artifacts(&h.call(), &TagQuery::Exact(spec.tag)).await?;
    same("listed by tag", listed.into_iter().map(|a| a.id).collect(), vec![built.id.clone()])?;
    same("a command in a sandbox from it", h.sh(&clone_of(h, &built).await?, "echo warm").await?, "warm".into())
}
