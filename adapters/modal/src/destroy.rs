//! The end of a sandbox: asked for, then seen.

use std::time::Duration;

use sandbox_bench_core::{Call, Destruction, Error, ErrorKind, Result, Tag};
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::{labels, observe};

/// Pause before the service is asked again after a fault.
const PAUSE: Duration = Duration::from_millis(500);
/// How long one question for the end waits for it, in seconds, at most.
const WAIT: f32 = 10.0;
/// What is left of the call's time to say that it is not known to be gone.
const MARGIN: Duration = Duration::from_millis(300);
/// Limit for writing on it that it is destroyed.
const MARK_LIMIT: Duration = Duration::from_secs(5);
/// Limit for asking what it cost.
const COST_LIMIT: Duration = Duration::from_secs(3);

/// Ends the sandbox `id`, if it is the one with this tag.
pub(crate) async fn destroy(client: &Client, call: &Call, (id, tag): (&str, &Tag)) -> Result<Destruction> {
    match client.tags(call, id).await {
        Ok(tags) if labels::read(&tags).as_ref() == Some(tag) => remove(client, call, (id, tag)).await,
        Ok(_) => Err(Error::invalid(format!("sandbox {id} is not the one tagged {tag}; it is not ended"))),
        Err(error) if *error.kind() == ErrorKind::NotFound => Ok(confirmed(client, id, true)),
        Err(error) => Err(error),
    }
}

/// Ends a sandbox of ours with all that runs in it, and waits until the service says that it has ended. That can be asked for
/// as often as it takes.
pub(crate) async fn remove(client: &Client, call: &Call, (id, tag): (&str, &Tag)) -> Result<Destruction> {
    let deadline = call.deadline - MARGIN.min(call.remaining());
    let call = &call.within(call.remaining().saturating_sub(MARGIN));
    let mut why = "it was not answered in time".to_owned();
    let mut marked = false;
    loop {
        let left = call.remaining().as_secs_f32() / 2.0;
        let ended = async {
            client.terminate(call, id).await?;
            client.end(call, id, left.clamp(0.0, WAIT)).await
        };
        let (mark, ended) = tokio::join!(mark(client, call, (id, tag), marked), ended);
        marked = mark;
        match ended {
            Ok(Some(_)) => {
                tell_cost(client, call, id).await;
                return Ok(confirmed(client, id, marked));
            }
            Ok(None) => why = "it was ended, but the service still says that it runs".to_owned(),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => return Ok(confirmed(client, id, true)),
                ErrorKind::DeadlineExceeded | ErrorKind::Cancelled => return Ok(unconfirmed(why)),
                ErrorKind::Unavailable => {
                    why = error.to_string();
                    call.meter.retried();
                }
                _ => return Err(error),
            },
        }
        if Instant::now() + PAUSE >= deadline || call.cancel.is_cancelled() {
            return Ok(unconfirmed(why));
        }
        sleep(PAUSE).await;
    }
}

/// Writes on a sandbox that it is destroyed, unless that is `done`: what has ended is listed for long. Running or not, it is
/// found until it has ended. Tells if it is written.
async fn mark(client: &Client, call: &Call, (id, tag): (&str, &Tag), done: bool) -> bool {
    if done {
        return true;
    }
    let written = client.set_tags(&call.within(MARK_LIMIT), id, labels::destroyed(tag)).await;
    if let Err(error) = &written {
        tracing::debug!(sandbox = id, %error, "it cannot be written on a sandbox that it is destroyed");
    }
    written.is_ok()
}

/// Notes what the service tells of the cost by now. Most often that is nothing yet.
async fn tell_cost(client: &Client, call: &Call, id: &str) {
    match client.stats(&call.within(COST_LIMIT), id).await {
        Ok(stats) => {
            for (name, value) in observe::cost(&stats) {
                call.meter.cost_fact(&name, value);
            }
        }
        Err(error) => tracing::debug!(sandbox = id, %error, "the service does not tell what a sandbox cost"),
    }
}

fn confirmed(client: &Client, id: &str, marked: bool) -> Destruction {
    client.made().remove(id);
    if !marked {
        client.unmarked().insert(id.to_owned());
    }
    Destruction::Confirmed
}

fn unconfirmed(why: String) -> Destruction {
    Destruction::Unconfirmed { why }
}
