//! Names and labels of what we create, by which it is found again.
//!
//! A sandbox has the tag as its name and in a label. A snapshot has no labels: its name holds tag and fingerprint.
//! Label names have no dots, because the platform's search takes those for paths.

use std::collections::BTreeMap;

use sandbox_bench_core::{Digest, SandboxSpec, Tag};

/// On every sandbox of ours.
pub(crate) const OURS: (&str, &str) = ("sandbox-bench", "1");
/// The correlation tag.
pub(crate) const TAG: &str = "sandbox-bench-tag";
/// Environment variables of the sandbox's commands, as JSON. They are given to each command and not to the sandbox,
/// because a snapshot might keep the sandbox's own.
const VARIABLES: &str = "sandbox-bench-env";
/// Working directory of commands that name none.
const WORKDIR: &str = "sandbox-bench-workdir";

/// The labels of a new sandbox.
pub(crate) fn of(spec: &SandboxSpec) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([(OURS.0.to_owned(), OURS.1.to_owned()), (TAG.to_owned(), spec.tag.to_string())]);
    if !spec.env.is_empty()
        && let Ok(text) = serde_json::to_string(&spec.env)
    {
        labels.insert(VARIABLES.to_owned(), text);
    }
    if let Some(workdir) = &spec.workdir {
        labels.insert(WORKDIR.to_owned(), workdir.clone());
    }
    labels
}

/// The tag of a sandbox with these labels, if it is ours.
pub(crate) fn tag(labels: &BTreeMap<String, String>) -> Option<Tag> {
    labels.get(TAG).and_then(|text| Tag::parse(text))
}

/// Environment variables of the commands of a sandbox with these labels.
pub(crate) fn variables(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels.get(VARIABLES).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Working directory of the commands of a sandbox with these labels.
pub(crate) fn workdir(labels: &BTreeMap<String, String>) -> Option<String> {
    labels.get(WORKDIR).cloned()
}

/// The name of a snapshot: `TAG.FINGERPRINT`, the latter in 64 hexadecimal digits.
pub(crate) fn artifact_name(tag: &Tag, fingerprint: &Digest) -> String {
    format!("{tag}.{}", fingerprint.hex())
}

/// What the name of a snapshot says, if it is one of ours.
pub(crate) fn parse_artifact_name(name: &str) -> Option<(Tag, Digest)> {
    let (tag, hex) = name.split_once('.')?;
    Some((Tag::parse(tag)?, format!("sha256:{hex}").parse().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use sandbox_bench_core::Source;

    use super::*;

    #[test]
    fn what_is_put_on_a_sandbox_is_read_back() {
        let tag = Tag::new("run", "unit");
        let mut spec = SandboxSpec::new(tag.clone(), Source::Base);
        assert_eq!(of(&spec).len(), 2);
        spec.env.insert("A".into(), "x\n\"y\"".into());
        spec.workdir = Some("/work dir".into());
        let labels = of(&spec);
        assert_eq!(super::tag(&labels), Some(tag));
        assert_eq!((variables(&labels), workdir(&labels)), (spec.env, spec.workdir));
        assert!(labels.keys().all(|name| !name.contains('.')));
        assert_eq!(super::tag(&BTreeMap::new()), None);
    }

    proptest! {
        #[test]
        fn the_name_of_an_artifact_holds_all_that_is_known_of_it(run in ".{1,60}", unit in ".{1,60}", content in any::<[u8; 8]>()) {
            let (tag, fingerprint) = (Tag::new(&run, &unit), Digest::of(&content));
            let name = artifact_name(&tag, &fingerprint);
            prop_assert!(name.len() <= 128);
            prop_assert_eq!(parse_artifact_name(&name), Some((tag, fingerprint)));
        }

        #[test]
        fn names_of_others_are_not_ours(name in "[a-z.:/-]{0,90}") {
            prop_assert_eq!(parse_artifact_name(&name), None);
        }
    }
}
