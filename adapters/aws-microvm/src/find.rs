//! Finding what is ours at the service, which has no labels for MicroVMs.
//!
//! A MicroVM of ours was started from an image of ours, whose name tells that. Which tag it has says its runner, which was told
//! when it started. What this process has created it remembers, also when its runner does not answer any more; and a request
//! whose answer was lost is sent again with its token, by which the service tells what came of it.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_lambdamicrovms::types::{MicrovmItem, MicrovmState};
use futures_util::{StreamExt, stream};
use sandbox_bench_core::{Call, Error, ErrorKind, Found, Result, SandboxRef, Tag, TagQuery};
use sandbox_bench_kit::http::Effect;
use secrecy::SecretString;
use tokio::time::Instant;

use crate::backend::{State, reference};
use crate::cloud::{ask, over, timestamp};
use crate::image::{Image, PAGE, PAGES, PREFIX};
use crate::size::Size;
use crate::vm::Vm;
use crate::{create, observe};

/// How many MicroVMs are asked for their tag at one time, and how long one is asked: it may be about to start.
const ASKED: usize = 8;
const ASK_LIMIT: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(250);

/// True if an image was named by us.
pub(crate) fn of_ours(arn: &str) -> bool {
    arn.rsplit(':').next().is_some_and(|name| name.starts_with(PREFIX))
}

/// Every sandbox whose tag matches.
pub(crate) async fn find(state: &State, call: &Call, query: &TagQuery) -> Result<Vec<Found>> {
    for run in state.pending(|tag| query.matches(tag.as_str())) {
        create::resolve(state, call, &run).await?;
        state.settled(&run);
    }
    let listed = list(state, call).await?;
    let known = state.all_known();
    let mut found = Vec::new();
    for vm in known.iter().filter(|vm| query.matches(vm.tag.as_str())) {
        // Lists lag behind; and what has ended is found until it is destroyed.
        let (at, created) = match state.cloud.microvm(call, &vm.id).await {
            Ok(seen) => (observe::state(&seen.state), timestamp(&seen.started_at)),
            Err(error) if *error.kind() == ErrorKind::NotFound => (sandbox_bench_core::SandboxState::Stopped, None),
            Err(error) => return Err(error),
        };
        found.push(Found { reference: reference(&vm.id, &vm.tag), state: at, created_at: created });
    }
    let others = listed.into_iter().filter(|item| {
        of_ours(&item.image_arn) && !over(&item.state) && known.iter().all(|vm| vm.id != item.microvm_id)
    });
    let asked = stream::iter(others).map(|item| async {
        let tag = tag_of(state, call, &item).await;
        (item, tag)
    });
    let mut asked = std::pin::pin!(asked.buffer_unordered(ASKED));
    while let Some((item, tag)) = asked.next().await {
        match tag {
            Some(tag) if query.matches(tag.as_str()) => found.push(Found {
                reference: SandboxRef { ..reference(&item.microvm_id, &tag) },
                state: observe::state(&item.state),
                created_at: timestamp(&item.started_at),
            }),
            Some(_) => {}
            None => tracing::warn!(
                id = item.microvm_id,
                "a MicroVM of an image of ours does not say whose it is; without traffic it ends by itself"
            ),
        }
    }
    Ok(found)
}

async fn list(state: &State, call: &Call) -> Result<Vec<MicrovmItem>> {
    let (mut all, mut token) = (Vec::new(), None);
    for _ in 0..PAGES {
        let request = state.cloud.lambda.list_microvms().max_results(PAGE).set_next_token(token);
        let page = ask(call, "MicroVMs", Effect::Idempotent, request.send()).await?;
        all.extend(page.items);
        token = page.next_token.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(all);
        }
    }
    Err(Error::new(ErrorKind::Failed, "MicroVMs: the list does not end"))
}

/// The tag that a MicroVM's runner was told; none if it does not say.
async fn tag_of(state: &State, call: &Call, item: &MicrovmItem) -> Option<Tag> {
    let call = &call.within(ASK_LIMIT);
    let seen = state.cloud.microvm(call, &item.microvm_id).await.ok()?;
    let image = Image { arn: seen.image_arn, version: seen.image_version, size: Size::named(2048)? };
    // Its token is not ours to know, nor needed: health is told to everybody.
    let about = (item.microvm_id.clone(), Tag::new("unknown", "unknown"), seen.endpoint.as_str());
    let shared = (state.cloud.clone(), state.images.clone());
    let vm = Arc::new(Vm::new(shared, about, image, SecretString::from(String::new())).ok()?);
    while Instant::now() < call.deadline {
        match vm.health(call).await {
            Ok(health) if health.tag.is_some() => return Tag::parse(&health.tag?),
            // Suspended ones are not woken: that would be billed.
            _ if item.state == MicrovmState::Suspended => return None,
            // It may not have been told yet.
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
    None
}
