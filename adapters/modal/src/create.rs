//! Creating a sandbox: its image is made ready, then one request, whose answer is known or looked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_core::{
    Call, CreateFacts, Destruction, Error, ErrorKind, OutputSink, Resources, Result, SandboxSpec, Source,
};
use sandbox_bench_kit::guest::check_variables;
use sandbox_bench_kit::wait::{bounded, uncancelled, winding_up};
use tonic::Status;

use crate::client::Client;
use crate::error::{self, Effect, unsent};
use crate::image::{self, Provided};
use crate::proto::client::{Sandbox, SandboxCreateV2Request, SandboxCreateV2Response, SchedulerPlacement};
use crate::router::Router;
use crate::{destroy, guest, labels, network, size};

/// How long the answer is awaited after the caller has cancelled: only it tells what has to be taken back.
const CANCEL_GRACE: Duration = Duration::from_secs(8);
/// Time to look for, or to take back, what a failed or cancelled create has made.
const AFTERMATH_LIMIT: Duration = Duration::from_secs(6);
/// The longest life of a sandbox in seconds (the vendor's guide).
pub(crate) const LONGEST_LIFE: u64 = 24 * 3600;
/// Pause between two looks for the inside of a sandbox.
const POLL: Duration = Duration::from_millis(500);
/// What the first process runs. Commands run beside it.
const HOLD: [&str; 2] = ["sleep", "infinity"];
/// Variable that tells `guest/enter.sh` the working directory of commands that name none. The sandbox itself keeps it, for a
/// tag of the service cannot hold a path.
const WORKDIR: &str = "SANDBOX_BENCH_WORKDIR";

/// Creates a sandbox; returns its inside and what is known of how it came to be.
pub(crate) async fn create(
    client: &Arc<Client>,
    call: &Call,
    spec: &SandboxSpec,
    log: &dyn OutputSink,
) -> Result<(Router, CreateFacts)> {
    let variables = variables(spec)?;
    let (resources, granted) = size::size(&spec.resources)?;
    let seconds = spec.lifetime.as_secs() + u64::from(spec.lifetime.subsec_nanos() > 0);
    if seconds > LONGEST_LIFE {
        return Err(Error::invalid(format!("a sandbox of the modal backend lives {LONGEST_LIFE} seconds at most")));
    }
    let network_access = network::access(&spec.network)?;
    let image = image::provide(client, call, (&spec.source, spec.environment_limit), log).await?;
    let config = &client.config;
    let definition = Sandbox {
        entrypoint_args: HOLD.map(str::to_owned).to_vec(),
        image_id: image.id.clone(),
        resources: Some(resources),
        timeout_secs: u32::try_from(seconds.max(1)).unwrap_or(u32::MAX),
        idle_timeout_secs: (config.idle_minutes > 0).then(|| config.idle_minutes.saturating_mul(60)),
        scheduler_placement: config.region.clone().map(|region| SchedulerPlacement { regions: vec![region] }),
        cloud_provider_str: config.cloud.clone().unwrap_or_default(),
        runtime: config.runtime.clone(),
        network_access: Some(network_access),
        name: Some(spec.tag.to_string()),
    };
    let message = SandboxCreateV2Request {
        app_id: client.app(call).await?,
        definition: Some(definition),
        tags: labels::of(&spec.tag),
        secret_sources: guest::secrets(&variables),
    };
    let made = submit(client, call, spec, message).await?;
    client.made().insert(made.sandbox_id.clone(), spec.tag.clone());
    let up = async {
        if call.cancel.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, format!("sandbox {}: create: cancelled", spec.tag)));
        }
        inside(client, call, &made).await
    };
    match up.await {
        Ok(router) => Ok((router, facts(spec, image, granted))),
        Err(error) => Err(take_back(client, call, spec, &made.sandbox_id, error).await),
    }
}

