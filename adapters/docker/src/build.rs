//! Building an image from a Dockerfile with the engine's classic builder.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bollard::errors::Error as EngineError;
use bollard::query_parameters::BuildImageOptionsBuilder;
use futures_util::StreamExt;
use sandbox_bench_core::{Call, Error, ErrorKind, Meter, OutputSink, Result, Stream, TailSink};
use sandbox_bench_kit::archive::{self, TarTask};
use sandbox_bench_kit::wait::bounded;
use tar::EntryType;

use crate::client::Engine;
use crate::error;

/// How much of the build's output an error quotes, in bytes.
const QUOTED: usize = 2000;

/// What to build.
pub(crate) struct Build {
    /// The name that the image gets.
    pub(crate) name: String,
    /// Labels of the image.
    pub(crate) labels: HashMap<String, String>,
    /// What it is built from.
    pub(crate) recipe: Recipe,
}

/// What an image is built from.
pub(crate) enum Recipe {
    /// A context directory and the path of the Dockerfile in it.
    Context(PathBuf, String),
    /// A Dockerfile alone.
    Text(String),
}

/// Builds it; the output goes to `log`.
///
/// # Errors
/// `Environment` for a failing build, naming the step and quoting the end of its output.
pub(crate) async fn build(engine: &Engine, call: &Call, build: Build, log: &dyn OutputSink) -> Result<()> {
    let what = format!("build of {}", build.name);
    let dockerfile = match &build.recipe {
        Recipe::Context(_, dockerfile) => dockerfile.clone(),
        Recipe::Text(_) => "Dockerfile".to_owned(),
    };
    let options = BuildImageOptionsBuilder::new()
        .t(&build.name)
        .dockerfile(&dockerfile)
        .labels(&build.labels)
        .platform(engine.config.platform.as_deref().unwrap_or_default())
        .rm(true)
        .forcerm(true)
        .build();
    let (task, stream) = context(build.recipe, call.meter.clone());
    call.meter.api_call();
    let mut events = engine.docker.build_image(options, None, Some(bollard::body_try_stream(stream)));
    let mut progress = Progress::new(log);
    let ended = bounded(call, &what, async {
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => progress.take(event.stream.or(event.status).unwrap_or_default().as_bytes()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })
    .await?;
    drop(events);
    bounded(call, &what, task.finish()).await??;
    ended.map_err(|error| progress.failure(&what, error))
}

fn context(
    recipe: Recipe,
    meter: Arc<Meter>,
) -> (TarTask, impl futures_util::Stream<Item = io::Result<bytes::Bytes>> + Send + 'static) {
    archive::tar(meter, move |builder| match recipe {
        Recipe::Context(directory, dockerfile) => archive::write_context(builder, &directory, &dockerfile),
        Recipe::Text(text) => {
            let header = archive::header(EntryType::Regular, 0o644, text.len() as u64, 0);
            archive::append(builder, header, Path::new("Dockerfile"), text.as_bytes())
                .map_err(|e| Error::invalid("cannot send the Dockerfile").because(e))
        }
    })
}

/// Follows a build's output: passes it on, and remembers what an error should say.
struct Progress<'a> {
    log: &'a dyn OutputSink,
    step: Option<String>,
    tail: TailSink,
}

impl<'a> Progress<'a> {
    fn new(log: &'a dyn OutputSink) -> Self {
        Self { log, step: None, tail: TailSink::new(QUOTED) }
    }

    fn take(&mut self, text: &[u8]) {
        self.log.write(Stream::Stdout, text);
        self.tail.write(Stream::Stdout, text);
        let line = String::from_utf8_lossy(text);
        // "Step 2/5 : RUN make" (Docker), "STEP 2/5: RUN make" (Podman).
        if line.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("step ")) {
            self.step = Some(line.trim().chars().take(300).collect());
        }
    }

    fn failure(&self, what: &str, error: EngineError) -> Error {
        match error {
            EngineError::DockerStreamError { .. } => {}
            EngineError::DockerResponseServerError { status_code: 400 | 500, .. } => {}
            other => return error::map(what, other),
        }
        let step = self.step.as_deref().map(|step| format!(" at {step:?}")).unwrap_or_default();
        let tail = self.tail.text(Stream::Stdout);
        let quoted =
            if tail.trim().is_empty() { String::new() } else { format!("; its output ended:\n{}\n", tail.trim()) };
        Error::new(ErrorKind::Environment, format!("{what} failed{step}{quoted}")).because(error)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_failing_build_names_its_step_and_quotes_its_output() {
        let log = TailSink::new(1000);
        let mut progress = Progress::new(&log);
        for line in ["Step 1/2 : FROM debian\n", " ---> 0123\n", "Step 2/2 : RUN make\n", "make: no rule\n"] {
            progress.take(line.as_bytes());
        }
        let error = EngineError::DockerStreamError { error: "'/bin/sh -c make' returned a non-zero code: 2".into() };
        let error = progress.failure("build of x", error);
        assert_eq!(*error.kind(), ErrorKind::Environment);
        let text = error.to_string();
        assert!(text.contains("Step 2/2 : RUN make") && text.contains("make: no rule"), "{text}");
        assert!(text.contains("non-zero code: 2"), "{text}");
        assert!(log.text(Stream::Stdout).starts_with("Step 1/2"));
    }

    #[test]
    fn a_lost_connection_is_not_blamed_on_the_environment() {
        let log = TailSink::new(10);
        let progress = Progress::new(&log);
        let lost = EngineError::IOError { err: io::Error::from(io::ErrorKind::ConnectionReset) };
        assert_eq!(*progress.failure("build of x", lost).kind(), ErrorKind::Transport);
    }
}
