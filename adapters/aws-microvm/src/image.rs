//! Images: found by name, or built; and what is written on them.
//!
//! An image is named after what it is made of, so equal requests share one, and one whose creation was not answered is found
//! again. The service keeps it until somebody deletes it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_lambdamicrovms::types::{
    Architecture, BuildState, CloudWatchLogging, CodeArtifact, CpuConfiguration, HookState, Hooks, Logging,
    MicrovmHooks, MicrovmImageBuildSummary, MicrovmImageHooks, MicrovmImageState, MicrovmImageSummary, Resources,
};
use aws_sdk_s3::primitives::ByteStream;
use sandbox_bench_core::{Call, Digest, Error, ErrorKind, OutputSink, Result, Stream, Tag};
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::bounded;
use tokio::time::Instant;
use uuid::Uuid;

use crate::cloud::{Cloud, ask};
use crate::context::Context;
use crate::size::Size;

/// What begins the name of every image of ours.
pub(crate) const PREFIX: &str = "sb-";
const APP: (&str, &str) = ("app", "sandbox-bench");
const TAG: &str = "sandbox-bench-tag";
const FINGERPRINT: &str = "sandbox-bench-fingerprint";
/// Pauses between two looks at an image that is being built.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];
/// How long an image may not be known yet that was just made.
const UNKNOWN_LIMIT: Duration = Duration::from_secs(30);
/// Limit for removing what a failed build left.
const TIDY_LIMIT: Duration = Duration::from_secs(20);
/// Most pages of a list that are read, and entries of a page.
pub(crate) const PAGES: usize = 2000;
pub(crate) const PAGE: i32 = 50;
const HOOKS_PORT: i32 = 9000;
const READY_SECONDS: i32 = 300;
const VALIDATE_SECONDS: i32 = 120;
const RUN_SECONDS: i32 = 10;

/// An image that MicroVMs can be started from.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) arn: String,
    pub(crate) version: String,
    pub(crate) size: Size,
}

/// What to have built.
pub(crate) struct Wanted<F> {
    /// Name of the image.
    pub(crate) name: String,
    pub(crate) size: Size,
    /// Whose it is, and of which environment; none for what any sandbox may start from.
    pub(crate) artifact: Option<(Tag, Digest)>,
    /// Writes the build context.
    pub(crate) context: F,
}

/// Builds that go on in this process, by name, and what is known of images.
#[derive(Debug, Default)]
pub(crate) struct Images {
    building: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    snapshots: Mutex<HashMap<String, Option<u64>>>,
}

impl Images {
    /// The image of this name, and whether it was there already; built if it is not, which several callers do once.
    ///
    /// # Errors
    /// `Environment` if the build failed, `InvalidRequest` if what a build needs is not set, and those of the service.
    pub(crate) async fn ensure<F>(
        &self,
        cloud: &Cloud,
        call: &Call,
        wanted: Wanted<F>,
        log: &dyn OutputSink,
    ) -> Result<(Image, bool)>
    where
        F: FnOnce() -> Result<Context> + Send + 'static,
    {
        let name = wanted.name.clone();
        let turn =
            self.building.lock().unwrap_or_else(PoisonError::into_inner).entry(name.clone()).or_default().clone();
        let _turn = bounded(call, &format!("image {name}"), turn.lock()).await?;
        let mut hit = true;
        let found = match by_name(cloud, call, &name).await? {
            Some(found) if broken(&found.state) => {
                remove(cloud, call, &found.image_arn).await?;
                None
            }
            found => found,
        };
        let arn = match found {
            Some(found) => found.image_arn,
            None => {
                hit = false;
                create(cloud, call, wanted, log).await?
            }
        };
        let image = finished(cloud, call, (&name, &arn), log).await?;
        Ok((image, hit))
    }

    /// Size of the memory snapshot that MicroVMs of this image start from, if the service says it.
    pub(crate) async fn snapshot_bytes(&self, cloud: &Cloud, call: &Call, image: &Image) -> Option<u64> {
        let key = format!("{}@{}", image.arn, image.version);
        let known = || self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known().get(&key) {
            return *bytes;
        }
        // It bears on cost alone: what cannot be had is left out.
        let bytes = snapshot_bytes(cloud, call, image).await.ok()?;
        known().insert(key, bytes);
        bytes
    }
}

/// True for an image that will never be of use.
fn broken(state: &MicrovmImageState) -> bool {
    matches!(state, MicrovmImageState::CreateFailed | MicrovmImageState::DeleteFailed | MicrovmImageState::Deleting)
}

