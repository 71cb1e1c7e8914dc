//! Images: what a sandbox starts from, built or fetched by the service, which keeps each recipe's result.

use std::time::Duration;

use sandbox_bench_core::{CacheUse, Call, Error, ErrorKind, OutputSink, Result, Source, Stream, TailSink};
use sandbox_bench_kit::wait::bounded;
use tokio::time::{Instant, sleep, timeout};
use tonic::Streaming;

use crate::client::Client;
use crate::context;
use crate::error::{Effect, passing};
use crate::proto::client::generic_result::GenericStatus;
use crate::proto::client::{FileDescriptor, GenericResult, Image, ImageJoinStreamingResponse, ImageMetadata};

/// How much of the build's output an error quotes, in bytes.
const QUOTED: usize = 2000;
/// How long one look at a build lasts, in seconds, as the official client asks.
const LOOK: f32 = 55.0;
/// Looks in a row that come to nothing before a build is given up.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// How long the rest of a build log is awaited when the build is over.
const LOG_REST: Duration = Duration::from_secs(1);

/// An image that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Provided {
    /// Its id.
    pub(crate) id: String,
    /// Its working directory, if it says one.
    pub(crate) workdir: Option<String>,
    /// Whether it was there already.
    pub(crate) cache: CacheUse,
    /// How long it took to get it.
    pub(crate) took: Duration,
}

/// Gets the image of `source` ready, within `limit`. What its build says goes to `log`.
///
/// # Errors
/// `Environment` if it cannot be had, or not in time; `NotFound` for an artifact that is gone; `InvalidRequest` for a name
/// that cannot be an image's.
pub(crate) async fn provide(
    client: &Client,
    call: &Call,
    (source, limit): (&Source, Duration),
    log: &dyn OutputSink,
) -> Result<Provided> {
    let started = Instant::now();
    let what = named(client, source);
    let inner = call.within(limit);
    let provided = provide_within(client, &inner, source, (&what, log)).await;
    match provided {
        Ok((id, metadata, cache)) => {
            let workdir = metadata.and_then(|metadata| metadata.workdir).filter(|dir| !dir.is_empty());
            Ok(Provided { id, workdir, cache, took: started.elapsed() })
        }
        Err(error) if *error.kind() == ErrorKind::DeadlineExceeded && !call.remaining().is_zero() => {
            let message = format!("{what} was not ready within its limit of {} s", limit.as_secs());
            Err(Error::new(ErrorKind::Environment, message))
        }
        Err(error) => Err(error),
    }
}

async fn provide_within(
    client: &Client,
    call: &Call,
    source: &Source,
    (what, log): (&str, &dyn OutputSink),
) -> Result<(String, Option<ImageMetadata>, CacheUse)> {
    let recipe = match source {
        Source::Artifact(id) => {
            let found = client.image_by_id(call, checked(id)?).await.map_err(|error| match error.kind() {
                ErrorKind::NotFound => Error::new(ErrorKind::NotFound, format!("artifact {id} is not there"))
                    .because(error)
                    .hint("it was deleted or has expired: make it anew with prewarm"),
                _ => error,
            })?;
            return Ok((found.image_id, found.metadata, CacheUse::Hit));
        }
        Source::Image(image) => from(image)?,
        Source::Base => from(&client.config.base_image)?,
        Source::Dockerfile { context, dockerfile, .. } => {
            let path = context.join(dockerfile);
            let read = bounded(call, "Dockerfile", tokio::fs::read_to_string(&path)).await?;
            let text = read.map_err(|e| Error::invalid(format!("cannot read {}", path.display())).because(e))?;
            let mount = if context::needed(&text) {
                context::place(client, call, (context, dockerfile)).await?
            } else {
                String::new()
            };
            // Line by line, as the official client sends it.
            let commands = text.split('\n').map(|line| line.trim_end_matches('\r').to_owned()).collect();
            Image { dockerfile_commands: commands, context_mount_id: mount, ..Image::default() }
        }
    };
    let found = client.image(call, what, recipe).await?;
    match found.result.filter(|result| result.status != 0) {
        Some(result) => judge(what, &result, "").map(|()| (found.image_id, found.metadata, CacheUse::Hit)),
        None => {
            let metadata = build(client, call, (what, &found.image_id), log).await?;
            Ok((found.image_id, metadata.or(found.metadata), CacheUse::Miss))
        }
    }
}

/// The recipe of an image of a registry.
fn from(image: &str) -> Result<Image> {
    if image.is_empty() || image.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(Error::invalid(format!("{image:?} cannot be the name of an image")));
    }
    Ok(Image { dockerfile_commands: vec![format!("FROM {image}")], ..Image::default() })
}

/// `id` if the service could have given it out.
///
/// # Errors
/// `InvalidRequest`.
pub(crate) fn checked(id: &str) -> Result<&str> {
    let legal = id.len() <= 128 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    if legal && !id.is_empty() {
        Ok(id)
    } else {
        Err(Error::invalid(format!("{id:?} cannot be the id of an artifact")))
    }
}

/// What is built, for messages.
fn named(client: &Client, source: &Source) -> String {
    match source {
        Source::Image(image) => format!("image {image}"),
        Source::Base => format!("image {}", client.config.base_image),
        Source::Dockerfile { dockerfile, .. } => format!("{dockerfile} of a build context"),
        Source::Artifact(id) => format!("artifact {id}"),
    }
}

