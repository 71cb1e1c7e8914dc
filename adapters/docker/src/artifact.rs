//! Warm artifacts: images that are committed from a sandbox, or built from a source.

use std::collections::HashMap;

use bollard::models::{ContainerConfig, ImageConfig};
use bollard::query_parameters::{CommitContainerOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptionsBuilder};
use jiff::Timestamp;
use sandbox_bench_core::{
    Artifact, ArtifactSpec, Call, Destruction, Error, ErrorKind, OutputSink, Result, SnapshotSpec, Source, Tag,
    TagQuery,
};

use crate::build::{self, Build, Recipe};
use crate::client::{Engine, checked, raw_request, request, short};
use crate::{error, image, labels, observe};

/// Commits the container's file system.
///
/// The image keeps the entrypoint, command, directory and health check of the image that the sandbox came from.
pub(crate) async fn commit(engine: &Engine, call: &Call, container: &str, spec: &SnapshotSpec) -> Result<Artifact> {
    let seen = observe::inspect_held(engine, call, container).await?;
    if let Some(mount) = seen.mounts.iter().flatten().find(|mount| mount.typ.as_deref() == Some("volume")) {
        let path = mount.destination.as_deref().unwrap_or("a directory");
        return Err(Error::unsupported(format!("container {}: its image declares {path} a volume", short(container)))
            .hint("the engine leaves volumes out of a snapshot; use an image without VOLUME"));
    }
    let origin = image::inspect(engine, call, seen.image.as_deref().unwrap_or_default()).await?;
    let options = CommitContainerOptionsBuilder::new()
        .container(container)
        .repo(labels::ARTIFACTS)
        .tag(spec.tag.as_str())
        .pause(true)
        .build();
    let config = snapshot_config(origin.config.unwrap_or_default(), labels::artifact(&spec.tag, &spec.fingerprint));
    let what = format!("container {}: snapshot", short(container));
    let committed = raw_request(call, &what, engine.docker.commit_container(options, config)).await;
    let committed = committed.map_err(|e| uncertain(&spec.tag, e))?.map_err(|e| {
        let mapped = error::map(&what, e);
        if *mapped.kind() == ErrorKind::Transport { uncertain(&spec.tag, mapped) } else { mapped }
    })?;
    let id = if committed.id.is_empty() { artifact_name(&spec.tag) } else { committed.id };
    find(engine, call, &id).await.map_err(|e| uncertain(&spec.tag, e))
}

fn snapshot_config(origin: ImageConfig, labels: HashMap<String, String>) -> ContainerConfig {
    let directory = origin.working_dir.filter(|path| !path.is_empty());
    ContainerConfig {
        // An empty list, unlike none, keeps the container's entrypoint (ours) out of the image.
        entrypoint: Some(origin.entrypoint.unwrap_or_default()),
        cmd: Some(origin.cmd.unwrap_or_else(|| vec!["/bin/sh".to_owned()])),
        healthcheck: origin.healthcheck,
        working_dir: Some(directory.unwrap_or_else(|| "/".to_owned())),
        labels: Some(labels),
        ..ContainerConfig::default()
    }
}

/// Builds an artifact from an image or a Dockerfile, without a sandbox.
pub(crate) async fn build(engine: &Engine, call: &Call, spec: &ArtifactSpec, log: &dyn OutputSink) -> Result<Artifact> {
    let recipe = match &spec.source {
        Source::Dockerfile { context, dockerfile, .. } => Recipe::Context(context.clone(), dockerfile.clone()),
        source => Recipe::Text(format!("FROM {}\n", image::name(engine, source)?)),
    };
    let name = artifact_name(&spec.tag);
    let mut image_labels = spec.labels.clone().into_iter().collect::<HashMap<_, _>>();
    image_labels.extend(labels::artifact(&spec.tag, &spec.fingerprint));
    let build = Build { name: name.clone(), labels: image_labels, recipe };
    build::build(engine, call, build, log).await.map_err(|e| match e.kind() {
        ErrorKind::Transport => uncertain(&spec.tag, e),
        _ => e,
    })?;
    find(engine, call, &name).await.map_err(|e| uncertain(&spec.tag, e))
}

fn artifact_name(tag: &Tag) -> String {
    format!("{}:{tag}", labels::ARTIFACTS)
}

fn uncertain(tag: &Tag, cause: Error) -> Error {
    let kind = ErrorKind::UncertainSubmission { tag: tag.clone() };
    Error::new(kind, format!("artifact {tag}: it is unknown whether it was made")).because(cause)
}

