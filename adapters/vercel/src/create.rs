//! Creating a sandbox: one request, whose answer is known or looked for.

use std::time::Duration;

use reqwest::Method;
use sandbox_bench_core::{
    Call, CreateFacts, Destruction, Error, ErrorKind, Resources, Result, SandboxSpec, Source as From,
};
use sandbox_bench_kit::guest::check_variables;
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::{uncancelled, winding_up};

use crate::client::{Api, answer};
use crate::config::VercelConfig;
use crate::helper::milliseconds;
use crate::labels::Labels;
use crate::wire::{Create, Opened, Source, Start, Vcpus};
use crate::{destroy, network, observe};

/// How long the answer is awaited after the caller has cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(8);
/// Time to look for, or to take back, what a failed or cancelled create has made.
const AFTERMATH_LIMIT: Duration = Duration::from_secs(6);
/// Memory that comes with each virtual CPU, in MB.
const MEMORY_PER_VCPU: u64 = 2048;
/// Storage of every sandbox, in MB (documented in May 2026).
const DISK: u64 = 32 << 10;
/// Virtual CPUs of a sandbox that does not say how many.
const DEFAULT_VCPUS: u32 = 2;

/// Creates a sandbox; returns what the service says of it and what is known of how it came to be.
pub(crate) async fn create(api: &Api, call: &Call, spec: &SandboxSpec) -> Result<(Opened, CreateFacts)> {
    check_variables(&spec.env)?;
    let config = &api.config;
    let start = start(config, &spec.source)?;
    let labels = Labels { sandbox: Some(spec.tag.clone()), workdir: spec.workdir.clone(), ..Labels::default() };
    let body = Create {
        project_id: &api.credentials.project,
        name: spec.tag.as_str(),
        ports: [],
        timeout: milliseconds(spec.lifetime),
        resources: Vcpus { vcpus: vcpus(config, &spec.resources)? },
        persistent: false,
        env: &spec.env,
        tags: labels.write(),
        network_policy: network::policy(&spec.network),
        start,
        region: config.region.as_deref(),
    };
    let opened = submit(api, call, spec, &body).await?;
    if call.cancel.is_cancelled() {
        return Err(take_back(api, call, spec).await);
    }
    let facts = facts(spec, &opened);
    Ok((opened, facts))
}

async fn submit(api: &Api, call: &Call, spec: &SandboxSpec, body: &Create<'_>) -> Result<Opened> {
    let what = format!("sandbox {}: create", spec.tag);
    if call.cancel.is_cancelled() {
        return Err(Error::new(ErrorKind::Cancelled, format!("{what}: cancelled")));
    }
    // Runtimes are known to this version of the route only, images to the next.
    let version = if matches!(body.start, Start::Runtime(_)) { "v2" } else { "v3" };
    let request = api.request(Method::POST, &[version, "sandboxes"]).json(body);
    let patient = uncancelled(call, call.remaining());
    let given_up = async {
        call.cancel.cancelled().await;
        tokio::time::sleep(CANCEL_GRACE).await;
    };
    let answered = tokio::select! {
        answered = answer::<Opened>(&patient, &what, Effect::Once, request) => answered,
        () = given_up => Err(Error::new(ErrorKind::Transport, format!("{what}: cancelled, and not answered"))),
    };
    match answered {
        Ok(opened) => Ok(opened),
        Err(error) if matches!(error.kind(), ErrorKind::Transport | ErrorKind::DeadlineExceeded) => {
            lost_answer(api, call, spec).await.ok_or_else(|| uncertain(spec, error))
        }
        Err(error) => Err(refused(spec, error)),
    }
}

/// The answer was lost: what came of the request is there under its name.
async fn lost_answer(api: &Api, call: &Call, spec: &SandboxSpec) -> Option<Opened> {
    let found = api.find(&winding_up(call, AFTERMATH_LIMIT), spec.tag.as_str()).await;
    found.ok().flatten().filter(|found| Labels::read(found.sandbox.tags.as_ref()).sandbox.as_ref() == Some(&spec.tag))
}

