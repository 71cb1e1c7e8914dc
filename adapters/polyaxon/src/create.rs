//! Creating a sandbox: submit the run, see it through to `running`, or take it back.

use std::time::Duration;

use reqwest::Method;
use sandbox_bench_core::{Call, CreateFacts, Destruction, Error, ErrorKind, Result, SandboxSpec};
use sandbox_bench_kit::guest::check_variables;
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::uncancelled;
use tokio::time::Instant;

use crate::api::{Api, ask};
use crate::component::{self, Template};
use crate::error::short;
use crate::wire::{NewRun, NewRunAnswer, Run, Status, Statuses};
use crate::{command, destroy, find, status};

/// Time kept for taking back what did not come to run.
const TAKE_BACK_LIMIT: Duration = Duration::from_secs(20);
/// Limit for one look; a look that fails is repeated, as the official client does.
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// First pause between two looks.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// How often approval is given. The first one may only compile the run (seen with server 2.18.0).
const APPROVALS: usize = 3;

/// A run that runs.
pub(crate) struct Up {
    /// Its id.
    pub(crate) id: String,
    /// Where its gateway leads.
    pub(crate) namespace: String,
    /// How it came to be.
    pub(crate) facts: CreateFacts,
}

/// Creates a run and waits until it runs.
pub(crate) async fn create(api: &Api, template: &Template, call: &Call, spec: &SandboxSpec) -> Result<Up> {
    let image = component::image(template, &api.config, &spec.source)?;
    let content = template.fill(spec, image)?;
    check_variables(&spec.env)?;
    command::check_names(&spec.env)?;
    let id = submit(api, call, spec, content).await?;
    match bring_up(api, call, spec, (&id, image)).await {
        Ok(up) => Ok(up),
        Err(error) => Err(take_back(api, call, spec, &id, error).await),
    }
}

async fn submit(api: &Api, call: &Call, spec: &SandboxSpec, content: String) -> Result<String> {
    let what = format!("sandbox {}: create", spec.tag);
    // What may not be sent any more has no effect.
    sandbox_bench_kit::wait::bounded(call, &what, async {}).await?;
    let tag = spec.tag.as_str();
    let body = NewRun { content, name: tag, tags: vec![find::CREATED_BY, tag], meta_info: find::meta(spec) };
    let request = api.of_project(Method::POST, &["runs"]).json(&body);
    // Once sent, the answer is awaited even if the caller cancels: only it tells what has to be taken back.
    let answer = ask::<NewRunAnswer>(&uncancelled(call, call.remaining()), &what, Effect::Once, request).await;
    answer.map(|run| run.uuid).map_err(|error| match error.kind() {
        ErrorKind::Transport | ErrorKind::DeadlineExceeded => uncertain(spec, error),
        ErrorKind::NotFound => error.hint("does the project exist? make it with `polyaxon project create`"),
        _ => error,
    })
}

fn uncertain(spec: &SandboxSpec, cause: Error) -> Error {
    let kind = ErrorKind::UncertainSubmission { tag: spec.tag.clone() };
    Error::new(kind, format!("sandbox {}: it is unknown whether it was created", spec.tag)).because(cause)
}

/// Waits until the run runs.
async fn bring_up(api: &Api, call: &Call, spec: &SandboxSpec, (id, image): (&str, &str)) -> Result<Up> {
    let statuses = wait_until_running(api, call, spec, (id, image)).await?;
    let run = api.run(&call.within(LOOK_LIMIT), id).await?;
    let namespace = api.namespace(&call.within(LOOK_LIMIT), &run).await?;
    let facts = CreateFacts {
        resolved_source: resolved_image(&run).unwrap_or_else(|| image.to_owned()),
        workdir: spec.workdir.clone(),
        granted: status::granted(&run),
        provider_times: statuses.times(),
        ..CreateFacts::default()
    };
    Ok(Up { id: run.uuid, namespace, facts })
}

async fn wait_until_running(api: &Api, call: &Call, spec: &SandboxSpec, (id, image): (&str, &str)) -> Result<Statuses> {
    let started = Instant::now();
    let give_up = call.deadline - TAKE_BACK_LIMIT.min(call.remaining() / 2);
    let mut pull_ends = None;
    let mut pause = FIRST_PAUSE;
    let mut last = Statuses::default();
    loop {
        match api.statuses(&call.within(LOOK_LIMIT), id).await {
            Ok(statuses) if statuses.status == Some(Status::Running) => return Ok(statuses),
            Ok(statuses) => last = statuses,
            Err(e) if matches!(e.kind(), ErrorKind::Unavailable | ErrorKind::DeadlineExceeded) => {
                tracing::debug!(run = short(id), error = %e, "a look at a run's status failed");
            }
            Err(e) => return Err(e),
        }
        if let Some(error) = last.hopeless(id, image) {
            return Err(error);
        }
        if matches!(last.status, Some(Status::Created | Status::Compiled)) {
            approve(api, call, id).await?;
        }
        if last.scheduled() {
            pull_ends.get_or_insert_with(|| Instant::now() + spec.environment_limit);
        }
        if Instant::now() + pause >= pull_ends.unwrap_or(give_up).min(give_up) {
            return Err(last.overdue(id, image, started.elapsed()));
        }
        sandbox_bench_kit::wait::bounded(call, "start", tokio::time::sleep(pause)).await?;
        pause = (pause * 2).min(api.poll());
    }
}

/// A run that a policy holds is approved where the configuration says so, else it is an error: nobody may ever come.
async fn approve(api: &Api, call: &Call, id: &str) -> Result<()> {
    for _ in 0..APPROVALS {
        let run = api.run(&call.within(LOOK_LIMIT), id).await?;
        if run.pending.as_deref() != Some("approval") {
            return Ok(());
        }
        if !api.config.approve {
            break;
        }
        api.tell(&call.within(LOOK_LIMIT), id, "approve").await?;
    }
    let message = format!("run {}: it waits for approval", short(id));
    Err(Error::new(ErrorKind::Credentials, message).hint(
        "ask for permission to run without, or set `approve = true` for this backend with a token that may approve",
    ))
}

/// The image of the operation as the server compiled it.
fn resolved_image(run: &Run) -> Option<String> {
    let compiled: serde_json::Value = serde_json::from_str(run.content.as_deref()?).ok()?;
    compiled["run"]["container"]["image"].as_str().map(str::to_owned)
}

/// Ends what a failed create has made, so that the error can promise that nothing is left.
async fn take_back(api: &Api, call: &Call, spec: &SandboxSpec, id: &str, error: Error) -> Error {
    let call = uncancelled(call, TAKE_BACK_LIMIT);
    let ended = match api.run(&call, id).await {
        Ok(run) => destroy::end(api, &call, &run).await,
        Err(e) => Err(e),
    };
    let why = match ended {
        Ok(Destruction::Confirmed) => return error,
        Ok(Destruction::Unconfirmed { why }) => why,
        Err(failed) => failed.to_string(),
    };
    uncertain(spec, error).hint(format!("run {} may still be there: {why}", short(id)))
}
