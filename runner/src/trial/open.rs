//! Opens and ends sandboxes with their journal entries: the intent before the request, the answer after it. Nothing that
//! may have come to exist is forgotten, whatever the answer was.

use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_core::evidence::{Cleanup, Creates, Event};
use sandbox_bench_core::{
    Backend, Created, Destruction, ErrorKind, Phase, SandboxRef, SandboxSpec, Source, Stage, TagQuery,
};

use super::context::{CONTROL_LIMIT, Calls, Context, MARGIN, Start, Trial};
use super::recorder::{OUTPUT_LIMIT, Recorder, TEXT};
use super::stop::Stop;

/// Limit for ending a sandbox.
const DESTROY_LIMIT: Duration = Duration::from_secs(120);

/// When to look for what came of a lost answer: the pause before each look.
const LOOKS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(2), Duration::from_secs(6)];

/// How an attempt to open ended without a sandbox.
pub struct NotOpened {
    /// Why.
    pub stop: Stop,
    /// What is known of what may have come to exist.
    pub cleanup: Cleanup,
}

/// The request for a trial's sandbox, from `artifact` or from what the task names.
#[must_use]
pub fn request(context: &Context, trial: &Trial, artifact: Option<&str>) -> SandboxSpec {
    let task = &trial.task;
    let source = artifact.map_or_else(|| trial.setup.source.clone(), |id| Source::Artifact(id.to_owned()));
    let mut spec = SandboxSpec::new(trial.tag.clone(), source);
    spec.resources = task.resources.clone();
    spec.network = trial.network();
    spec.lifetime = allowed_lifetime(trial, context.lifetime(task));
    spec.environment_limit = task.environment.build_timeout;
    spec.resumable = matches!(trial.start, Start::Resumed);
    spec
}

/// The lifetime `wanted`, as far as the backend allows.
#[must_use]
pub fn allowed_lifetime(trial: &Trial, wanted: Duration) -> Duration {
    let longest = trial.backend.info().capabilities.max_lifetime_seconds;
    longest.map_or(wanted, |seconds| wanted.min(Duration::from_secs(seconds)))
}

/// Creates a sandbox.
///
/// # Errors
/// Why there is none, and what that leaves to clean up.
pub async fn open(
    context: &Context,
    rec: &Recorder<'_>,
    calls: &Calls,
    backend: &Arc<dyn Backend>,
    spec: &SandboxSpec,
) -> Result<Created, NotOpened> {
    let name = backend.info().name.clone();
    let intent = Event::Intent { tag: spec.tag.clone(), backend: name.clone(), creates: Creates::Sandbox };
    if let Err(error) = context.journal.commit(intent).await {
        return Err(NotOpened { stop: Stop::evidence(error), cleanup: Cleanup::Nothing });
    }
    let log = context.outputs.stream("environment", TEXT, OUTPUT_LIMIT);
    let call = calls.call(Stage::Setup, spec.environment_limit + CONTROL_LIMIT + MARGIN);
    let mut error_kind = None;
    let result = rec
        .phase(Phase::Create, async {
            backend.create(&call, spec, &log).await.map_err(|error| {
                error_kind = Some(error.kind().clone());
                let phase = if *error.kind() == ErrorKind::Environment { Phase::Environment } else { Phase::Create };
                Stop::from_error(phase, "create", &error)
            })
        })
        .await;
    match log.finish(None) {
        Ok((stdout, stderr)) => stdout.output.into_iter().chain(stderr.output).for_each(|output| rec.keep(output)),
        Err(error) => rec.warn(format!("the build log could not be kept: {error}")),
    }
    match result {
        Ok(created) => {
            if spec.resumable {
                // What is measured of it is its resumption.
                rec.rename_last(Phase::Environment);
            } else {
                rec.split_last(Phase::Environment, created.facts.environment_us);
            }
            let event = Event::Created { sandbox: created.sandbox.reference().clone() };
            match context.journal.append(event).await {
                Ok(()) => Ok(created),
                Err(error) => {
                    let cleanup = end(context, calls, backend, created.sandbox.reference()).await;
                    Err(NotOpened { stop: Stop::evidence(error), cleanup })
                }
            }
        }
        Err(stop) => {
            if error_kind == Some(ErrorKind::Environment) {
                // A build that fails after minutes is no slow create.
                rec.rename_last(Phase::Environment);
            }
            let uncertain = matches!(error_kind, Some(ErrorKind::UncertainSubmission { .. }));
            let message = match &stop {
                Stop::Failed(failure) => failure.message.clone(),
                Stop::Evidence(error) => error.to_string(),
            };
            let event = Event::CreateFailed { tag: spec.tag.clone(), error: message, uncertain };
            let noted = context.journal.append(event).await;
            let cleanup = if uncertain { reconcile(context, calls, backend, spec).await } else { Cleanup::Nothing };
            let stop = noted.err().map_or(stop, Stop::evidence);
            Err(NotOpened { stop, cleanup })
        }
    }
}

/// After a lost answer: finds what came to exist under the tag, and ends it. A backend may still be making it, and one
/// that has just lost an answer may not answer the search either: it is looked for more than once.
async fn reconcile(context: &Context, calls: &Calls, backend: &Arc<dyn Backend>, spec: &SandboxSpec) -> Cleanup {
    let mut why = String::new();
    for pause in LOOKS {
        tokio::time::sleep(pause).await;
        let call = calls.cleanup(CONTROL_LIMIT);
        match backend.find(&call, &TagQuery::Exact(spec.tag.clone())).await {
            Ok(found) if found.is_empty() => {
                why = "the answer to create was lost, and nothing with its tag is there yet".into();
            }
            Ok(found) => {
                let mut cleanup = Cleanup::Confirmed;
                for one in found {
                    let ended = end(context, calls, backend, &one.reference).await;
                    if matches!(ended, Cleanup::Unconfirmed { .. }) {
                        cleanup = ended;
                    }
                }
                return cleanup;
            }
            Err(error) => why = format!("the answer to create was lost, and so is the search: {error}"),
        }
    }
    Cleanup::Unconfirmed { why }
}

/// Ends a sandbox and journals what the backend says. Goes on after an interruption.
pub async fn end(context: &Context, calls: &Calls, backend: &Arc<dyn Backend>, sandbox: &SandboxRef) -> Cleanup {
    // A journal that takes no more lines must not keep the sandbox alive: the attempt reports that error by itself.
    let _ = context.journal.append(Event::DestroyRequested { sandbox: sandbox.clone() }).await;
    let outcome = match backend.destroy(&calls.cleanup(DESTROY_LIMIT), sandbox).await {
        Ok(outcome) => outcome,
        Err(error) => Destruction::Unconfirmed { why: error.to_string() },
    };
    let _ = context.journal.append(Event::Destroyed { sandbox: sandbox.clone(), outcome: outcome.clone() }).await;
    match outcome {
        Destruction::Confirmed => Cleanup::Confirmed,
        Destruction::Unconfirmed { why } => Cleanup::Unconfirmed { why },
    }
}
