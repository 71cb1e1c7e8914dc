//! The end of a sandbox: asked for, then seen.

use std::time::Duration;

use reqwest::Method;
use sandbox_bench_core::{Call, Destruction, Error, Result, Tag};
use sandbox_bench_kit::http::{Effect, ask};

use crate::client::Api;
use crate::{error, labels};

/// Pause between two looks at a sandbox that goes.
const POLL: Duration = Duration::from_millis(50);

/// Ends the sandbox of this tag and waits until the service says that it is gone. One in a transition is asked to go
/// again.
pub(crate) async fn destroy(api: &Api, call: &Call, tag: &Tag) -> Result<Destruction> {
    let (name, what) = (tag.as_str(), format!("sandbox {tag}: delete"));
    let Some(found) = api.sandbox(call, name).await? else { return Ok(Destruction::Confirmed) };
    if !labels::carry(&found.labels, tag) {
        return Err(Error::invalid(format!("sandbox {name} does not carry our tag; it is not deleted")));
    }
    let gone = async {
        let mut asked = false;
        while api.sandbox(call, name).await?.is_some() {
            if !asked {
                match ask(call, &what, Effect::Idempotent, api.of(Method::DELETE, name, &[])).await? {
                    Ok(_) => asked = true,
                    Err(refusal) if matches!(refusal.status, 404 | 409) => {}
                    Err(refusal) => return Err(error::refused(&what, Effect::Idempotent, &refusal)),
                }
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    };
    // Half of the time is enough for a service that deletes; the rest is for saying that this one did not.
    match tokio::time::timeout(call.remaining() / 2, gone).await {
        Ok(gone) => gone.map(|()| Destruction::Confirmed),
        Err(_) => Ok(Destruction::Unconfirmed { why: "the service still shows it".to_owned() }),
    }
}
