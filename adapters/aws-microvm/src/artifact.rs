//! Warm artifacts: images of our own with tag and fingerprint written on them.
//!
//! The service cannot save a running MicroVM. So what was changed in it is brought out, laid over the build context that its
//! own image was built of, and built: an image with the same files.

use aws_sdk_lambdamicrovms::operation::get_microvm_image::GetMicrovmImageOutput;
use aws_sdk_lambdamicrovms::types::{CodeArtifact, MicrovmImageState};
use reqwest::Method;
use sandbox_bench_core::{
    Artifact, ArtifactSpec, Call, Destruction, Digest, Error, ErrorKind, OutputSink, Resources, Result, SnapshotSpec,
    Tag, TagQuery, TailSink,
};
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::bounded;
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt;

use crate::backend::{NAME, State};
use crate::cloud::{Cloud, ask, timestamp};
use crate::create::{self, image_arn, warm_name};
use crate::image::{self, PREFIX, Wanted};
use crate::size::Size;
use crate::vm::{Request, Vm};
use crate::{context, dockerfile, transfer};

/// Most bytes of what was changed in a MicroVM, compressed.
const LAYER_LIMIT: u64 = 8 << 30;

/// Saves the files of a MicroVM, which goes on.
pub(crate) async fn snapshot(vm: &Vm, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
    let what = format!("MicroVM {}: snapshot", vm.id);
    let on_host = |e: std::io::Error| Error::invalid("a layer cannot be kept on the host").because(e);
    let layer = NamedTempFile::new().map_err(on_host)?;
    let changes = Request::new(Method::GET, &["v1", "changes"]);
    transfer::receive(vm, call, &what, &changes, (layer.path(), LAYER_LIMIT)).await?;
    let base = base_context(&vm.cloud, call, &vm.image).await?;
    let name = warm_name(&spec.tag);
    let member = format!("{name}.tar.gz");
    let context =
        move || context::with_layer(base.path(), (&member, layer.path()), |text| dockerfile::with_layer(text, &member));
    let artifact = Some((spec.tag.clone(), spec.fingerprint.clone()));
    let wanted = Wanted { name, size: vm.image.size, artifact, context };
    let log = TailSink::new(0);
    let made = vm.images.ensure(&vm.cloud, call, wanted, &log).await;
    finished(&vm.cloud, call, (&spec.tag, &spec.fingerprint), made.map(|(image, _)| image.arn)).await
}

/// Builds an artifact without a sandbox.
pub(crate) async fn build(state: &State, call: &Call, spec: &ArtifactSpec, log: &dyn OutputSink) -> Result<Artifact> {
    let size = Size::fitting(&Resources::default(), state.cloud.settings.sizing)?;
    let artifact = Some((spec.tag.clone(), spec.fingerprint.clone()));
    let made = create::environment(state, call, (&spec.source, size), artifact, log).await;
    finished(&state.cloud, call, (&spec.tag, &spec.fingerprint), made.map(|(image, _)| image.arn)).await
}

/// The artifact that was made; a build whose end was not seen is uncertain, for it goes on at the service.
async fn finished(
    cloud: &Cloud,
    call: &Call,
    (tag, fingerprint): (&Tag, &Digest),
    made: Result<String>,
) -> Result<Artifact> {
    match made {
        Ok(arn) => match find(cloud, call, &arn).await {
            Ok(artifact)
                if artifact.tag.as_ref() == Some(tag) && artifact.fingerprint.as_ref() == Some(fingerprint) =>
            {
                Ok(artifact)
            }
            Ok(_) => Err(Error::new(ErrorKind::Failed, format!("image {arn} does not carry the tag {tag}"))),
            Err(error) => Err(uncertain(tag, error)),
        },
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Transport | ErrorKind::DeadlineExceeded | ErrorKind::Cancelled | ErrorKind::Unavailable
            ) =>
        {
            Err(uncertain(tag, error))
        }
        Err(error) => Err(error),
    }
}

fn uncertain(tag: &Tag, cause: Error) -> Error {
    let kind = ErrorKind::UncertainSubmission { tag: tag.clone() };
    Error::new(kind, format!("artifact {tag}: it is unknown whether it was made")).because(cause)
}

