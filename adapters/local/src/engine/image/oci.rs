//! The JSON documents of OCI layouts and of `docker save` archives, as far as they are needed.
//!
//! Sources: OCI image specification 1.1 (image-layout, index, manifest, config); Docker image specification v1.2 for
//! `manifest.json`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ImageConfig;

#[derive(Debug, Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    pub(super) manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) platform: Option<Platform>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Platform {
    pub(super) architecture: String,
    pub(super) os: String,
}

impl Descriptor {
    /// Builders store provenance beside images, as manifests that are not images.
    fn is_attestation(&self) -> bool {
        self.annotations.contains_key("vnd.docker.reference.type")
    }

    fn suits(&self, architecture: &str) -> bool {
        self.platform.as_ref().is_none_or(|p| p.os == "linux" && p.architecture == architecture)
    }

    pub(super) fn is_index(&self) -> bool {
        self.media_type.ends_with("image.index.v1+json") || self.media_type.ends_with("manifest.list.v2+json")
    }

    /// The lower-case hex of a SHA-256 digest, or `None` for anything else.
    pub(super) fn sha256(&self) -> Option<&str> {
        sha256(&self.digest)
    }
}

pub(super) fn sha256(digest: &str) -> Option<&str> {
    let hex = digest.strip_prefix("sha256:")?;
    let well_formed = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    well_formed.then_some(hex)
}

impl Index {
    /// The image (or nested index) for this architecture.
    pub(super) fn choose(&self, architecture: &str) -> Option<&Descriptor> {
        self.manifests.iter().find(|manifest| !manifest.is_attestation() && manifest.suits(architecture))
    }
}

/// The architecture of this machine in the words of Go, which images use.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    pub(super) config: Descriptor,
    #[serde(default)]
    pub(super) layers: Vec<Descriptor>,
}

/// One image of a `docker save` archive.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Saved {
    pub(super) config: String,
    #[serde(default)]
    pub(super) layers: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    config: Settings,
    #[serde(default)]
    pub(super) rootfs: RootFs,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct RootFs {
    #[serde(default)]
    pub(super) diff_ids: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Settings {
    env: Option<Vec<String>>,
    working_dir: String,
    user: String,
}

impl Config {
    pub(super) fn settings(&self) -> ImageConfig {
        let variable = |entry: &String| entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let text = |value: &String| Some(value.clone()).filter(|value| !value.is_empty());
        ImageConfig {
            env: self.config.env.iter().flatten().filter_map(variable).collect(),
            workdir: text(&self.config.working_dir),
            user: text(&self.config.user),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_image_of_our_architecture_is_chosen_and_provenance_is_not() {
        let index: Index = serde_json::from_str(
            r#"{"manifests":[
                {"digest":"sha256:a","platform":{"architecture":"unknown","os":"unknown"},
                 "annotations":{"vnd.docker.reference.type":"attestation-manifest"}},
                {"digest":"sha256:b","platform":{"architecture":"arm64","os":"linux"}},
                {"digest":"sha256:c","platform":{"architecture":"amd64","os":"linux"}}]}"#,
        )
        .unwrap();
        assert_eq!(index.choose("amd64").unwrap().digest, "sha256:c");
        assert!(index.choose("riscv64").is_none());
    }

    #[test]
    fn digests_that_could_be_paths_are_refused() {
        assert!(sha256("sha256:../../etc/passwd").is_none());
        assert!(sha256(&format!("sha256:{}", "A".repeat(64))).is_none());
        assert!(sha256(&format!("sha256:{}", "a".repeat(64))).is_some());
    }

    #[test]
    fn settings_survive_null_and_absent_fields() {
        let config: Config = serde_json::from_str(r#"{"config":{"Env":null,"User":"agent"}}"#).unwrap();
        assert_eq!(config.settings().user.as_deref(), Some("agent"));
        let config: Config = serde_json::from_str(r#"{"config":{"Env":["A=b=c","X"],"WorkingDir":"/w"}}"#).unwrap();
        let settings = config.settings();
        assert_eq!(settings.env, BTreeMap::from([("A".into(), "b=c".into())]));
        assert_eq!(settings.workdir.as_deref(), Some("/w"));
    }
}
