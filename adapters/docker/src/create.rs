//! Creating a sandbox: the container is asked for at once, and its image made ready only if the engine misses it.

use std::time::Duration;

use bollard::errors::Error as EngineError;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder};
use sandbox_bench_core::{
    CacheUse, Call, CreateFacts, Destruction, Error, ErrorKind, OutputSink, Result, SandboxSpec, Source,
};
use sandbox_bench_kit::wait::uncancelled;

use crate::client::{Engine, raw_request, request, short};
use crate::config::PullPolicy;
use crate::image::{self, Images, Provided};
use crate::{artifact, container, error, observe};

/// Time to take back what a failed or cancelled create has made.
const TAKE_BACK_LIMIT: Duration = Duration::from_secs(10);
/// Pause between two looks at a container that the engine is removing.
const REMOVAL_POLL: Duration = Duration::from_millis(50);

/// Creates and starts a container; returns its id and what is known of it.
pub(crate) async fn create(
    engine: &Engine,
    images: &Images,
    call: &Call,
    spec: &SandboxSpec,
    log: &dyn OutputSink,
) -> Result<(String, CreateFacts)> {
    let image = image::name(engine, &spec.source)?;
    if let Source::Artifact(id) = &spec.source {
        // The engine still has a deleted artifact from which another was made.
        artifact::find(engine, call, id).await?;
    }
    let body = container::body(spec, &image, &engine.config)?;
    let source = (&spec.source, spec.environment_limit);
    let pull_first = engine.config.pull == PullPolicy::Always && matches!(spec.source, Source::Image(_) | Source::Base);
    let mut provided = Provided { cache: CacheUse::Hit, took: Duration::ZERO };
    if pull_first {
        provided = images.provide(engine, call, source, log).await?;
    }
    let id = match submit(engine, call, spec, body.clone()).await? {
        Submitted::Created(id) => id,
        Submitted::ImageMissing => {
            provided = images.provide(engine, call, source, log).await?;
            match submit(engine, call, spec, body).await? {
                Submitted::Created(id) => id,
                Submitted::ImageMissing => {
                    return Err(Error::new(ErrorKind::Environment, format!("image {image} is not at the engine")));
                }
            }
        }
    };
    match bring_up(engine, call, &id).await {
        Ok(facts) => {
            let environment_us = u64::try_from(provided.took.as_micros()).unwrap_or(u64::MAX);
            Ok((id, CreateFacts { environment_cache: Some(provided.cache), environment_us, ..facts }))
        }
        Err(error) => Err(take_back(engine, call, spec, &id, error).await),
    }
}

enum Submitted {
    Created(String),
    ImageMissing,
}

async fn submit(engine: &Engine, call: &Call, spec: &SandboxSpec, body: ContainerCreateBody) -> Result<Submitted> {
    if call.cancel.is_cancelled() {
        return Err(Error::new(ErrorKind::Cancelled, format!("sandbox {}: cancelled before it was created", spec.tag)));
    }
    let what = format!("sandbox {}: create", spec.tag);
    let platform = engine.config.platform.as_deref().unwrap_or_default();
    let options = CreateContainerOptionsBuilder::new().name(spec.tag.as_str()).platform(platform).build();
    let sent = engine.docker.create_container(Some(options), body);
    // Once sent, the answer is awaited even if the caller cancels: only it tells what has to be taken back.
    let answer = match raw_request(&uncancelled(call, call.remaining()), &what, sent).await {
        Ok(answer) => answer,
        Err(unanswered) => return Err(uncertain(spec, unanswered)),
    };
    match answer {
        Ok(created) => Ok(Submitted::Created(created.id)),
        Err(e) if error::image_missing(&e) => Ok(Submitted::ImageMissing),
        Err(e) => Err(refused(spec, &what, e)),
    }
}