/// The build context that an image was built of.
async fn base_context(cloud: &Cloud, call: &Call, image: &image::Image) -> Result<NamedTempFile> {
    let what = format!("image {}", image.arn);
    let request = cloud.lambda.get_microvm_image_version().image_identifier(&image.arn).image_version(&image.version);
    let version = ask(call, &what, Effect::Idempotent, request.send()).await?;
    let uri = match &version.code_artifact {
        Some(CodeArtifact::Uri(uri)) => uri.clone(),
        _ => String::new(),
    };
    let (bucket, key) = uri
        .strip_prefix("s3://")
        .and_then(|place| place.split_once('/'))
        .ok_or_else(|| Error::new(ErrorKind::Failed, format!("{what}: it does not say what it was built of")))?;
    let request = cloud.s3.get_object().bucket(bucket).key(key);
    let gone = |error: Error| {
        if *error.kind() == ErrorKind::NotFound {
            return Error::new(ErrorKind::NotFound, format!("{what}: its build context {uri} is gone"))
                .because(error)
                .hint("keep the objects of the bucket for as long as the images that were built of them");
        }
        error
    };
    let object = ask(call, &uri, Effect::Idempotent, request.send()).await.map_err(gone)?;
    let on_host = |e: std::io::Error| Error::invalid("a build context cannot be kept on the host").because(e);
    let file = NamedTempFile::new().map_err(on_host)?;
    let mut to = tokio::fs::File::from_std(file.reopen().map_err(on_host)?);
    let mut body = object.body;
    let receive = async {
        while let Some(chunk) = body.next().await {
            let chunk =
                chunk.map_err(|e| Error::new(ErrorKind::Unavailable, format!("{uri}: it broke off")).because(e))?;
            call.meter.received(chunk.len() as u64);
            to.write_all(&chunk).await.map_err(on_host)?;
        }
        to.flush().await.map_err(on_host)
    };
    bounded(call, &uri, receive).await??;
    Ok(file)
}

/// The artifact of this id.
pub(crate) async fn find(cloud: &Cloud, call: &Call, id: &str) -> Result<Artifact> {
    let absent = || Error::new(ErrorKind::NotFound, format!("artifact {id} is not there"));
    if !image_arn(id) {
        return Err(absent());
    }
    let request = cloud.lambda.get_microvm_image().image_identifier(id);
    match ask(call, &format!("artifact {id}"), Effect::Idempotent, request.send()).await {
        Ok(seen) if matches!(seen.state, MicrovmImageState::Deleting | MicrovmImageState::Deleted) => Err(absent()),
        Ok(seen) => Ok(artifact(&seen)),
        Err(error) if *error.kind() == ErrorKind::NotFound => Err(absent().because(error)),
        Err(error) => Err(error),
    }
}

fn artifact(seen: &GetMicrovmImageOutput) -> Artifact {
    let (tag, fingerprint) = image::written(seen.tags.as_ref()).flatten().unzip();
    let built = matches!(seen.state, MicrovmImageState::Created | MicrovmImageState::Updated);
    Artifact {
        backend: NAME.to_owned(),
        id: seen.image_arn.clone(),
        tag,
        fingerprint: fingerprint.flatten(),
        created_at: timestamp(&seen.created_at),
        expires_at: None,
        size_bytes: None,
        ready: built && seen.latest_active_image_version.as_ref().is_some_and(|version| !version.is_empty()),
    }
}

/// Every artifact whose tag matches. A search for all of them finds the images of environments too, which have no tag.
pub(crate) async fn list(cloud: &Cloud, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
    let text = match query {
        TagQuery::Exact(tag) => warm_name(tag),
        TagQuery::Run(_) => format!("{PREFIX}warm-"),
        TagQuery::All => PREFIX.to_owned(),
    };
    let mut all = Vec::new();
    for summary in image::list(cloud, call, &text).await? {
        if !summary.name.starts_with(PREFIX) {
            continue;
        }
        let request = cloud.lambda.get_microvm_image().image_identifier(&summary.image_arn);
        let seen = match ask(call, "image", Effect::Idempotent, request.send()).await {
            Ok(seen) => seen,
            // It was deleted meanwhile.
            Err(error) if *error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let gone = matches!(seen.state, MicrovmImageState::Deleting | MicrovmImageState::Deleted);
        let meant = match image::written(seen.tags.as_ref()) {
            None => false,
            Some(None) => matches!(query, TagQuery::All),
            Some(Some((tag, _))) => query.matches(tag.as_str()),
        };
        if meant && !gone {
            all.push(artifact(&seen));
        }
    }
    Ok(all)
}

/// Deletes an artifact; one that is gone already is confirmed, one from which MicroVMs run is not deleted.
pub(crate) async fn delete(cloud: &Cloud, call: &Call, id: &str) -> Result<Destruction> {
    if !image_arn(id) {
        return Ok(Destruction::Confirmed);
    }
    let request = cloud.lambda.get_microvm_image().image_identifier(id);
    match ask(call, &format!("artifact {id}"), Effect::Idempotent, request.send()).await {
        Ok(seen) if image::written(seen.tags.as_ref()).is_none() => {
            return Err(Error::invalid(format!("image {id} is not an artifact of ours; it is not deleted")));
        }
        Ok(_) => {}
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(Destruction::Confirmed),
        Err(error) => return Err(error),
    }
    match tokio::time::timeout(call.remaining() * 3 / 4, image::remove(cloud, call, id)).await {
        Ok(Ok(())) => Ok(Destruction::Confirmed),
        // The service refuses while MicroVMs run from it, or it is being built.
        Ok(Err(error)) if *error.kind() == ErrorKind::InvalidRequest => {
            Ok(Destruction::Unconfirmed { why: error.to_string() })
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Ok(Destruction::Unconfirmed { why: "it was deleted, but the service still shows it".to_owned() }),
    }
}
