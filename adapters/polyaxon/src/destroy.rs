//! Ending a sandbox: stop, wait until the platform says that it is over, and put it into the archive.

use std::time::Duration;

use sandbox_bench_core::{Call, Destruction, ErrorKind, Result, SandboxRef};

use crate::api::{Api, is_run};
use crate::wire::{Run, Status};
use crate::{error, find, status};

/// What the wait leaves of the call's time for the answer.
const MARGIN: Duration = Duration::from_millis(500);
/// Limit for one request.
const LOOK_LIMIT: Duration = Duration::from_secs(15);
/// First pause between two looks.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Ends the sandbox that `reference` names.
pub(crate) async fn destroy(api: &Api, call: &Call, reference: &SandboxRef) -> Result<Destruction> {
    if !is_run(&reference.id) {
        // No run has such an id; but a call that may not do anything any more says so first.
        return sandbox_bench_kit::wait::bounded(call, "destroy", async { Destruction::Confirmed }).await;
    }
    let run = match api.run(call, &reference.id).await {
        Ok(run) => run,
        Err(e) if gone(&e) => return Ok(Destruction::Confirmed),
        Err(e) => return Err(e),
    };
    if find::tag(&run).as_ref() != Some(&reference.tag) {
        return Err(error::not_ours(ErrorKind::InvalidRequest, reference).hint("it is not stopped"));
    }
    end(api, call, &run).await
}

/// Whether the API says that there is no such run. A missing project is another matter.
fn gone(error: &sandbox_bench_core::Error) -> bool {
    *error.kind() == ErrorKind::NotFound && !error.to_string().contains("No Project")
}

/// Ends a run of ours.
pub(crate) async fn end(api: &Api, call: &Call, run: &Run) -> Result<Destruction> {
    let id = &run.uuid;
    if !status::over(run.status)
        && let Some(why) = stop(api, call, run).await?
    {
        return Ok(Destruction::Unconfirmed { why });
    }
    if run.live_state.is_none_or(|state| state == 1) {
        // It is gone as it is; only the lists would go on showing it.
        if let Err(error) = api.tell(call, id, "archive").await {
            tracing::warn!(run = error::short(id), %error, "a stopped run could not be put into the archive");
        }
    }
    Ok(Destruction::Confirmed)
}

/// Asks for the end until the platform works on it, then waits for one of the final statuses. None once it is there,
/// else what was seen last. A request that gets no answer does not use up the time of the others.
async fn stop(api: &Api, call: &Call, run: &Run) -> Result<Option<String>> {
    let id = &run.uuid;
    let mut pause = FIRST_PAUSE;
    let mut stopping = run.status == Some(Status::Stopping);
    let mut last = "nothing is known".to_owned();
    while call.remaining() > MARGIN + pause {
        let look = call.within(LOOK_LIMIT);
        if !stopping {
            match api.tell(&look, id, "stop").await {
                Err(e) if gone(&e) => return Ok(None),
                Err(e) if !passing(&e) => return Err(e),
                // What came of it shows in the status.
                _ => {}
            }
        }
        match api.statuses(&look, id).await {
            Ok(statuses) if status::over(statuses.status) => return Ok(None),
            Ok(statuses) => {
                stopping = statuses.status == Some(Status::Stopping);
                last = statuses.last();
            }
            Err(e) if gone(&e) => return Ok(None),
            Err(e) => last = e.to_string(),
        }
        tokio::select! {
            () = call.cancel.cancelled() => return Ok(Some(format!("cancelled while it was stopping ({last})"))),
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(api.poll());
    }
    Ok(Some(format!("it had not come to a final status by the deadline ({last})")))
}

/// Whether the same request may fare better a moment later.
fn passing(error: &sandbox_bench_core::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::DeadlineExceeded)
}