/// After a cancellation: ends what was made, so that the error can promise that nothing is left.
async fn take_back(api: &Api, call: &Call, spec: &SandboxSpec) -> Error {
    let error = Error::new(ErrorKind::Cancelled, format!("sandbox {}: create: cancelled", spec.tag));
    match destroy::destroy(api, &winding_up(call, AFTERMATH_LIMIT), &spec.tag).await {
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
fn refused(spec: &SandboxSpec, error: Error) -> Error {
    let text = error.to_string();
    match (&spec.source, error.kind()) {
        (From::Image(image), ErrorKind::NotFound) => {
            Error::new(ErrorKind::Environment, format!("image {image}: the service does not have it"))
                .because(error)
                .hint("push it to the vendor's registry (see the adapter's README)")
        }
        (From::Base, ErrorKind::NotFound) => {
            Error::new(ErrorKind::Environment, "the base image is not there").because(error).hint("see `base_image`")
        }
        (From::Artifact(id), ErrorKind::NotFound) => {
            Error::new(ErrorKind::NotFound, format!("artifact {id} is not there")).because(error)
        }
        (_, ErrorKind::InvalidRequest) if text.contains("HTTP 409") => {
            error.hint("a sandbox with this tag exists already; find and destroy it first")
        }
        _ => error,
    }
}

/// What to start from, as the service names it.
///
/// # Errors
/// `Unsupported` for what it cannot, `InvalidRequest` for the id of an artifact that cannot be one.
fn start<'a>(config: &'a VercelConfig, source: &'a From) -> Result<Start<'a>> {
    match source {
        From::Base => Ok(match &config.runtime {
            Some(runtime) => Start::Runtime(runtime),
            None => Start::Image(&config.base_image),
        }),
        From::Image(image) => match config.images.get(image) {
            Some(mapped) => Ok(Start::Image(mapped)),
            None => Err(Error::unsupported(format!("the vercel backend has no image for {image}"))
                .hint("push it to the vendor's registry and list it in the table `images` of the configuration")),
        },
        From::Artifact(id) => {
            is_id(id).then_some(Start::Source(Source::Snapshot { snapshot_id: id })).ok_or_else(|| not_an_id(id))
        }
        From::Dockerfile { .. } => Err(Error::unsupported("the vercel backend cannot build a Dockerfile")),
    }
}

/// True if the service could have given out this id.
pub(crate) fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= 128 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

fn not_an_id(id: &str) -> Error {
    Error::invalid(format!("{id:?} cannot be the id of an artifact"))
}

/// The smallest size that has what was asked for. Sizes are 1 and the even numbers; memory follows from them.
///
/// # Errors
/// `Unsupported` for what no size has, `InvalidRequest` for what is no number.
fn vcpus(config: &VercelConfig, asked: &Resources) -> Result<u32> {
    let most = config.plan.vcpus();
    if asked.gpus.is_some_and(|count| count > 0) {
        return Err(Error::unsupported("the vercel backend does not hand out GPUs"));
    }
    if asked.disk_mb.is_some_and(|disk| disk > DISK) {
        return Err(Error::unsupported(format!("sandboxes of the vercel backend have {DISK} MiB of storage")));
    }
    if asked.cpus.is_some_and(|cpus| cpus.is_nan() || cpus <= 0.0) {
        return Err(Error::invalid(format!("a limit of {} CPUs is out of range", asked.cpus.unwrap_or_default())));
    }
    let for_memory = asked.memory_mb.map(|memory| memory.div_ceil(MEMORY_PER_VCPU) as f64);
    let needed = match (asked.cpus, for_memory) {
        (None, None) => return Ok(DEFAULT_VCPUS),
        (cpus, memory) => cpus.unwrap_or(0.0).max(memory.unwrap_or(0.0)),
    };
    let size = std::iter::once(1).chain((2..=most).step_by(2)).find(|size| f64::from(*size) >= needed);
    size.ok_or_else(|| {
        Error::unsupported(format!(
            "a sandbox of the vercel backend has at most {most} CPUs and {} MiB",
            u64::from(most) * MEMORY_PER_VCPU
        ))
        .hint("the setting `plan` says what the team's plan allows")
    })
}

fn facts(spec: &SandboxSpec, opened: &Opened) -> CreateFacts {
    let Opened { sandbox, session } = opened;
    let resolved = match &spec.source {
        From::Artifact(id) => id.clone(),
        _ => sandbox.image.clone().or(sandbox.runtime.clone()).unwrap_or_else(|| "unknown".to_owned()),
    };
    CreateFacts {
        resolved_source: resolved,
        workdir: spec.workdir.clone().or(session.cwd.clone()),
        granted: observe::granted(session),
        provider_times: observe::times(session),
        ..CreateFacts::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::AccountPlan;

    fn asked(cpus: Option<f64>, memory_mb: Option<u64>) -> Resources {
        Resources { cpus, memory_mb, ..Resources::default() }
    }

    #[test]
    fn the_smallest_size_that_has_enough_is_taken() {
        let config = VercelConfig::default();
        let size = |cpus, memory| vcpus(&config, &asked(cpus, memory)).unwrap();
        assert_eq!(size(None, None), 2);
        assert_eq!([size(Some(1.0), Some(256)), size(Some(0.5), None), size(None, Some(2048))], [1, 1, 1]);
        assert_eq!([size(Some(1.5), None), size(Some(3.0), None), size(Some(1.0), Some(4097))], [2, 4, 4]);
        assert_eq!([size(Some(8.0), Some(16_384)), size(Some(5.0), None)], [8, 6]);
        let hobby = VercelConfig { plan: AccountPlan::Hobby, ..config.clone() };
        for (config, cpus, memory) in
            [(&config, Some(9.0), None), (&config, None, Some(16_385)), (&hobby, Some(5.0), None)]
        {
            assert_eq!(*vcpus(config, &asked(cpus, memory)).unwrap_err().kind(), ErrorKind::Unsupported);
        }
        for odd in [0.0, -1.0, f64::NAN] {
            assert_eq!(*vcpus(&config, &asked(Some(odd), None)).unwrap_err().kind(), ErrorKind::InvalidRequest);
        }
        let gpu = Resources { gpus: Some(1), ..Resources::default() };
        assert_eq!(*vcpus(&config, &gpu).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn images_are_mapped_and_nothing_else_is_guessed() {
        let images = [("python:3.12".to_owned(), "task-python:3.12".to_owned())].into();
        let config = VercelConfig { images, ..VercelConfig::default() };
        let of = |source: &From| start(&config, source).map(|start| format!("{start:?}"));
        assert_eq!(of(&From::Image("python:3.12".into())).unwrap(), r#"Image("task-python:3.12")"#);
        let error = of(&From::Image("python:3.13".into())).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("python:3.13"), "{error}");
        assert_eq!(of(&From::Base).unwrap(), r#"Image("vercel/sandbox/universal:latest")"#);
        let runtime = VercelConfig { runtime: Some("node24".into()), ..VercelConfig::default() };
        assert_eq!(start(&runtime, &From::Base).unwrap(), Start::Runtime("node24"));
        for bad in ["", "../x", "a/b", "a b", "ä"] {
            assert_eq!(*of(&From::Artifact(bad.into())).unwrap_err().kind(), ErrorKind::InvalidRequest, "{bad}");
        }
    }
}
