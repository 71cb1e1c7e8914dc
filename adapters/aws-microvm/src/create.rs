//! Creating a sandbox: its image, then one request whose answer is known or asked for again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_sdk_lambdamicrovms::operation::run_microvm::RunMicrovmOutput;
use aws_sdk_lambdamicrovms::operation::run_microvm::builders::RunMicrovmFluentBuilder;
use aws_sdk_lambdamicrovms::types::{CloudWatchLogging, IdlePolicy, Logging, LoggingDisabled, MicrovmImageState};
use sandbox_bench_core::{
    CacheUse, Call, CreateFacts, Error, ErrorKind, NetworkPolicy, OutputSink, Result, SandboxSpec, Source, Tag,
};
use sandbox_bench_kit::guest::check_variables;
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::{bounded, uncancelled, winding_up};
use secrecy::SecretString;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::backend::State;
use crate::cloud::{Cloud, ask, timestamp};
use crate::config::{Architecture, LONGEST};
use crate::image::{self, Image, PREFIX, Wanted};
use crate::program::hex;
use crate::size::Size;
use crate::vm::Vm;
use crate::{context, destroy, dockerfile};

/// How long the answer is awaited after the caller has cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(8);
/// Time to take back what a cancelled create has made.
const AFTERMATH_LIMIT: Duration = Duration::from_secs(6);
/// How often a request is sent whose answer was lost: the service does it once.
const SENDS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(300);
/// How long the service may not know a version that it has just built.
const UNKNOWN_LIMIT: Duration = Duration::from_secs(60);
const UNKNOWN_PAUSE: Duration = Duration::from_secs(2);
/// How long one that is to be suspended may be; any other ends in place of being suspended.
const SUSPENDED_SECONDS: i32 = 3600;
/// Digits of the digest in an image's name.
const DIGITS: usize = 12;
/// Longest beginning of a client token: of the 128 characters, the tag and what is random need the rest.
const TOKEN_PREFIX: usize = 48;

/// A request for a MicroVM, which the service does once however often it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    tag: Tag,
    image: Image,
    resumable: bool,
    request: RunMicrovmFluentBuilder,
    token: SecretString,
}

/// Creates a sandbox.
pub(crate) async fn create(
    state: &State,
    call: &Call,
    spec: &SandboxSpec,
    log: &dyn OutputSink,
) -> Result<(Arc<Vm>, CreateFacts)> {
    check_variables(&spec.env)?;
    let size = Size::fitting(&spec.resources, state.cloud.settings.sizing)?;
    let egress = egress(&state.cloud, &spec.network)?;
    let begun = Instant::now();
    let (image, hit) = match &spec.source {
        Source::Artifact(id) => (artifact(&state.cloud, call, id).await?, None),
        source => {
            let built = within_limit(state, call, spec, (source, size), log).await;
            let (image, hit) = built.map_err(|error| of_source(source, error))?;
            (image, Some(hit))
        }
    };
    let environment_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    let run = Run::new(&state.cloud, spec, image, egress)?;
    let (vm, answer) = submit(state, call, run, &spec.source).await?;
    if call.cancel.is_cancelled() {
        return Err(take_back(state, call, &vm).await);
    }
    let facts = CreateFacts {
        resolved_source: match &spec.source {
            Source::Artifact(id) => id.clone(),
            _ => format!("{}@{}", answer.image_arn, answer.image_version),
        },
        environment_cache: hit.map(|hit| if hit { CacheUse::Hit } else { CacheUse::Miss }),
        environment_us: if hit.is_some() { environment_us } else { 0 },
        workdir: spec.workdir.clone(),
        granted: vm.image.size.granted(),
        provider_times: timestamp(&answer.started_at).map(|at| ("started".to_owned(), at)).into_iter().collect(),
    };
    Ok((vm, facts))
}

/// Names what the environment is made of in the error that says that there is none.
fn of_source(source: &Source, error: Error) -> Error {
    match (source, error.kind()) {
        (Source::Image(image), ErrorKind::Environment) => {
            Error::new(ErrorKind::Environment, format!("image {image} cannot be had")).because(error)
        }
        _ => error,
    }
}

/// The image of a source, by the limit for environments.
async fn within_limit(
    state: &State,
    call: &Call,
    spec: &SandboxSpec,
    (source, size): (&Source, Size),
    log: &dyn OutputSink,
) -> Result<(Image, bool)> {
    let limited = call.within(spec.environment_limit);
    match environment(state, &limited, (source, size), None, log).await {
        Err(error) if *error.kind() == ErrorKind::DeadlineExceeded && !call.remaining().is_zero() => {
            let message = format!("the image was not built within {:?}", spec.environment_limit);
            Err(Error::new(ErrorKind::Environment, message)
                .because(error)
                .hint("the service goes on building it: a later sandbox may find it ready"))
        }
        done => done,
    }
}

