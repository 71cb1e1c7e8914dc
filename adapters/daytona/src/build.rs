//! What the platform builds for us: Dockerfiles, and images as Dockerfiles of one line; and the logs of it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use sandbox_bench_core::{Call, Error, ErrorKind, OutputSink, Result, Source, Stream, TailSink};
use sandbox_bench_kit::http::{Effect, send};
use sandbox_bench_kit::wait::bounded;

use crate::client::{Client, accepted};
use crate::storage;
use crate::wire::BuildRequest;

/// How much of the build's output an error quotes, in bytes.
const QUOTED: usize = 2000;
/// Digits of a context's key. The official client has as many.
const KEY: usize = 32;
/// Pause before a log is asked for again: it may come later than the build.
const LOG_PAUSE: Duration = Duration::from_millis(500);
const LOG_TRIES: u32 = 10;

/// What to have built for `source`; its context is uploaded. None for what is no build.
///
/// # Errors
/// `InvalidRequest` for a name that cannot be an image's, or a context or Dockerfile that cannot be read.
pub(crate) async fn request(client: &Client, call: &Call, source: &Source) -> Result<Option<BuildRequest>> {
    let image = match source {
        Source::Image(image) => image,
        Source::Base if client.config.base_snapshot.is_none() => &client.config.base_image,
        Source::Base | Source::Artifact(_) => return Ok(None),
        Source::Dockerfile { context, dockerfile, fingerprint } => {
            let path = context.join(dockerfile);
            let read = bounded(call, "Dockerfile", tokio::fs::read_to_string(&path)).await?;
            let text = read.map_err(|e| Error::invalid(format!("cannot read {}", path.display())).because(e))?;
            let key = fingerprint.short(KEY);
            storage::place(client, call, (context, dockerfile), &key).await?;
            return Ok(Some(BuildRequest { dockerfile_content: text, context_hashes: vec![key] }));
        }
    };
    if image.is_empty() || image.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(Error::invalid(format!("{image:?} cannot be the name of an image")));
    }
    // As the official client asks for an image.
    Ok(Some(BuildRequest { dockerfile_content: format!("FROM {image}\n"), context_hashes: Vec::new() }))
}

/// What a build is of, for messages.
pub(crate) fn named(source: &Source) -> String {
    match source {
        Source::Image(image) => format!("image {image}"),
        Source::Dockerfile { dockerfile, .. } => format!("{dockerfile} of a build context"),
        Source::Base => "the base".to_owned(),
        Source::Artifact(id) => format!("artifact {id}"),
    }
}

/// The log of one build.
pub(crate) struct BuildLog<'a> {
    client: &'a Client,
    /// `sandbox` or `snapshots`, and the id.
    of: (&'static str, &'a str),
    sink: &'a dyn OutputSink,
    tail: TailSink,
    written: AtomicBool,
}

impl<'a> BuildLog<'a> {
    /// The log of the sandbox or snapshot `of`; what it says goes to `sink`.
    pub(crate) fn new(client: &'a Client, of: (&'static str, &'a str), sink: &'a dyn OutputSink) -> Self {
        Self { client, of, sink, tail: TailSink::new(QUOTED), written: AtomicBool::new(false) }
    }

    /// Follows it to its end, if it has one: the platform may keep it open. A log that cannot be had is no failure.
    pub(crate) async fn follow(&self, call: &Call) {
        for _ in 0..LOG_TRIES {
            match self.read(call).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(id = self.of.1, %error, "the build log is not there"),
            }
            if self.written.load(Relaxed) {
                return;
            }
            tokio::time::sleep(LOG_PAUSE).await;
        }
    }

    async fn read(&self, call: &Call) -> Result<()> {
        let (kind, id) = self.of;
        let what = format!("build log of {id}");
        let request = self.client.follow(self.client.build_log_url(call, kind, id).await?);
        let answer = accepted(call, &what, send(call, &what, Effect::Idempotent, request).await?).await?;
        let mut answer = answer.map_err(|no| no.error(&what, Effect::Idempotent))?;
        // A body that is cut is over, too.
        while let Ok(Some(chunk)) = answer.chunk().await {
            self.written.store(true, Relaxed);
            self.sink.write(Stream::Stdout, &chunk);
            self.tail.write(Stream::Stdout, &chunk);
        }
        Ok(())
    }

    /// The error of a build that failed for `reason`, with the end of its output.
    pub(crate) fn failure(&self, what: &str, reason: Option<&str>) -> Error {
        let reason = reason.filter(|reason| !reason.trim().is_empty()).unwrap_or("no reason was given");
        let tail = self.tail.text(Stream::Stdout);
        let quoted =
            if tail.trim().is_empty() { String::new() } else { format!("; its output ended:\n{}\n", tail.trim()) };
        Error::new(ErrorKind::Environment, format!("{what} failed: {reason}{quoted}"))
    }
}
