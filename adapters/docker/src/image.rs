//! Getting the image of a sandbox ready: which one it is, and pulling or building it when it is not there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bollard::errors::Error as EngineError;
use bollard::models::ImageInspect;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::StreamExt;
use sandbox_bench_core::{CacheUse, Call, Error, ErrorKind, OutputSink, Result, Source, Stream};
use sandbox_bench_kit::wait::bounded;
use tokio::sync::Mutex as AsyncMutex;

use crate::build::{self, Build, Recipe};
use crate::client::{Engine, checked, raw_request, request};
use crate::config::PullPolicy;
use crate::{error, labels};

/// An image made ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Provided {
    /// Whether it was there already.
    pub(crate) cache: CacheUse,
    /// Host time spent on it.
    pub(crate) took: Duration,
}

/// Makes images ready, each at most once at a time.
#[derive(Default)]
pub(crate) struct Images {
    busy: Mutex<HashMap<String, Arc<AsyncMutex<()>>>>,
}

/// The engine's name of the image that `source` asks for.
///
/// # Errors
/// `InvalidRequest` for text that cannot be a name.
pub(crate) fn name(engine: &Engine, source: &Source) -> Result<String> {
    match source {
        Source::Image(reference) => Ok(with_tag(checked("an image", reference)?)),
        Source::Dockerfile { fingerprint, .. } => {
            Ok(labels::environment_image(fingerprint, engine.config.platform.as_deref()))
        }
        Source::Base => Ok(with_tag(checked("an image", &engine.config.base_image)?)),
        Source::Artifact(id) => Ok(checked("an artifact", id)?.to_owned()),
    }
}

/// An image by name or id.
///
/// # Errors
/// `NotFound`.
pub(crate) async fn inspect(engine: &Engine, call: &Call, image: &str) -> Result<ImageInspect> {
    let image = checked("an image", image)?;
    request(call, &format!("image {image}"), engine.docker.inspect_image(image)).await
}

impl Images {
    /// Pulls or builds what `source` asks for, unless it is there. Output goes to `log`.
    ///
    /// # Errors
    /// `Environment` if that fails or takes longer than `limit`; `NotFound` for an artifact that is gone.
    pub(crate) async fn provide(
        &self,
        engine: &Engine,
        call: &Call,
        (source, limit): (&Source, Duration),
        log: &dyn OutputSink,
    ) -> Result<Provided> {
        let started = Instant::now();
        let name = name(engine, source)?;
        let inner = call.within(limit);
        let work = self.provide_named(engine, &inner, (source, &name), log);
        let cache = work.await.map_err(|e| match e.kind() {
            ErrorKind::DeadlineExceeded if !call.remaining().is_zero() => Error::new(
                ErrorKind::Environment,
                format!("image {name} was not ready within its limit of {} s", limit.as_secs()),
            ),
            _ => e,
        })?;
        Ok(Provided { cache, took: started.elapsed() })
    }

    async fn provide_named(
        &self,
        engine: &Engine,
        call: &Call,
        (source, name): (&Source, &str),
        log: &dyn OutputSink,
    ) -> Result<CacheUse> {
        let lock = self.lock(name);
        let turn = bounded(call, &format!("image {name}"), lock.lock_owned()).await?;
        let done = provide_alone(engine, call, (source, name), log).await;
        drop(turn);
        self.forget_idle();
        done
    }

    fn lock(&self, name: &str) -> Arc<AsyncMutex<()>> {
        self.locks().entry(name.to_owned()).or_default().clone()
    }

    fn forget_idle(&self) {
        self.locks().retain(|_, lock| Arc::strong_count(lock) > 1);
    }

    fn locks(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<AsyncMutex<()>>>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn provide_alone(
    engine: &Engine,
    call: &Call,
    (source, name): (&Source, &str),
    log: &dyn OutputSink,
) -> Result<CacheUse> {
    let pulls = matches!(source, Source::Image(_) | Source::Base);
    if !(pulls && engine.config.pull == PullPolicy::Always) && present(engine, call, name).await? {
        return Ok(CacheUse::Hit);
    }
    match source {
        Source::Image(_) | Source::Base if engine.config.pull == PullPolicy::Never => {
            let missing = Error::new(ErrorKind::Environment, format!("image {name} is not at the engine"));
            Err(missing.hint(format!("load it, or `docker pull {name}`, or set pull to \"missing\"")))
        }
        Source::Image(_) | Source::Base => pull(engine, call, name, log).await.map(|()| CacheUse::Miss),
        Source::Dockerfile { context, dockerfile, fingerprint } => {
            let build = Build {
                name: name.to_owned(),
                // Listed and deleted as the artifacts are: nothing that we leave at the engine is without a tag.
                labels: labels::artifact(&call.tag, fingerprint),
                recipe: Recipe::Context(context.clone(), dockerfile.clone()),
            };
            build::build(engine, call, build, log).await.map(|()| CacheUse::Miss)
        }
        Source::Artifact(id) => Err(Error::new(ErrorKind::NotFound, format!("artifact {id} is not at the engine"))),
    }
}

async fn present(engine: &Engine, call: &Call, name: &str) -> Result<bool> {
    let what = format!("image {name}");
    match raw_request(call, &what, engine.docker.inspect_image(name)).await? {
        Ok(_) => Ok(true),
        Err(error) if error::answer(&error).is_some_and(|(status, _)| status == 404) => Ok(false),
        Err(error) => Err(error::map(&what, error)),
    }
}

async fn pull(engine: &Engine, call: &Call, name: &str, log: &dyn OutputSink) -> Result<()> {
    let what = format!("pull of {name}");
    let platform = engine.config.platform.as_deref().unwrap_or_default();
    let options = CreateImageOptionsBuilder::new().from_image(name).platform(platform).build();
    call.meter.api_call();
    let mut events = engine.docker.create_image(Some(options), None, None);
    let pulled = bounded(call, &what, async {
        while let Some(event) = events.next().await {
            let event = event?;
            // Lines with a progress bar repeat many times per second; their end is a line of its own.
            if event.progress_detail.as_ref().is_none_or(|detail| detail.total.is_none()) {
                let line = [event.id.unwrap_or_default(), event.status.unwrap_or_default()].join(" ");
                log.write(Stream::Stdout, format!("{}\n", line.trim()).as_bytes());
            }
        }
        Ok(())
    });
    pulled.await?.map_err(|error: EngineError| {
        let mapped = error::map(&what, error);
        match mapped.kind() {
            ErrorKind::NotFound | ErrorKind::Failed | ErrorKind::InvalidRequest | ErrorKind::Credentials => {
                Error::new(ErrorKind::Environment, format!("image {name} is not at the engine and cannot be pulled"))
                    .hint("check the name; for a private or unreachable registry, load or pull the image by hand first")
                    .because(mapped)
            }
            _ => mapped,
        }
    })
}

/// The reference with the tag that it means: without one, the engine would pull every tag there is.
fn with_tag(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    let complete = last.contains(':') || last.contains('@');
    if complete { reference.to_owned() } else { format!("{reference}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_without_a_tag_means_latest() {
        assert_eq!(with_tag("debian"), "debian:latest");
        assert_eq!(with_tag("localhost:5000/a/b"), "localhost:5000/a/b:latest");
        assert_eq!(with_tag("debian:12"), "debian:12");
        assert_eq!(with_tag("a/b@sha256:00"), "a/b@sha256:00");
    }
}
