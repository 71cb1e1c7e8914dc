//! Everything the account holds.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::error::{ApiError, Result};
use super::image::Image;
use super::microvm::{Microvm, State};
use super::signature::digest;
use super::tokens::Grants;

/// Client tokens that are remembered; the oldest go first.
const REPLAYS: usize = 10_000;
/// How long what has ended can be read: longer than the 20 minutes that were seen.
const KEPT: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub(super) struct World {
    /// Counts what was ever made.
    made: u64,
    /// By name.
    pub(super) images: BTreeMap<String, Image>,
    /// By number, which is the order in which they were made.
    microvms: BTreeMap<u64, Arc<Microvm>>,
    pub(super) grants: Grants,
    pub(super) replays: Replays,
}

impl World {
    /// A place in lists.
    pub(super) fn next_number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    pub(super) fn image(&self, name: &str, identifier: &str) -> Result<&Image> {
        self.images.get(name).ok_or_else(|| no_image(identifier))
    }

    pub(super) fn image_mut(&mut self, name: &str, identifier: &str) -> Result<&mut Image> {
        self.images.get_mut(name).ok_or_else(|| no_image(identifier))
    }

    pub(super) fn add_microvm(&mut self, microvm: Arc<Microvm>) {
        self.microvms.retain(|_, old| old.ended_for().is_none_or(|since| since < KEPT));
        self.microvms.insert(microvm.number, microvm);
    }

    pub(super) fn microvm(&self, id: &str) -> Result<Arc<Microvm>> {
        let found = self.microvms.values().find(|microvm| microvm.id == id).cloned();
        found.ok_or_else(|| ApiError::not_found(format!("MicroVM not found: {id}")))
    }

    pub(super) fn microvm_at(&self, host: &str) -> Option<Arc<Microvm>> {
        self.microvms.values().find(|microvm| microvm.endpoint == host).cloned()
    }

    /// In the order in which they were made.
    pub(super) fn microvms(&self) -> impl Iterator<Item = &Arc<Microvm>> {
        self.microvms.values()
    }

    /// MiB that count against the account: of MicroVMs that are not gone, and of builds.
    pub(super) fn memory(&self) -> u64 {
        let microvms = self.microvms.values().filter(|microvm| microvm.state() != State::Terminated);
        let versions = self.images.values().flat_map(|image| image.versions.values());
        let builds = versions.filter(|version| version.state.going_on()).map(|version| version.plan.size.mib);
        microvms.map(|microvm| microvm.plan.size.mib).chain(builds).sum()
    }

    /// Builds that go on.
    pub(super) fn builds(&self) -> usize {
        let versions = self.images.values().flat_map(|image| image.versions.values());
        versions.filter(|version| version.state.going_on()).count()
    }

    /// Whether an image has MicroVMs that are not gone.
    pub(super) fn in_use(&self, arn: &str, version: Option<&str>) -> bool {
        self.microvms.values().any(|microvm| {
            let of_version = version.is_none_or(|version| microvm.plan.image_version == version);
            microvm.plan.image_arn == arn && of_version && microvm.state() != State::Terminated
        })
    }
}

fn no_image(identifier: &str) -> ApiError {
    ApiError::not_found(format!("MicroVMImage not found for MicroVMImageID: {identifier}"))
}

/// What requests with a client token made.
#[derive(Default)]
pub(super) struct Replays {
    made: HashMap<(&'static str, String), Made>,
    order: VecDeque<(&'static str, String)>,
}

#[derive(Clone)]
struct Made {
    /// Digest of the request without its token.
    request: String,
    what: String,
}

impl Replays {
    /// What a request with this token made before, if there was one.
    ///
    /// # Errors
    /// There was one, and it asked for something else.
    pub(super) fn find(&self, operation: &'static str, body: &Value) -> Result<Option<String>> {
        let Some((token, request)) = split(body) else { return Ok(None) };
        match self.made.get(&(operation, token)) {
            Some(made) if made.request == request => Ok(Some(made.what.clone())),
            Some(_) => {
                Err(ApiError::conflict("The clientToken was already used for a request with different parameters."))
            }
            None => Ok(None),
        }
    }

    pub(super) fn note(&mut self, operation: &'static str, body: &Value, what: &str) {
        let Some((token, request)) = split(body) else { return };
        if self.order.len() == REPLAYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.made.remove(&oldest);
        }
        self.order.push_back((operation, token.clone()));
        self.made.insert((operation, token), Made { request, what: what.to_owned() });
    }
}

/// The token of a request, and the digest of the rest, which is in the order of names.
fn split(body: &Value) -> Option<(String, String)> {
    let mut request = body.clone();
    let token = request.as_object_mut()?.remove("clientToken")?;
    Some((token.as_str()?.to_owned(), digest(request.to_string().as_bytes())))
}