/// The image of exactly this name.
pub(crate) async fn by_name(cloud: &Cloud, call: &Call, name: &str) -> Result<Option<MicrovmImageSummary>> {
    let found = list(cloud, call, name).await?;
    Ok(found.into_iter().find(|image| image.name == name && image.state != MicrovmImageState::Deleted))
}

/// All images whose name holds this text.
pub(crate) async fn list(cloud: &Cloud, call: &Call, text: &str) -> Result<Vec<MicrovmImageSummary>> {
    let (mut all, mut token) = (Vec::new(), None);
    for _ in 0..PAGES {
        let request = cloud.lambda.list_microvm_images().name_filter(text).max_results(PAGE).set_next_token(token);
        let page = ask(call, "images", Effect::Idempotent, request.send()).await?;
        all.extend(page.items);
        token = page.next_token.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(all);
        }
    }
    Err(Error::new(ErrorKind::Failed, "images: the list does not end"))
}

/// Uploads a build context and asks for the image; returns its ARN.
async fn create<F>(cloud: &Cloud, call: &Call, wanted: Wanted<F>, log: &dyn OutputSink) -> Result<String>
where
    F: FnOnce() -> Result<Context> + Send + 'static,
{
    let Wanted { name, size, artifact, context } = wanted;
    let what = format!("image {name}: create");
    let settings = &cloud.settings;
    let missing = |what: &str, how: &str| {
        Error::invalid(format!("image {name} has to be built, and there is no {what} for that")).hint(how)
    };
    let role = settings.build_role_arn.as_ref().ok_or_else(|| {
        missing("role", "set AWS_MICROVM_BUILD_ROLE_ARN (or --aws-build-role-arn) to one that Lambda may assume")
    })?;
    let bucket = settings.bucket.as_ref().ok_or_else(|| {
        missing("bucket", "set AWS_MICROVM_ARTIFACT_BUCKET (or --aws-bucket) to one in the same region")
    })?;
    let packed = bounded(call, &what, tokio::task::spawn_blocking(context)).await?;
    let packed = packed.unwrap_or_else(|e| Err(Error::new(ErrorKind::Failed, "packing failed").because(e)))?;
    let key = [settings.prefix.as_str(), name.as_str(), &format!("{}.zip", packed.digest)]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("/");
    upload(cloud, call, (bucket, &key), &packed).await?;
    say(log, &format!("{name}: build context at s3://{bucket}/{key}"));

    let mut tags = BTreeMap::from([APP].map(|(key, value)| (key.to_owned(), value.to_owned())));
    if let Some((tag, fingerprint)) = &artifact {
        tags.insert(TAG.to_owned(), tag.to_string());
        tags.insert(FINGERPRINT.to_owned(), fingerprint.to_string());
    }
    let logging = Logging::CloudWatch(CloudWatchLogging::builder().log_group(log_group(&name)).build());
    let odd = |e: aws_sdk_lambdamicrovms::error::BuildError| Error::invalid(what.clone()).because(e);
    let memory = i32::try_from(size.memory_mb).unwrap_or(i32::MAX);
    let request = cloud
        .lambda
        .create_microvm_image()
        .name(&name)
        .base_image_arn(&settings.base_image_arn)
        .build_role_arn(role)
        .code_artifact(CodeArtifact::Uri(format!("s3://{bucket}/{key}")))
        .resources(Resources::builder().minimum_memory_in_mib(memory).build().map_err(odd)?)
        .cpu_configurations(
            CpuConfiguration::builder()
                .architecture(Architecture::from(settings.architecture.wire()))
                .build()
                .map_err(odd)?,
        )
        .hooks(hooks())
        .logging(logging)
        .set_tags(Some(tags.into_iter().collect()))
        .client_token(Uuid::now_v7().to_string());
    match ask(call, &what, Effect::Once, request.send()).await {
        Ok(made) if !made.image_arn.is_empty() => Ok(made.image_arn),
        // Somebody else was quicker, or the answer was lost: its name tells.
        other => match by_name(cloud, call, &name).await? {
            Some(found) => Ok(found.image_arn),
            None => Err(match other {
                Ok(_) => Error::new(ErrorKind::Failed, format!("{what}: the answer names no image")),
                Err(error) if matches!(error.kind(), ErrorKind::Transport) => {
                    Error::new(ErrorKind::Unavailable, format!("{what}: it was not made")).because(error)
                }
                Err(error) if matches!(error.kind(), ErrorKind::InvalidRequest) => {
                    let arch = settings.architecture;
                    error.hint(format!("images are asked for as {}; AWS_MICROVM_ARCH sets that", arch.wire()))
                }
                Err(error) => error,
            }),
        },
    }
}

