//! Creating a sandbox: one request, whose answer is known or looked for.

use std::time::Duration;

use reqwest::Method;
use sandbox_bench_core::{
    Call, CreateFacts, Destruction, Error, ErrorKind, NetworkPolicy, Result, SandboxSpec, Source,
};
use sandbox_bench_kit::guest::check_variables;
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::{bounded, uncancelled, winding_up};

use crate::client::{Api, answer};
use crate::labels::{Labels, parse_artifact_name};
use crate::wire::{Create, Sandbox};
use crate::{destroy, error, labels};

/// How long the answer is awaited after the caller has cancelled: what was made must be known to be taken back.
const CANCEL_GRACE: Duration = Duration::from_secs(8);
/// Time to look for, or to take back, what a failed or cancelled create has made.
const AFTERMATH_LIMIT: Duration = Duration::from_secs(6);
/// REPLACE: where commands start that name no directory.
const WORKDIR: &str = "/";

/// Creates a sandbox; returns what is known of how it came to be.
pub(crate) async fn create(api: &Api, call: &Call, spec: &SandboxSpec) -> Result<CreateFacts> {
    let what = format!("sandbox {}: create", spec.tag);
    let body = body(spec)?;
    // The last moment at which nothing is lost by giving up.
    bounded(call, &what, std::future::ready(())).await?;
    let request = api.request(Method::POST, &["sandboxes"]).json(&body);
    let patient = uncancelled(call, call.remaining());
    let given_up = async {
        call.cancel.cancelled().await;
        tokio::time::sleep(CANCEL_GRACE).await;
    };
    let answered = tokio::select! {
        answered = answer::<Sandbox>(&patient, &what, Effect::Once, request) => answered,
        () = given_up => Err(Error::new(ErrorKind::Transport, format!("{what}: cancelled, and not answered"))),
    };
    let made = match answered {
        Ok(made) => made,
        // The answer was lost: what came of the request is there under its name.
        Err(error) if error::unanswered(&error) => {
            let found = api.sandbox(&winding_up(call, AFTERMATH_LIMIT), body.name).await.ok().flatten();
            let found = found.filter(|found| labels::carry(&found.labels, &spec.tag));
            found.ok_or_else(|| error::uncertain(&what, &spec.tag, error))?
        }
        Err(error) => return Err(error),
    };
    if call.cancel.is_cancelled() {
        return Err(take_back(api, call, spec, &what).await);
    }
    Ok(CreateFacts {
        resolved_source: made.source,
        workdir: spec.workdir.clone().or_else(|| Some(WORKDIR.to_owned())),
        provider_times: made.created_at.map(|at| ("created".to_owned(), at)).into_iter().collect(),
        ..CreateFacts::default()
    })
}

/// REPLACE: the request for a sandbox. What the service cannot do is refused here, before anything is asked for.
fn body(spec: &SandboxSpec) -> Result<Create<'_>> {
    check_variables(&spec.env)?;
    let unsupported = |what: String| Err(Error::unsupported(format!("the template backend {what}")));
    if spec.resources.gpus.is_some_and(|count| count > 0) {
        return unsupported("does not hand out GPUs".to_owned());
    }
    let snapshot = match &spec.source {
        Source::Base => None,
        Source::Artifact(id) if parse_artifact_name(id).is_some() => Some(id.as_str()),
        Source::Artifact(id) => return Err(Error::invalid(format!("{id:?} cannot be the id of an artifact"))),
        Source::Image(image) => return unsupported(format!("cannot start from the image {image}")),
        Source::Dockerfile { .. } => return unsupported("cannot build a Dockerfile".to_owned()),
    };
    let offline = match spec.network {
        NetworkPolicy::Public => false,
        NetworkPolicy::NoNetwork => true,
        NetworkPolicy::Allowlist(_) => return unsupported("cannot allow listed hosts only".to_owned()),
    };
    let lifetime_seconds = spec.lifetime.as_secs().max(1);
    Ok(Create { name: spec.tag.as_str(), snapshot, labels: Labels::of(spec).write(), lifetime_seconds, offline })
}

/// After a cancellation: ends what was made, so that the error can promise that nothing is left.
async fn take_back(api: &Api, call: &Call, spec: &SandboxSpec, what: &str) -> Error {
    let cancelled = Error::new(ErrorKind::Cancelled, format!("{what}: cancelled"));
    match destroy::destroy(api, &winding_up(call, AFTERMATH_LIMIT), &spec.tag).await {
        Ok(Destruction::Confirmed) => cancelled,
        Ok(Destruction::Unconfirmed { why }) => error::uncertain(what, &spec.tag, cancelled).hint(why),
        Err(failed) => error::uncertain(what, &spec.tag, cancelled).hint(failed.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandbox_bench_core::{Resources, Tag};

    use super::*;

    #[test]
    fn what_the_service_cannot_do_is_refused_before_it_is_asked() {
        let spec = |source| SandboxSpec::new(Tag::new("run", "unit"), source);
        let gpu = Resources { gpus: Some(1), ..Resources::default() };
        let hosts = NetworkPolicy::Allowlist(vec!["example.com".into()]);
        for (spec, kind) in [
            (spec(Source::Image("debian".into())), ErrorKind::Unsupported),
            (spec(Source::Artifact("../x".into())), ErrorKind::InvalidRequest),
            (SandboxSpec { resources: gpu, ..spec(Source::Base) }, ErrorKind::Unsupported),
            (SandboxSpec { network: hosts, ..spec(Source::Base) }, ErrorKind::Unsupported),
        ] {
            assert_eq!(*body(&spec).err().unwrap().kind(), kind, "{spec:?}");
        }
        assert!(body(&spec(Source::Base)).is_ok());
    }
}