/// The image of a source: found, or built. As an artifact it has a tag and a fingerprint, and is always built.
pub(crate) async fn environment(
    state: &State,
    call: &Call,
    (source, size): (&Source, Size),
    artifact: Option<(Tag, sandbox_bench_core::Digest)>,
    log: &dyn OutputSink,
) -> Result<(Image, bool)> {
    let settings = &state.cloud.settings;
    let program = state.program()?;
    let (text, own) = match source {
        Source::Base => (format!("FROM {}\n", settings.base_image), None),
        Source::Image(image) => (format!("FROM {}\n", usable(image, settings.architecture)?), None),
        Source::Dockerfile { context, dockerfile, fingerprint } => {
            let path = context.join(dockerfile);
            let read = bounded(call, "Dockerfile", tokio::fs::read_to_string(&path)).await?;
            let text = read.map_err(|e| Error::invalid(format!("cannot read {}", path.display())).because(e))?;
            (text, Some((context.clone(), dockerfile.clone(), fingerprint.clone())))
        }
        Source::Artifact(id) => return Err(Error::invalid(format!("the artifact {id} is an image already"))),
    };
    let text = dockerfile::with_runner(&text, &program, settings.port);
    let name = match &artifact {
        Some((tag, _)) => warm_name(tag),
        None => {
            let fingerprint = own.as_ref().map(|(_, _, fingerprint)| fingerprint.to_string()).unwrap_or_default();
            env_name(&text, &[&fingerprint, &program.digest(), &settings.base_image_arn], size, settings.architecture)
        }
    };
    let context = move || {
        let own = own.as_ref().map(|(context, dockerfile, _)| (context.as_path(), dockerfile.as_str()));
        context::write(&text, &program, own)
    };
    state.images.ensure(&state.cloud, call, Wanted { name, size, artifact, context }, log).await
}

/// The name of an image that any sandbox may start from: it says what it is made of.
fn env_name(dockerfile: &str, parts: &[&str], size: Size, architecture: Architecture) -> String {
    let mut hasher = Sha256::new();
    for part in [dockerfile, &size.memory_mb.to_string(), architecture.wire()].iter().chain(parts) {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    format!("{PREFIX}env-{}", hex(&hasher.finalize()).chars().take(DIGITS).collect::<String>())
}

/// The name of the image of an artifact: tags are its own, and longer than names can be.
pub(crate) fn warm_name(tag: &Tag) -> String {
    let digest = hex(&Sha256::digest(tag.as_str()));
    format!("{PREFIX}warm-{}", digest.chars().take(DIGITS).collect::<String>())
}

/// Refuses at once what a build could only fail with.
fn usable(image: &str, architecture: Architecture) -> Result<&str> {
    if image.is_empty() || image.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(Error::invalid(format!("{image:?} cannot be the name of an image")));
    }
    let names = |word: &str| image.to_lowercase().contains(word);
    let other = match architecture {
        Architecture::Arm64 => names("x86_64") || names("amd64"),
        Architecture::X86_64 => names("arm64") || names("aarch64"),
    };
    if other {
        let machine = architecture.machine();
        return Err(Error::new(
            ErrorKind::Environment,
            format!("image {image}: MicroVMs are {machine}, and it is not"),
        )
        .hint("its Dockerfile or recipe can be built for this architecture; AWS_MICROVM_ARCH sets another one"));
    }
    Ok(image)
}

/// The image of an artifact.
async fn artifact(cloud: &Cloud, call: &Call, id: &str) -> Result<Image> {
    let absent = || Error::new(ErrorKind::NotFound, format!("artifact {id} is not there"));
    if !image_arn(id) {
        return Err(absent());
    }
    let request = cloud.lambda.get_microvm_image().image_identifier(id);
    let seen = ask(call, &format!("artifact {id}"), Effect::Idempotent, request.send())
        .await
        .map_err(|error| if *error.kind() == ErrorKind::NotFound { absent().because(error) } else { error })?;
    match seen.latest_active_image_version.filter(|version| !version.is_empty()) {
        _ if matches!(seen.state, MicrovmImageState::Deleting | MicrovmImageState::Deleted) => Err(absent()),
        Some(version) => image::version_of(cloud, call, id, version).await,
        None => Err(Error::new(ErrorKind::Unavailable, format!("artifact {id} is {}", seen.state.as_str()))),
    }
}

/// True if the service could have given out this id of an image.
pub(crate) fn image_arn(id: &str) -> bool {
    id.starts_with("arn:")
        && id.contains(":microvm-image:")
        && id.len() <= 256
        && id.bytes().all(|b| b.is_ascii_graphic())
}