/// Waits for the end of a build, with its output.
async fn build(
    client: &Client,
    call: &Call,
    (what, image): (&str, &str),
    log: &dyn OutputSink,
) -> Result<Option<ImageMetadata>> {
    let mut log = BuildLog { sink: log, tail: TailSink::new(QUOTED), last: String::new(), progress: false };
    let mut failures = 0;
    loop {
        let status = match client.build_log(call, image, (&log.last, LOOK)).await? {
            Ok(mut answer) => match log.follow(call, what, &mut answer).await? {
                Ok(Some((result, metadata))) => {
                    // The rest is words only.
                    let _ = timeout(LOG_REST, log.follow(call, what, &mut answer)).await;
                    return judge(what, &result, &log.tail()).map(|()| metadata);
                }
                Ok(None) => {
                    // A look is over, the build is not.
                    failures = 0;
                    continue;
                }
                Err(status) => status,
            },
            Err(status) => status,
        };
        failures = if std::mem::take(&mut log.progress) { 0 } else { failures + 1 };
        if !passing(&status) || failures >= TRIES {
            return Err(client.refused(&format!("build of {what}"), Effect::Idempotent, &status));
        }
        tracing::debug!(image, %status, "a build log broke off");
        call.meter.retried();
        bounded(call, what, sleep(PAUSE)).await?;
    }
}

/// The output of one build.
struct BuildLog<'a> {
    sink: &'a dyn OutputSink,
    tail: TailSink,
    /// The last entry that was seen.
    last: String,
    /// Whether anything came since that was last asked.
    progress: bool,
}

type Outcome = (GenericResult, Option<ImageMetadata>);

impl BuildLog<'_> {
    /// Reads until the build's result, or the end of the answer.
    async fn follow(
        &mut self,
        call: &Call,
        what: &str,
        answer: &mut Streaming<ImageJoinStreamingResponse>,
    ) -> Result<std::result::Result<Option<Outcome>, tonic::Status>> {
        loop {
            match bounded(call, what, answer.message()).await? {
                Ok(Some(message)) => {
                    self.progress = true;
                    if !message.entry_id.is_empty() {
                        self.last.clone_from(&message.entry_id);
                    }
                    for part in &message.task_logs {
                        let stream = match part.file_descriptor() {
                            FileDescriptor::Stderr => Stream::Stderr,
                            _ => Stream::Stdout,
                        };
                        self.sink.write(stream, part.data.as_bytes());
                        self.tail.write(Stream::Stdout, part.data.as_bytes());
                    }
                    if let Some(result) = message.result.filter(|result| result.status != 0) {
                        return Ok(Ok(Some((result, message.metadata))));
                    }
                }
                Ok(None) => return Ok(Ok(None)),
                Err(status) => return Ok(Err(status)),
            }
        }
    }

    fn tail(&self) -> String {
        self.tail.text(Stream::Stdout)
    }
}

/// What the result of a build means.
fn judge(what: &str, result: &GenericResult, tail: &str) -> Result<()> {
    let reason = if result.exception.trim().is_empty() { "no reason was given" } else { result.exception.trim() };
    let quoted = if tail.trim().is_empty() { String::new() } else { format!("; its output ended:\n{}\n", tail.trim()) };
    let error = |kind, how: &str| Err(Error::new(kind, format!("build of {what} {how}: {reason}{quoted}")));
    match result.status() {
        GenericStatus::Success => Ok(()),
        GenericStatus::Timeout => error(ErrorKind::Environment, "took too long for the service"),
        GenericStatus::Terminated => error(ErrorKind::Unavailable, "was ended by the service"),
        GenericStatus::InternalFailure => error(ErrorKind::Unavailable, "failed at the service"),
        _ => error(ErrorKind::Environment, "failed"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_result_of_a_build_says_whose_fault_it_is() {
        let kind = |status: GenericStatus| {
            let result = GenericResult { status: status.into(), exception: "boom".into() };
            judge("x", &result, "last words").err().map(|error| {
                assert!(error.to_string().contains("boom") && error.to_string().contains("last words"), "{error}");
                error.kind().clone()
            })
        };
        assert_eq!(kind(GenericStatus::Success), None);
        for of_the_image in [GenericStatus::Failure, GenericStatus::MemoryManagerEviction, GenericStatus::Timeout] {
            assert_eq!(kind(of_the_image), Some(ErrorKind::Environment));
        }
        assert_eq!(kind(GenericStatus::Terminated), Some(ErrorKind::Unavailable));
    }

    #[test]
    fn names_that_could_be_more_than_a_name_are_refused() {
        assert_eq!(from("python:3.12").unwrap().dockerfile_commands, ["FROM python:3.12"]);
        for odd in ["", "a b", "x\nRUN y", "x\ty"] {
            assert!(from(odd).is_err(), "{odd:?}");
        }
        for odd in ["", "../x", "im 1", "im/1", "ä"] {
            assert_eq!(*checked(odd).unwrap_err().kind(), ErrorKind::InvalidRequest, "{odd:?}");
        }
        assert!(checked("im-01ABCdef").is_ok());
    }
}