/// The artifact of this id: an image that carries a name of ours. One that lost it has been deleted, although the engine
/// keeps it for as long as a later generation stands on it.
pub(crate) async fn find(engine: &Engine, call: &Call, id: &str) -> Result<Artifact> {
    named(engine, call, id).await.map(|(artifact, _)| artifact)
}

/// As [`find`], with the names of ours that it carries.
async fn named(engine: &Engine, call: &Call, id: &str) -> Result<(Artifact, Vec<String>)> {
    let seen = image::inspect(engine, call, id).await?;
    let config = seen.config.and_then(|config| config.labels).unwrap_or_default();
    let facts = Facts {
        id: seen.id.unwrap_or_else(|| id.to_owned()),
        labels: config,
        created_at: seen.created.as_deref().and_then(observe::timestamp),
        size: seen.size,
    };
    let artifact = facts.artifact();
    let names: Vec<_> =
        seen.repo_tags.unwrap_or_default().into_iter().filter(|name| labels::names_ours(name)).collect();
    if artifact.tag.is_some() && names.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, format!("artifact {}: it was deleted", short(id))));
    }
    Ok((artifact, names))
}

/// Every artifact whose tag matches.
pub(crate) async fn list(engine: &Engine, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
    let options = ListImagesOptionsBuilder::new().filters(&labels::filter(labels::ARTIFACT, query)).build();
    let images = request(call, "list of artifacts", engine.docker.list_images(Some(options))).await?;
    let ours =
        images.into_iter().filter(|image| image.labels.get(labels::ARTIFACT).is_some_and(|tag| query.matches(tag)));
    Ok(ours
        .map(|image| {
            let created_at = Timestamp::from_second(image.created).ok();
            Facts { id: image.id, labels: image.labels, created_at, size: Some(image.size) }.artifact()
        })
        .collect())
}

struct Facts {
    id: String,
    labels: HashMap<String, String>,
    created_at: Option<Timestamp>,
    size: Option<i64>,
}

impl Facts {
    fn artifact(self) -> Artifact {
        let label = |key: &str| self.labels.get(key);
        Artifact {
            backend: "docker".to_owned(),
            tag: label(labels::ARTIFACT).and_then(|tag| Tag::parse(tag)),
            fingerprint: label(labels::FINGERPRINT).and_then(|text| text.parse().ok()),
            created_at: self.created_at,
            expires_at: None,
            size_bytes: self.size.and_then(|size| u64::try_from(size).ok()),
            ready: true,
            id: self.id,
        }
    }
}

/// Removes an artifact; one that is gone already is confirmed. While a container of any state stands on it the engine
/// refuses.
///
/// It is removed by our names and not by its id, which the engine refuses for an image that has other names, or from
/// which another was made. What still needs its layers then keeps them, and the engine drops them with the last of those.
pub(crate) async fn delete(engine: &Engine, call: &Call, id: &str) -> Result<Destruction> {
    let id = checked("an artifact", id)?;
    let names = match named(engine, call, id).await {
        Ok((artifact, names)) if artifact.tag.is_some() => names,
        Ok(_) => return Err(Error::invalid(format!("image {id} is not an artifact of ours; it is not deleted"))),
        Err(e) if *e.kind() == ErrorKind::NotFound => return Ok(Destruction::Confirmed),
        Err(e) => return Err(e),
    };
    let what = format!("artifact {}: delete", short(id));
    for name in names {
        let options = RemoveImageOptionsBuilder::new().build();
        let answer = match raw_request(call, &what, engine.docker.remove_image(&name, Some(options), None)).await {
            Ok(answer) => answer,
            Err(unanswered) => return Ok(Destruction::Unconfirmed { why: unanswered.to_string() }),
        };
        let Err(error) = answer else { continue };
        match error::answer(&error) {
            Some((404, _)) => {}
            Some((409 | 500, message)) => return Ok(Destruction::Unconfirmed { why: message.to_owned() }),
            _ => return Err(error::map(&what, error)),
        }
    }
    Ok(Destruction::Confirmed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_keeps_the_command_of_its_origin_and_not_ours() {
        let origin = ImageConfig { cmd: Some(vec!["serve".into()]), ..ImageConfig::default() };
        let config = snapshot_config(origin, HashMap::new());
        assert_eq!(config.entrypoint, Some(vec![]));
        assert_eq!(config.cmd, Some(vec!["serve".to_owned()]));
        assert_eq!(config.working_dir.as_deref(), Some("/"), "not that of the sandbox");
    }
}