fn hooks() -> Hooks {
    let image = MicrovmImageHooks::builder()
        .ready(HookState::Enabled)
        .ready_timeout_in_seconds(READY_SECONDS)
        .validate(HookState::Enabled)
        .validate_timeout_in_seconds(VALIDATE_SECONDS)
        .build();
    let run = MicrovmHooks::builder().run(HookState::Enabled).run_timeout_in_seconds(RUN_SECONDS).build();
    Hooks::builder().port(HOOKS_PORT).microvm_image_hooks(image).microvm_hooks(run).build()
}

/// Where the service writes what a build says.
fn log_group(name: &str) -> String {
    format!("/aws/lambda-microvms/{name}")
}

async fn upload(cloud: &Cloud, call: &Call, (bucket, key): (&str, &str), context: &Context) -> Result<()> {
    let what = format!("s3://{bucket}/{key}");
    let request = cloud.s3.head_object().bucket(bucket).key(key);
    match ask(call, &what, Effect::Idempotent, request.send()).await {
        Ok(_) => return Ok(()),
        Err(error) if *error.kind() == ErrorKind::NotFound => {}
        // Who may not list a bucket is told 403 for what is not there; putting it will tell.
        Err(error) if *error.kind() == ErrorKind::Credentials => {}
        Err(error) => return Err(error),
    }
    let body = bounded(call, &what, ByteStream::from_path(context.file.path())).await?;
    let body = body.map_err(|e| Error::invalid(format!("{what}: the build context cannot be read")).because(e))?;
    if let Ok(metadata) = context.file.as_file().metadata() {
        call.meter.sent(metadata.len());
    }
    let request = cloud.s3.put_object().bucket(bucket).key(key).body(body);
    match ask(call, &what, Effect::Idempotent, request.send()).await {
        Ok(_) => Ok(()),
        Err(error) if *error.kind() == ErrorKind::NotFound => {
            Err(error.hint("the bucket must exist, in the region of the MicroVMs; see --aws-bucket"))
        }
        Err(error) => Err(error),
    }
}

/// Waits until an image is built.
async fn finished(cloud: &Cloud, call: &Call, (name, arn): (&str, &str), log: &dyn OutputSink) -> Result<Image> {
    let what = format!("image {name}");
    let begun = Instant::now();
    let mut pause = PAUSES[0];
    let mut said = String::new();
    loop {
        let request = cloud.lambda.get_microvm_image().image_identifier(arn);
        match ask(call, &what, Effect::Idempotent, request.send()).await {
            Ok(seen) => {
                let state = seen.state.as_str().to_owned();
                if state != said {
                    say(log, &format!("{name}: {state}"));
                    said = state;
                }
                match (&seen.state, seen.latest_active_image_version.filter(|version| !version.is_empty())) {
                    (MicrovmImageState::Created | MicrovmImageState::Updated, Some(version)) => {
                        return version_of(cloud, call, arn, version).await;
                    }
                    (state, _) if broken(state) || *state == MicrovmImageState::UpdateFailed => {
                        let version = seen.latest_failed_image_version;
                        return Err(failure(cloud, call, (name, arn), version, log).await);
                    }
                    _ => {}
                }
            }
            // A service that is asked so often may stumble now and then.
            Err(error) if passing(error.kind()) => tracing::debug!(name, %error, "an image cannot be looked at now"),
            Err(error) if *error.kind() == ErrorKind::NotFound && begun.elapsed() < UNKNOWN_LIMIT => {}
            Err(error) => return Err(error),
        }
        bounded(call, &what, tokio::time::sleep(pause)).await?;
        pause = (pause * 3 / 2).min(PAUSES[1]);
    }
}

fn passing(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::RateLimited { .. })
}

/// The size of an image's version, and with it all that is needed to start from it.
pub(crate) async fn version_of(cloud: &Cloud, call: &Call, arn: &str, version: String) -> Result<Image> {
    let what = format!("image {arn}");
    let request = cloud.lambda.get_microvm_image_version().image_identifier(arn).image_version(&version);
    let seen = ask(call, &what, Effect::Idempotent, request.send()).await?;
    let memory = seen.resources.and_then(|all| all.first().map(|one| one.minimum_memory_in_mib)).unwrap_or(2048);
    let size = u64::try_from(memory).ok().and_then(Size::named);
    let size = size.ok_or_else(|| Error::new(ErrorKind::Failed, format!("{what}: {memory} MiB is no known size")))?;
    Ok(Image { arn: arn.to_owned(), version, size })
}