fn refused(spec: &SandboxSpec, what: &str, error: EngineError) -> Error {
    let taken = error::answer(&error).is_some_and(|(status, text)| status == 409 && text.contains("already in use"));
    let mapped = error::map(what, error);
    match mapped.kind() {
        ErrorKind::Transport => uncertain(spec, mapped),
        _ if taken => mapped.hint("a sandbox with this tag exists already; find and destroy it first"),
        _ => mapped,
    }
}

fn uncertain(spec: &SandboxSpec, cause: Error) -> Error {
    let kind = ErrorKind::UncertainSubmission { tag: spec.tag.clone() };
    Error::new(kind, format!("sandbox {}: it is unknown whether it was created", spec.tag)).because(cause)
}

async fn bring_up(engine: &Engine, call: &Call, id: &str) -> Result<CreateFacts> {
    let what = format!("container {}: start", short(id));
    raw_request(call, &what, engine.docker.start_container(id, None)).await?.map_err(|e| cannot_start(&what, e))?;
    let seen = observe::inspect(engine, call, id).await?;
    if !observe::running(&seen) {
        return Err(observe::ended(id, seen.state.as_ref()));
    }
    Ok(CreateFacts {
        resolved_source: seen.image.clone().unwrap_or_default(),
        workdir: seen.config.as_ref().and_then(|config| config.working_dir.clone()).filter(|dir| !dir.is_empty()),
        granted: observe::granted(engine, &seen),
        provider_times: observe::times(&seen),
        ..CreateFacts::default()
    })
}

fn cannot_start(what: &str, error: EngineError) -> Error {
    let mapped = error::map(what, error);
    let text = mapped.to_string();
    let of_the_image = ["exec format error", "executable file not found", "no such file or directory"];
    match mapped.kind() {
        ErrorKind::Failed | ErrorKind::InvalidRequest if of_the_image.iter().any(|words| text.contains(words)) => {
            Error::new(ErrorKind::Environment, "the image cannot be started").because(mapped)
        }
        _ => mapped,
    }
}

/// Removes what a failed create has made, so that the error can promise that nothing is left.
async fn take_back(engine: &Engine, call: &Call, spec: &SandboxSpec, id: &str, error: Error) -> Error {
    match remove(engine, &uncancelled(call, TAKE_BACK_LIMIT), id).await {
        Ok(Destruction::Confirmed) => error,
        Ok(Destruction::Unconfirmed { why }) => {
            uncertain(spec, error).hint(format!("container {} may still be there: {why}", short(id)))
        }
        Err(failed) => uncertain(spec, error).hint(format!("container {} may still be there: {failed}", short(id))),
    }
}

/// Removes a container with all that runs in it and its anonymous volumes; one that is gone already is confirmed.
pub(crate) async fn remove(engine: &Engine, call: &Call, id: &str) -> Result<Destruction> {
    let what = format!("container {}: remove", short(id));
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    let answer = match raw_request(call, &what, engine.docker.remove_container(id, Some(options))).await {
        Ok(answer) => answer,
        Err(unanswered) => return Ok(Destruction::Unconfirmed { why: unanswered.to_string() }),
    };
    let Err(error) = answer else { return Ok(Destruction::Confirmed) };
    let refusal = error::answer(&error).map(|(status, message)| (status, message.to_owned()));
    match refusal {
        Some((404, _)) => Ok(Destruction::Confirmed),
        Some((409, message)) if message.contains("already in progress") => Ok(wait_until_gone(engine, call, id).await),
        Some((409 | 500, message)) => Ok(Destruction::Unconfirmed { why: message }),
        _ => Err(error::map(&what, error)),
    }
}

/// Somebody else is removing it: waits until the engine says that it is gone.
async fn wait_until_gone(engine: &Engine, call: &Call, id: &str) -> Destruction {
    loop {
        let what = format!("container {}: its removal by somebody else", short(id));
        match request(call, &what, engine.docker.inspect_container(id, None)).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => return Destruction::Confirmed,
            Err(error) => return Destruction::Unconfirmed { why: error.to_string() },
            Ok(_) => tokio::time::sleep(REMOVAL_POLL).await,
        }
    }
}
