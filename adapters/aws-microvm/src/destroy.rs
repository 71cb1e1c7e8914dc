//! The end of a sandbox.

use std::time::Duration;

use aws_sdk_lambdamicrovms::operation::get_microvm::GetMicrovmOutput;
use aws_sdk_lambdamicrovms::types::MicrovmState;
use sandbox_bench_core::{Call, Destruction, Error, ErrorKind, Result};
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::bounded;

use crate::backend::State;
use crate::cloud::ask;
use crate::{find, observe};

/// Pauses between two looks at a MicroVM that ends.
const PAUSES: [Duration; 2] = [Duration::from_millis(150), Duration::from_secs(1)];

/// Ends a MicroVM and waits until the service says that it is gone. One that was not started from an image of ours is not
/// touched.
pub(crate) async fn destroy(state: &State, call: &Call, id: &str) -> Result<Destruction> {
    if !is_id(id) {
        return Err(Error::invalid(format!("{id:?} cannot be the id of a MicroVM")));
    }
    let seen = match state.cloud.microvm(call, id).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(gone(state, call, id, None)),
        seen => seen?,
    };
    let known = state.known(id).is_some();
    if !known && !find::of_ours(&seen.image_arn) {
        return Err(Error::invalid(format!("MicroVM {id} was not started by sandbox-bench; it is not ended")));
    }
    if seen.state == MicrovmState::Terminated {
        return Ok(gone(state, call, id, Some(&seen)));
    }
    if let Some(vm) = state.known(id) {
        vm.end("it was destroyed");
    }
    let what = format!("MicroVM {id}: end");
    let request = state.cloud.lambda.terminate_microvm().microvm_identifier(id);
    match ask(call, &what, Effect::Idempotent, request.send()).await {
        Ok(_) => {}
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(gone(state, call, id, Some(&seen))),
        Err(error) => return Err(error),
    }
    // Half of the time is enough for a service that ends it; the rest is for saying that this one did not.
    match tokio::time::timeout(call.remaining() / 2, ended(state, call, id)).await {
        Ok(Ok(seen)) => Ok(gone(state, call, id, seen.as_ref())),
        Ok(Err(error)) => Err(error),
        Err(_) => {
            Ok(Destruction::Unconfirmed { why: "it was to end, but the service says that it has not".to_owned() })
        }
    }
}

/// Waits for its end; returns what the service says of it then, if it still knows it.
async fn ended(state: &State, call: &Call, id: &str) -> Result<Option<GetMicrovmOutput>> {
    let mut pause = PAUSES[0];
    loop {
        match state.cloud.microvm(call, id).await {
            Ok(seen) if seen.state == MicrovmState::Terminated => return Ok(Some(seen)),
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::RateLimited { .. }) => {
                return Err(error);
            }
            _ => {}
        }
        bounded(call, &format!("MicroVM {id}: end"), tokio::time::sleep(pause)).await?;
        pause = (pause * 3 / 2).min(PAUSES[1]);
    }
}

fn gone(state: &State, call: &Call, id: &str, seen: Option<&GetMicrovmOutput>) -> Destruction {
    let vm = state.forget(id);
    if let Some(vm) = &vm {
        vm.end("it was destroyed");
    }
    if let Some(seen) = seen {
        let suspended = vm.map(|vm| vm.rest().so_far()).unwrap_or_default();
        for (fact, value) in observe::running(seen, suspended) {
            call.meter.cost_fact(&fact, value);
        }
    }
    Destruction::Confirmed
}

/// True if the service could have given out this id.
pub(crate) fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= 256 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}
