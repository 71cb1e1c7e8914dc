//! What is written on what we create, so that it is found again, by any process.
//!
//! REPLACE where the service has no labels, or takes few: the traps are in `docs/adding-an-adapter.md`.

use std::collections::BTreeMap;

use sandbox_bench_core::{Digest, SandboxSpec, Tag};

/// The correlation tag of a sandbox.
const TAG: &str = "sandbox-bench-tag";
/// Variables of its commands, as JSON. They are given to each command and not to the sandbox: a snapshot might keep
/// those.
const VARIABLES: &str = "sandbox-bench-env";
/// Working directory of commands that name none.
const WORKDIR: &str = "sandbox-bench-workdir";

/// What its labels say about a sandbox of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Labels {
    /// Its correlation tag.
    pub(crate) tag: Tag,
    /// Variables of its commands.
    pub(crate) variables: BTreeMap<String, String>,
    /// Working directory of commands that name none.
    pub(crate) workdir: Option<String>,
}

impl Labels {
    /// Those of a new sandbox.
    pub(crate) fn of(spec: &SandboxSpec) -> Self {
        Self { tag: spec.tag.clone(), variables: spec.env.clone(), workdir: spec.workdir.clone() }
    }

    /// Reads them; none if the sandbox is not ours.
    pub(crate) fn read(labels: &BTreeMap<String, String>) -> Option<Self> {
        Some(Self {
            tag: Tag::parse(labels.get(TAG)?)?,
            variables: labels.get(VARIABLES).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
            workdir: labels.get(WORKDIR).cloned(),
        })
    }

    /// The labels to send.
    pub(crate) fn write(&self) -> BTreeMap<String, String> {
        let variables = serde_json::json!(self.variables).to_string();
        let mut labels = BTreeMap::from([(TAG.to_owned(), self.tag.to_string()), (VARIABLES.to_owned(), variables)]);
        labels.extend(self.workdir.clone().map(|workdir| (WORKDIR.to_owned(), workdir)));
        labels
    }
}

/// True if a sandbox with these labels is the one of this tag.
pub(crate) fn carry(labels: &BTreeMap<String, String>, tag: &Tag) -> bool {
    labels.get(TAG).is_some_and(|text| text == tag.as_str())
}

/// The name of a snapshot, which has no labels: `TAG.FINGERPRINT`, the latter in 64 hexadecimal digits.
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
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn labels_come_back(run in ".{1,40}", value in ".{0,40}", workdir in prop::option::of("/.{0,40}")) {
            let variables = [("A".to_owned(), value)].into();
            let labels = Labels { tag: Tag::new(&run, "unit"), variables, workdir };
            prop_assert_eq!(Labels::read(&labels.write()), Some(labels));
        }

        #[test]
        fn the_name_of_an_artifact_holds_all_that_is_known_of_it(run in ".{1,40}", content in any::<[u8; 8]>()) {
            let (tag, fingerprint) = (Tag::new(&run, "unit"), Digest::of(&content));
            prop_assert_eq!(parse_artifact_name(&artifact_name(&tag, &fingerprint)), Some((tag, fingerprint)));
        }

        #[test]
        fn what_is_not_ours_is_not_taken_for_it(name in "[a-z.:/-]{0,90}") {
            prop_assert_eq!(parse_artifact_name(&name), None);
            prop_assert_eq!(Labels::read(&[(TAG.to_owned(), name)].into()), None);
        }
    }
}
