//! The end of a sandbox.

use reqwest::Method;
use sandbox_bench_core::{Call, Destruction, Error, ErrorKind, Result, Tag};
use sandbox_bench_kit::http::Effect;

use crate::artifact;
use crate::client::{Api, nothing, session_answer};
use crate::labels::Labels;
use crate::observe::{self, POLL};
use crate::wire::{OfSession, Opened, Sandbox, Session};

/// Ends the sandbox of this tag: stopped, which settles what is billed, then deleted. One that an artifact was made of stays
/// behind as the artifact's record, stopped and no sandbox of ours any more.
pub(crate) async fn destroy(api: &Api, call: &Call, tag: &Tag) -> Result<Destruction> {
    let name = tag.as_str();
    let Some(Opened { sandbox, session }) = api.find(call, name).await? else { return Ok(Destruction::Confirmed) };
    let labels = Labels::read(sandbox.tags.as_ref());
    match &labels.sandbox {
        Some(found) if found == tag => {}
        None if labels.artifact.is_some() => return Ok(Destruction::Confirmed),
        _ => return Err(Error::invalid(format!("sandbox {name} does not carry our tag; it is not deleted"))),
    }
    let stopped = match stop(api, call, session).await {
        Ok(session) => session,
        // Its deletion ends it too; only what is billed stays unknown.
        Err(error) if *error.kind() != ErrorKind::DeadlineExceeded => {
            tracing::warn!(sandbox = name, %error, "a sandbox could not be stopped before it was deleted");
            None
        }
        Err(error) => return Ok(Destruction::Unconfirmed { why: error.to_string() }),
    };
    for (fact, value) in stopped.iter().flat_map(observe::cost) {
        call.meter.cost_fact(&fact, value);
    }
    tracing::info!(sandbox = name, cost = ?stopped.as_ref().map(observe::cost), "sandbox stopped");
    match artifact::made_of(api, call, &sandbox, &labels).await? {
        Some(snapshot) if stopped.is_some() => {
            retire(api, call, name, Labels { snapshot: Some(snapshot), ..labels }).await
        }
        Some(_) => Ok(Destruction::Unconfirmed { why: "it could not be stopped".to_owned() }),
        None => remove(api, call, name).await,
    }
}

/// Stops a session and returns it as it is then; none if the service has forgotten it.
async fn stop(api: &Api, call: &Call, session: Session) -> Result<Option<Session>> {
    if session.status.over() {
        return Ok(Some(session));
    }
    let (id, what) = (session.id.as_str(), format!("session {}: stop", session.id));
    let request = api.of_session(Method::POST, id, &["stop"]).json(&nothing());
    let mut seen = match session_answer::<OfSession>(call, &what, Effect::Idempotent, request).await {
        Ok(of) => of.session,
        // It has ended, or is about to.
        Err(error) if *error.kind() == ErrorKind::SandboxLost => session.clone(),
        Err(error) => return Err(error),
    };
    while !seen.status.over() {
        seen = match api.session(call, id).await {
            Ok(session) => session,
            Err(error) if *error.kind() == ErrorKind::SandboxLost => return Ok(None),
            Err(error) => return Err(error),
        };
        if !seen.status.over() {
            sandbox_bench_kit::wait::bounded(call, &what, tokio::time::sleep(POLL)).await?;
        }
    }
    Ok(Some(seen))
}

/// Deletes a sandbox and waits until the service says that it is gone.
pub(crate) async fn remove(api: &Api, call: &Call, name: &str) -> Result<Destruction> {
    api.delete(call, name).await?;
    let gone = async {
        while api.find(call, name).await?.is_some() {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    // Half of the time is enough for a service that deletes; the rest is for saying that this one did not.
    match tokio::time::timeout(call.remaining() / 2, gone).await {
        Ok(Ok(())) => Ok(Destruction::Confirmed),
        Ok(Err(error)) => Err(error),
        Err(_) => Ok(Destruction::Unconfirmed { why: "it was deleted, but the service still shows it".to_owned() }),
    }
}

/// Leaves a stopped sandbox as the record of its artifact.
async fn retire(api: &Api, call: &Call, name: &str, labels: Labels) -> Result<Destruction> {
    let labels = Labels { sandbox: None, workdir: None, ..labels };
    let Sandbox { tags, status, .. } = api.label(call, name, &labels).await?;
    match Labels::read(tags.as_ref()).sandbox {
        None if status.over() => Ok(Destruction::Confirmed),
        _ => Ok(Destruction::Unconfirmed { why: "it still carries its tag, or runs again".to_owned() }),
    }
}