async fn builds(cloud: &Cloud, call: &Call, (arn, version): (&str, &str)) -> Result<Vec<MicrovmImageBuildSummary>> {
    let request = cloud.lambda.list_microvm_image_builds().image_identifier(arn).image_version(version);
    let page = ask(call, &format!("builds of {arn}"), Effect::Idempotent, request.max_results(PAGE).send()).await?;
    Ok(page.items)
}

async fn snapshot_bytes(cloud: &Cloud, call: &Call, image: &Image) -> Result<Option<u64>> {
    let builds = builds(cloud, call, (&image.arn, &image.version)).await?;
    let Some(build) = builds.into_iter().find(|build| build.build_state == BuildState::Successful) else {
        return Ok(None);
    };
    let request = cloud
        .lambda
        .get_microvm_image_build()
        .image_identifier(&image.arn)
        .image_version(&image.version)
        .build_id(build.build_id);
    let seen = ask(call, "build", Effect::Idempotent, request.send()).await?;
    let bytes = seen.snapshot_build.and_then(|build| build.memory_snapshot_size_in_bytes);
    Ok(bytes.and_then(|bytes| u64::try_from(bytes).ok()))
}

/// Why an image was not built, as its builds say; the image is removed, so that its name is free.
async fn failure(
    cloud: &Cloud,
    call: &Call,
    (name, arn): (&str, &str),
    version: Option<String>,
    log: &dyn OutputSink,
) -> Error {
    let version = version.unwrap_or_else(|| "1.0".to_owned());
    let mut reasons = Vec::new();
    match builds(cloud, call, (arn, &version)).await {
        Ok(builds) => {
            for build in builds {
                let reason = build.state_reason.unwrap_or_else(|| "no reason".to_owned());
                let chip = format!("{} {}", build.chipset.as_str(), build.chipset_generation);
                say(
                    log,
                    &format!("{name}: build {} ({chip}): {}: {reason}", build.build_id, build.build_state.as_str()),
                );
                if build.build_state == BuildState::Failed && !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
        Err(error) => reasons.push(format!("its builds cannot be looked at: {error}")),
    }
    let call = &sandbox_bench_kit::wait::winding_up(call, TIDY_LIMIT);
    if let Err(error) = remove(cloud, call, arn).await {
        tracing::warn!(name, %error, "a failed image stays, and is removed when it is asked for again");
    }
    let reasons = if reasons.is_empty() { "no reason was given".to_owned() } else { reasons.join("; ") };
    Error::new(ErrorKind::Environment, format!("image {name} was not built: {reasons}")).hint(format!(
        "what the build said: aws logs tail {} --region {}",
        log_group(name),
        cloud.settings.region
    ))
}

/// Deletes an image and waits until it is gone.
///
/// # Errors
/// `InvalidRequest` while MicroVMs of it run, and those of the service.
pub(crate) async fn remove(cloud: &Cloud, call: &Call, arn: &str) -> Result<()> {
    let what = format!("image {arn}: delete");
    loop {
        let request = cloud.lambda.delete_microvm_image().image_identifier(arn);
        match ask(call, &what, Effect::Idempotent, request.send()).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(()),
            // It is on its way out, or in another transition.
            Ok(_) => {}
            Err(error) if passing(error.kind()) => {}
            Err(error) => {
                let state = cloud.lambda.get_microvm_image().image_identifier(arn).send();
                match ask(call, &what, Effect::Idempotent, state).await {
                    Ok(seen) if seen.state == MicrovmImageState::Deleting => {}
                    Err(gone) if *gone.kind() == ErrorKind::NotFound => return Ok(()),
                    _ => return Err(error),
                }
            }
        }
        let request = cloud.lambda.get_microvm_image().image_identifier(arn);
        match ask(call, &what, Effect::Idempotent, request.send()).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(()),
            Ok(seen) if seen.state == MicrovmImageState::Deleted => return Ok(()),
            _ => bounded(call, &what, tokio::time::sleep(PAUSES[0])).await?,
        }
    }
}

/// What is written on an image of ours: its tag and fingerprint, if it is an artifact; none if it is not ours.
pub(crate) fn written(tags: Option<&HashMap<String, String>>) -> Option<Option<(Tag, Option<Digest>)>> {
    let tags = tags?;
    if tags.get(APP.0).map(String::as_str) != Some(APP.1) {
        return None;
    }
    let tag = tags.get(TAG).and_then(|tag| Tag::parse(tag));
    Some(tag.map(|tag| (tag, tags.get(FINGERPRINT).and_then(|text| text.parse().ok()))))
}

fn say(log: &dyn OutputSink, line: &str) {
    log.write(Stream::Stdout, format!("{line}\n").as_bytes());
}