/// Connectors of a network policy.
fn egress(cloud: &Cloud, network: &NetworkPolicy) -> Result<Vec<String>> {
    match (network, &cloud.settings.no_network) {
        (NetworkPolicy::Public, _) => Ok(cloud.settings.egress.clone()),
        (NetworkPolicy::NoNetwork, Some(connector)) => Ok(vec![connector.clone()]),
        (NetworkPolicy::NoNetwork, None) => {
            Err(Error::unsupported("the aws-microvm backend cannot switch the network off by itself")
                .hint("set `no_network_connector`, or AWS_MICROVM_NO_NETWORK_CONNECTOR, to a connector into a network without a way out"))
        }
        (NetworkPolicy::Allowlist(_), _) => {
            Err(Error::unsupported("the aws-microvm backend cannot restrict the network to listed hosts"))
        }
    }
}

/// So many random bytes, in hexadecimal digits.
fn random(count: usize) -> Result<String> {
    let mut bytes = vec![0; count];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::new(ErrorKind::Failed, "the host has no random numbers").because(e.to_string()))?;
    Ok(hex(&bytes))
}

impl Run {
    fn new(cloud: &Cloud, spec: &SandboxSpec, image: Image, egress: Vec<String>) -> Result<Self> {
        let settings = &cloud.settings;
        let token = random(32)?;
        let payload = json!({ "v": 1, "token_sha256": hex(&Sha256::digest(&token)), "tag": spec.tag });
        let seconds = spec.lifetime.as_secs().clamp(1, LONGEST);
        let odd = |e: aws_sdk_lambdamicrovms::error::BuildError| Error::invalid("a request cannot be made").because(e);
        let idle = IdlePolicy::builder()
            .max_idle_duration_seconds(i32::try_from(settings.idle_seconds).unwrap_or(i32::MAX))
            .suspended_duration_seconds(if spec.resumable { SUSPENDED_SECONDS } else { 0 })
            .auto_resume_enabled(false)
            .build()
            .map_err(odd)?;
        let logging = match &settings.log_group {
            Some(group) => Logging::CloudWatch(CloudWatchLogging::builder().log_group(group).build()),
            None => Logging::Disabled(LoggingDisabled::builder().build()),
        };
        let list = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
        let prefix: String = settings.token_prefix.chars().take(TOKEN_PREFIX).collect();
        let request = cloud
            .lambda
            .run_microvm()
            .image_identifier(&image.arn)
            .image_version(&image.version)
            .idle_policy(idle)
            .logging(logging)
            .maximum_duration_in_seconds(i32::try_from(seconds).unwrap_or(i32::MAX))
            .run_hook_payload(payload.to_string())
            .set_execution_role_arn(settings.execution_role_arn.clone())
            .set_ingress_network_connectors(list(&settings.ingress))
            .set_egress_network_connectors(list(&egress))
            .client_token(format!("{prefix}{}-{}", spec.tag, random(4)?));
        let (tag, resumable, token) = (spec.tag.clone(), spec.resumable, SecretString::from(token));
        Ok(Self { tag, image, resumable, request, token })
    }

