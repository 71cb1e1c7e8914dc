//! Names and labels of what we create, by which it is found again.
//!
//! Containers and images have different labels, because a container inherits the labels of its image: a container that
//! somebody else starts from an image of ours must not look like a sandbox of ours.

use std::collections::HashMap;

use sandbox_bench_core::{Digest, Tag, TagQuery};

/// Correlation tag of a sandbox.
pub(crate) const SANDBOX: &str = "dev.sandbox-bench.tag";
/// Environment variables of a sandbox's commands, as JSON. They are given to each command and not to the container,
/// because a commit would put the container's variables into the artifact for good.
pub(crate) const VARIABLES: &str = "dev.sandbox-bench.env";
/// Correlation tag of a warm artifact.
pub(crate) const ARTIFACT: &str = "dev.sandbox-bench.artifact";
/// Fingerprint of the environment that an image holds.
pub(crate) const FINGERPRINT: &str = "dev.sandbox-bench.fingerprint";

/// Repository of images built from a task's Dockerfile.
const ENVIRONMENTS: &str = "sandbox-bench/env";
/// Repository of warm artifacts.
pub(crate) const ARTIFACTS: &str = "sandbox-bench/artifact";

/// True for a name that we give to images.
pub(crate) fn names_ours(name: &str) -> bool {
    let repository = name.rsplit_once(':').map_or(name, |(repository, _)| repository);
    [ENVIRONMENTS, ARTIFACTS].contains(&repository)
}

/// The image of the environment with this fingerprint, for one platform.
pub(crate) fn environment_image(fingerprint: &Digest, platform: Option<&str>) -> String {
    let platform = platform.map(|name| format!("-{}", name.replace(['/', ':'], "-"))).unwrap_or_default();
    format!("{ENVIRONMENTS}:{}{platform}", fingerprint.short(24))
}

/// Labels of a warm artifact. The sandbox's own are blanked, since a commit copies the container's labels.
pub(crate) fn artifact(tag: &Tag, fingerprint: &Digest) -> HashMap<String, String> {
    HashMap::from([
        (SANDBOX.to_owned(), String::new()),
        (VARIABLES.to_owned(), String::new()),
        (ARTIFACT.to_owned(), tag.to_string()),
        (FINGERPRINT.to_owned(), fingerprint.to_string()),
    ])
}

/// The engine's list filter for objects whose label `key` may match; the caller still applies [`TagQuery::matches`].
pub(crate) fn filter(key: &str, query: &TagQuery) -> HashMap<String, Vec<String>> {
    let label = match query {
        TagQuery::Exact(tag) => format!("{key}={tag}"),
        TagQuery::Run(_) | TagQuery::All => key.to_owned(),
    };
    HashMap::from([("label".to_owned(), vec![label])])
}
