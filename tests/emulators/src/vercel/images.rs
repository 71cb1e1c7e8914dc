//! Image references, and the registry's word on what was pushed.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Vercel;
use super::error::{ApiError, Result};
use super::options::{ImageState, VercelOptions};
use super::routes::{Answer, Ask};

/// Where sandboxes start that name no image.
pub(super) const DEFAULT_IMAGE: &str = "vercel/sandbox/universal:latest";
/// Legacy runtimes.
pub(super) const RUNTIMES: [&str; 4] = ["node22", "node24", "node26", "python3.13"];
const MANAGED: &str = "vercel/sandbox/";
const MANAGED_IMAGES: [(&str, &[&str]); 5] = [
    ("universal", &["latest"]),
    ("node", &["latest", "22", "24", "26"]),
    ("python", &["latest", "3.14"]),
    ("ubuntu", &["latest"]),
    ("arch", &["latest"]),
];

/// Whether the vendor made it: only these have the documented user and directory.
pub(super) fn is_managed(reference: &str) -> bool {
    reference.starts_with(MANAGED)
}

impl VercelOptions {
    /// The full name of an image that sandboxes can start from: `repository:tag`, or a managed one.
    ///
    /// # Errors
    /// `not_found` for what was not pushed or belongs to others, `image_not_ready` for what is not prepared.
    pub(super) fn image(&self, reference: &str) -> Result<String> {
        let reference = reference.strip_prefix("vcr.vercel.com/").unwrap_or(reference);
        let own = format!("{}/{}/", self.team_slug, self.project_name);
        let local = reference.strip_prefix(&own).unwrap_or(reference);
        let name =
            if local.contains(':') || local.contains('@') { local.to_owned() } else { format!("{local}:latest") };
        if let Some(managed) = name.strip_prefix(MANAGED) {
            let known = managed.split_once(':').is_some_and(|(image, tag)| {
                MANAGED_IMAGES.iter().any(|(known, tags)| *known == image && tags.contains(&tag))
            });
            return if known { Ok(name) } else { Err(ApiError::not_found(format!("Image `{reference}`"))) };
        }
        let by_digest = self.images.keys().find(|known| pinned(known) == name);
        let name = by_digest.cloned().unwrap_or(name);
        match self.images.get(&name) {
            Some(ImageState::Ready) => Ok(name),
            Some(ImageState::Preparing) => Err(not_ready(&name)),
            Some(ImageState::Unoptimized) => {
                Err(ApiError::bad_request(format!("Image `{name}` is not a linux/amd64 image.")))
            }
            None => Err(ApiError::not_found(format!("Image `{reference}`"))),
        }
    }
}

/// The status is not documented; clients must go by the code.
pub(super) fn not_ready(name: &str) -> ApiError {
    let message = format!("Image `{name}` is still being prepared.");
    ApiError::new(StatusCode::CONFLICT, "image_not_ready", message)
}

impl Vercel {
    pub(super) fn image_route(&self, method: &Method, repository: &str, rest: &[&str], ask: &Ask) -> Result<Answer> {
        ask.query.only(&["projectId", "limit", "cursor", "untagged"])?;
        self.options.check_project(ask.caller, ask.query.get("projectId"))?;
        let tags = self.options.images.iter().filter_map(|(name, state)| {
            let (owner, tag) = name.split_once(':')?;
            (owner == repository).then_some((name, tag, *state))
        });
        match (method.as_str(), rest) {
            ("GET", []) => Answer::ok(json!({ "images": tags.map(image_view).collect::<Vec<_>>() })),
            ("GET", [wanted]) => {
                let found =
                    tags.map(image_view).find(|image| image["id"] == *wanted || image["manifestDigest"] == *wanted);
                let image = found.ok_or_else(|| ApiError::not_found("Image"))?;
                Answer::ok(json!({ "image": image }))
            }
            _ => Err(ApiError { violation: true, ..ApiError::not_found("The requested route") }),
        }
    }
}

fn image_view((name, tag, state): (&String, &str, ImageState)) -> Value {
    json!({
        "id": name,
        "manifestDigest": digest(name),
        "status": state.word(),
        "tags": [tag],
        "sizeInBytes": 0,
    })
}

/// As sandboxes show it: by digest in place of the tag.
pub(super) fn pinned(name: &str) -> String {
    let repository = name.rsplit_once(':').map_or(name, |(repository, _)| repository);
    format!("{repository}@{}", digest(name))
}

/// What the name is made into: an image has no manifest here.
fn digest(name: &str) -> String {
    let digest: String = Sha256::digest(name.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digest}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_managed_and_pushed_images_exist() {
        let images =
            [("task:1", ImageState::Ready), ("task:2", ImageState::Preparing), ("arm:1", ImageState::Unoptimized)];
        let options = VercelOptions {
            images: images.into_iter().map(|(name, state)| (name.to_owned(), state)).collect(),
            ..VercelOptions::default()
        };
        for known in ["task:1", "vcr.vercel.com/emulator/bench/task:1", "emulator/bench/task:1"] {
            assert_eq!(options.image(known).unwrap(), "task:1");
        }
        assert_eq!(options.image(&pinned("task:1")).unwrap(), "task:1");
        assert_eq!(options.image("vercel/sandbox/universal").unwrap(), DEFAULT_IMAGE);
        assert_eq!(options.image("vercel/sandbox/python:3.14").unwrap(), "vercel/sandbox/python:3.14");
        let code = |reference: &str| options.image(reference).unwrap_err().code;
        assert_eq!(code("task:2"), "image_not_ready");
        assert_eq!(code("arm:1"), "bad_request");
        for unknown in ["task", "python:3.11-slim", "docker.io/library/python:3.11", "vercel/sandbox/python:2.7"] {
            assert_eq!(code(unknown), "not_found");
        }
    }
}