    /// Sends the request, again if its answer is lost.
    async fn send(&self, call: &Call) -> Result<RunMicrovmOutput> {
        let what = format!("sandbox {}: create", self.tag);
        let begun = Instant::now();
        let mut sends = 0;
        loop {
            sends += 1;
            let error = match ask(call, &what, Effect::Once, self.request.clone().send()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let pause = match error.kind() {
                ErrorKind::Transport if sends < SENDS => PAUSE * sends,
                // It was built a moment ago.
                ErrorKind::NotFound
                    if error.to_string().contains("No active version") && begun.elapsed() < UNKNOWN_LIMIT =>
                {
                    UNKNOWN_PAUSE
                }
                _ => return Err(error),
            };
            call.meter.retried();
            bounded(call, &what, tokio::time::sleep(pause)).await?;
        }
    }

    /// The MicroVM that came of it.
    fn made(&self, state: &State, answer: &RunMicrovmOutput) -> Result<Arc<Vm>> {
        let what = || format!("sandbox {}: the service's answer names no MicroVM", self.tag);
        if answer.microvm_id.is_empty() || answer.endpoint.is_empty() {
            return Err(Error::new(ErrorKind::Failed, what()));
        }
        let about = (answer.microvm_id.clone(), self.tag.clone(), answer.endpoint.as_str());
        let shared = (state.cloud.clone(), state.images.clone());
        let vm = Vm::new(shared, about, self.image.clone(), self.token.clone())?;
        Ok(Arc::new(vm.resumable(self.resumable)))
    }
}

async fn submit(state: &State, call: &Call, run: Run, source: &Source) -> Result<(Arc<Vm>, RunMicrovmOutput)> {
    let what = format!("sandbox {}: create", run.tag);
    if call.cancel.is_cancelled() {
        return Err(Error::new(ErrorKind::Cancelled, format!("{what}: cancelled")));
    }
    let patient = uncancelled(call, call.remaining());
    let given_up = async {
        call.cancel.cancelled().await;
        tokio::time::sleep(CANCEL_GRACE).await;
    };
    let answered = tokio::select! {
        answered = run.send(&patient) => answered,
        () = given_up => Err(Error::new(ErrorKind::Transport, format!("{what}: cancelled, and not answered"))),
    };
    match answered {
        Ok(answer) => match run.made(state, &answer) {
            Ok(vm) => {
                state.remember(vm.clone());
                Ok((vm, answer))
            }
            // Something was made, and the same request will tell what it is.
            Err(error) => {
                let uncertain = uncertain(&run.tag, error);
                state.keep_pending(run);
                Err(uncertain)
            }
        },
        Err(error) if matches!(error.kind(), ErrorKind::Transport | ErrorKind::DeadlineExceeded) => {
            let uncertain = uncertain(&run.tag, error);
            state.keep_pending(run);
            Err(uncertain)
        }
        Err(error) => Err(refused(source, error)),
    }
}

/// Sends a request again whose answer was lost; returns what came of it, now or then.
///
/// # Errors
/// `Unavailable` if it cannot be known yet.
pub(crate) async fn resolve(state: &State, call: &Call, run: &Run) -> Result<Option<Arc<Vm>>> {
    match run.send(call).await {
        Ok(answer) => {
            let vm = run.made(state, &answer)?;
            state.remember(vm.clone());
            Ok(Some(vm))
        }
        // What is refused was not made by the same request before; but who asks may have lost the right to since.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidRequest | ErrorKind::NotFound | ErrorKind::Capacity) => {
            Ok(None)
        }
        Err(error) => Err(Error::new(ErrorKind::Unavailable, "what came of a request is not known yet").because(error)),
    }
}

impl Run {
    /// Whose it is.
    pub(crate) fn tag(&self) -> &Tag {
        &self.tag
    }
}

/// After a cancellation: ends what was made, so that the error can promise that nothing is left.
async fn take_back(state: &State, call: &Call, vm: &Vm) -> Error {
    let error = Error::new(ErrorKind::Cancelled, format!("sandbox {}: create: cancelled", vm.tag));
    match destroy::destroy(state, &winding_up(call, AFTERMATH_LIMIT), &vm.id).await {
        Ok(sandbox_bench_core::Destruction::Confirmed) => error,
        Ok(sandbox_bench_core::Destruction::Unconfirmed { why }) => uncertain(&vm.tag, error).hint(why),
        Err(failed) => uncertain(&vm.tag, error).hint(failed.to_string()),
    }
}

fn uncertain(tag: &Tag, cause: Error) -> Error {
    let kind = ErrorKind::UncertainSubmission { tag: tag.clone() };
    Error::new(kind, format!("sandbox {tag}: it is unknown whether it was created")).because(cause)
}

fn refused(source: &Source, error: Error) -> Error {
    match (source, error.kind()) {
        (Source::Artifact(id), ErrorKind::NotFound) => {
            Error::new(ErrorKind::NotFound, format!("artifact {id} is not there")).because(error)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_of_images_say_what_they_are_made_of() {
        let size = |memory| Size::named(memory).unwrap();
        let name = env_name("FROM a", &["b"], size(2048), Architecture::Arm64);
        assert_eq!(name, env_name("FROM a", &["b"], size(2048), Architecture::Arm64));
        assert!(name.starts_with("sb-env-") && name.len() == 7 + DIGITS, "{name}");
        for other in [
            env_name("FROM c", &["b"], size(2048), Architecture::Arm64),
            env_name("FROM a", &["c"], size(2048), Architecture::Arm64),
            env_name("FROM a", &["b"], size(4096), Architecture::Arm64),
            env_name("FROM a", &["b"], size(2048), Architecture::X86_64),
        ] {
            assert_ne!(name, other);
        }
        assert_ne!(warm_name(&Tag::new("r", "a")), warm_name(&Tag::new("r", "b")));
    }

    #[test]
    fn images_for_another_architecture_are_not_tried() {
        fn kind(image: &str) -> Result<&str, ErrorKind> {
            usable(image, Architecture::Arm64).map_err(|e| e.kind().clone())
        }
        assert_eq!(kind("python:3.12"), Ok("python:3.12"));
        assert_eq!(kind("swebench/swesmith.x86_64.a:latest"), Err(ErrorKind::Environment));
        assert_eq!(kind("a b"), Err(ErrorKind::InvalidRequest));
        assert!(usable("swebench/swesmith.x86_64.a", Architecture::X86_64).is_ok());
    }
}