/// Variables of every command in the sandbox.
fn variables(spec: &SandboxSpec) -> Result<BTreeMap<String, String>> {
    check_variables(&spec.env)?;
    let legal = |name: &str| {
        let first = |b: &u8| b.is_ascii_alphabetic() || *b == b'_';
        name.as_bytes().first().is_some_and(first) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if let Some(odd) = spec.env.keys().find(|name| !legal(name)) {
        return Err(Error::invalid(format!(
            "{odd:?} cannot be an environment variable of a sandbox of the modal backend"
        )));
    }
    let workdir = spec.workdir.iter().map(|workdir| (WORKDIR.to_owned(), workdir.clone()));
    Ok(spec.env.clone().into_iter().chain(workdir).collect())
}

async fn submit(
    client: &Client,
    call: &Call,
    spec: &SandboxSpec,
    message: SandboxCreateV2Request,
) -> Result<SandboxCreateV2Response> {
    let what = format!("sandbox {}: create", spec.tag);
    if call.cancel.is_cancelled() {
        return Err(Error::new(ErrorKind::Cancelled, format!("{what}: cancelled")));
    }
    let patient = uncancelled(call, call.remaining());
    let given_up = async {
        call.cancel.cancelled().await;
        tokio::time::sleep(CANCEL_GRACE).await;
    };
    let answered = tokio::select! {
        answered = client.create(&patient, &what, message) => answered,
        () = given_up => Err(Error::new(ErrorKind::Transport, format!("{what}: cancelled, and not answered"))),
    };
    let error = match answered {
        Ok(Ok(made)) => return Ok(made),
        Ok(Err(status)) => refused(client, spec, &what, &status),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::Transport | ErrorKind::DeadlineExceeded => {
            lost_answer(client, call, spec).await.ok_or_else(|| uncertain(spec, error))
        }
        _ => Err(error),
    }
}

/// The answer was lost: what came of the request is there under its name.
async fn lost_answer(client: &Client, call: &Call, spec: &SandboxSpec) -> Option<SandboxCreateV2Response> {
    let call = winding_up(call, AFTERMATH_LIMIT);
    let sandbox_id = client.named(&call, spec.tag.as_str()).await.ok().flatten()?;
    let tags = client.tags(&call, &sandbox_id).await.ok()?;
    let ours = labels::read(&tags).as_ref() == Some(&spec.tag);
    ours.then(|| SandboxCreateV2Response { sandbox_id, ..SandboxCreateV2Response::default() })
}

/// The inside of a sandbox that exists. What the answer to the request did not say is asked for.
async fn inside(client: &Arc<Client>, call: &Call, made: &SandboxCreateV2Response) -> Result<Router> {
    match &made.command_router_access {
        Some(access) if !made.task_id.is_empty() => {
            Router::new(client.clone(), (&made.sandbox_id, &made.task_id), &access.url, &access.jwt)
        }
        _ => attach(client, call, &made.sandbox_id).await,
    }
}

/// The inside of the sandbox `id`.
///
/// # Errors
/// `SandboxLost` if it has ended.
pub(crate) async fn attach(client: &Arc<Client>, call: &Call, id: &str) -> Result<Router> {
    let task = loop {
        let seen = client.task(call, id).await?;
        match (seen.task_id.filter(|task| !task.is_empty()), seen.task_result) {
            (_, Some(result)) if result.status != 0 => {
                return Err(error::lost(id, &format!("{} {}", result.status().as_str_name(), result.exception)));
            }
            (Some(task), _) => break task,
            (None, _) => bounded(call, &format!("sandbox {id}: start"), tokio::time::sleep(POLL)).await?,
        }
    };
    let access = client.access(call, id).await?;
    Router::new(client.clone(), (id, &task), &access.url, &access.jwt)
}

/// After a failure or a cancellation: ends what was made, so that the error can promise that nothing is left.
async fn take_back(client: &Client, call: &Call, spec: &SandboxSpec, id: &str, error: Error) -> Error {
    match destroy::remove(client, &winding_up(call, AFTERMATH_LIMIT), (id, &spec.tag)).await {
        Ok(Destruction::Confirmed) => error,
        Ok(Destruction::Unconfirmed { why }) => uncertain(spec, error).hint(why),
        Err(failed) => uncertain(spec, error).hint(failed.to_string()),
    }
}

fn uncertain(spec: &SandboxSpec, cause: Error) -> Error {
    let kind = ErrorKind::UncertainSubmission { tag: spec.tag.clone() };
    Error::new(kind, format!("sandbox {}: it is unknown whether it was created", spec.tag)).because(cause)
}

/// What a refusal means for what the sandbox was to start from.
fn refused(client: &Client, spec: &SandboxSpec, what: &str, status: &Status) -> Error {
    let effect = if unsent(status) { Effect::Idempotent } else { Effect::Once };
    let error = client.refused(what, effect, status);
    match (&spec.source, error.kind()) {
        (Source::Artifact(id), ErrorKind::NotFound) => {
            Error::new(ErrorKind::NotFound, format!("artifact {id} is not there")).because(error)
        }
        (_, ErrorKind::NotFound) => {
            Error::new(ErrorKind::Environment, "the service does not have the image any more").because(error)
        }
        _ => error,
    }
}

fn facts(spec: &SandboxSpec, image: Provided, granted: Resources) -> CreateFacts {
    let environment = match image.cache {
        sandbox_bench_core::CacheUse::Miss => image.took,
        sandbox_bench_core::CacheUse::Hit => Duration::ZERO,
    };
    CreateFacts {
        resolved_source: image.id,
        environment_cache: Some(image.cache),
        environment_us: u64::try_from(environment.as_micros()).unwrap_or(u64::MAX),
        workdir: spec.workdir.clone().or(image.workdir),
        granted,
        ..CreateFacts::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandbox_bench_core::Tag;

    use super::*;

    #[test]
    fn variables_carry_the_working_directory_and_have_names_that_the_service_takes() {
        let mut spec = SandboxSpec::new(Tag::new("run", "unit"), Source::Base);
        assert!(variables(&spec).unwrap().is_empty());
        spec.workdir = Some("/new dir".into());
        spec.env.insert("_A1".into(), "x".into());
        assert_eq!(variables(&spec).unwrap().get(WORKDIR).map(String::as_str), Some("/new dir"));
        for odd in ["1A", "a.b", "ä", "a b", "A=B"] {
            let env = BTreeMap::from([(odd.to_owned(), String::new())]);
            let odd = SandboxSpec { env, ..spec.clone() };
            assert_eq!(*variables(&odd).unwrap_err().kind(), ErrorKind::InvalidRequest);
        }
    }
}
