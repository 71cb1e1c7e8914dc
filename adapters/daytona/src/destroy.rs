//! The end of a sandbox: asked for, then seen.

use std::time::Duration;

use sandbox_bench_core::{Call, Destruction, ErrorKind, Result};
use sandbox_bench_kit::http::Effect;
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::observe;
use crate::wire::State;

/// Pause between two looks at a sandbox that goes, at first and at last.
const FIRST: Duration = Duration::from_millis(50);
const LAST: Duration = Duration::from_secs(1);
/// What is left of the call's time to say that it is not known to be gone.
const MARGIN: Duration = Duration::from_millis(200);

/// Deletes a sandbox of ours with all that runs in it, and waits until the platform says that it is gone. One in a
/// transition is deleted when that is over; where the key may not delete, it is stopped, and goes because of that.
///
/// # Errors
/// What deleting is refused with for good.
pub(crate) async fn remove(client: &Client, call: &Call, id: &str) -> Result<Destruction> {
    let what = format!("sandbox {id}: delete");
    let deadline = call.deadline - MARGIN.min(call.remaining());
    let (mut pause, mut asked) = (FIRST, false);
    let mut why = "it was not answered in time".to_owned();
    loop {
        if !asked {
            match client.delete(call, &what, id).await {
                Ok(Ok(())) => asked = true,
                Ok(Err(no)) if no.status() == 404 => return Ok(confirmed(client, id)),
                Ok(Err(no)) if no.in_transition() => why = format!("it is in a transition: {}", no.message),
                Ok(Err(no)) if no.status() == 403 => match client.stop(call, &what, id).await? {
                    Ok(()) => asked = true,
                    Err(stopped) if stopped.status() == 404 => return Ok(confirmed(client, id)),
                    Err(stopped) if stopped.in_transition() => why = stopped.message,
                    Err(_) => return Err(no.error(&what, Effect::Idempotent)),
                },
                Ok(Err(no)) => return Err(no.error(&what, Effect::Idempotent)),
                Err(error) if asked_in_vain(error.kind()) => return Ok(unconfirmed(error.to_string())),
                Err(error) => return Err(error),
            }
        }
        match client.sandbox(call, id).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(confirmed(client, id)),
            Ok(seen) if observe::gone(&seen) => return Ok(confirmed(client, id)),
            Ok(seen) if asked && matches!(seen.state, Some(State::Error | State::BuildFailed)) => {
                let reason = seen.error_reason.unwrap_or_default();
                why = format!("the platform failed to delete it: {reason}");
            }
            Ok(seen) if asked => why = format!("it is {:?}", seen.state).to_lowercase(),
            Ok(_) => {}
            Err(error) => why = error.to_string(),
        }
        if Instant::now() + pause >= deadline || call.cancel.is_cancelled() {
            return Ok(unconfirmed(why));
        }
        sleep(pause).await;
        pause = (pause * 3 / 2).min(LAST);
    }
}

/// The end of the call before an answer: the sandbox may go all the same.
fn asked_in_vain(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::DeadlineExceeded | ErrorKind::Cancelled)
}

fn confirmed(client: &Client, id: &str) -> Destruction {
    client.journal().remove(id);
    Destruction::Confirmed
}

fn unconfirmed(why: String) -> Destruction {
    Destruction::Unconfirmed { why }
}
