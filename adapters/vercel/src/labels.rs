//! What is written on a sandbox at the service, in its tags, of which it takes five.
//!
//! Snapshots take none. So the sandbox that a snapshot was made of stays behind, stopped, as the snapshot's record: it says
//! under which tag and from which environment it was made, and where it is.

use std::collections::BTreeMap;

use sandbox_bench_core::{Digest, Tag};

/// The correlation tag of a sandbox that was not destroyed.
const SANDBOX: &str = "sandbox-bench";
/// Working directory of commands that name none.
const WORKDIR: &str = "sandbox-bench-workdir";
/// The correlation tag of the artifact that was, or is about to be, made of it.
pub(crate) const ARTIFACT: &str = "sandbox-bench-artifact";
/// Fingerprint of the artifact's environment, in hex.
const FINGERPRINT: &str = "sandbox-bench-fingerprint";
/// Id of the artifact's snapshot.
pub(crate) const SNAPSHOT: &str = "sandbox-bench-snapshot";

/// The tags of one sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    /// Its correlation tag; none once it was destroyed and is a record alone.
    pub(crate) sandbox: Option<Tag>,
    /// Working directory of commands that name none.
    pub(crate) workdir: Option<String>,
    /// Tag and fingerprint of its artifact.
    pub(crate) artifact: Option<(Tag, Digest)>,
    /// Id of its artifact, once it is known.
    pub(crate) snapshot: Option<String>,
}

impl Labels {
    /// Reads the tags of a sandbox; other ones are let be.
    pub(crate) fn read(tags: Option<&BTreeMap<String, String>>) -> Self {
        let value = |key: &str| tags?.get(key);
        let artifact = || {
            let digest = format!("sha256:{}", value(FINGERPRINT)?).parse().ok()?;
            Some((Tag::parse(value(ARTIFACT)?)?, digest))
        };
        Self {
            sandbox: value(SANDBOX).and_then(|tag| Tag::parse(tag)),
            workdir: value(WORKDIR).map(|text| decoded(text)),
            artifact: artifact(),
            snapshot: value(SNAPSHOT).cloned(),
        }
    }

    /// The tags to send. They replace all that the sandbox has.
    pub(crate) fn write(&self) -> BTreeMap<String, String> {
        let artifact = self.artifact.as_ref();
        [
            (SANDBOX, self.sandbox.as_ref().map(Tag::to_string)),
            (WORKDIR, self.workdir.as_deref().map(encoded)),
            (ARTIFACT, artifact.map(|(tag, _)| tag.to_string())),
            (FINGERPRINT, artifact.map(|(_, fingerprint)| fingerprint.hex())),
            (SNAPSHOT, self.snapshot.clone()),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
    }
}

/// Which characters a value may hold is not documented: all but the plainest are written as `%` and two hex digits.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02x}"));
        }
    }
    out
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = || u8::from_str_radix(std::str::from_utf8(after.get(..2)?).ok()?, 16).ok();
        match (first, escaped()) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_set_fits_and_comes_back() {
        let labels = Labels {
            sandbox: Some(Tag::new("run", "unit")),
            workdir: Some("/app/new dir".into()),
            artifact: Some((Tag::new("run", "warm"), Digest::of(b"x"))),
            snapshot: Some("snap_1".into()),
        };
        let mut written = labels.write();
        assert_eq!(written.len(), 5, "the service takes five");
        written.insert("somebody-elses".into(), "x".into());
        assert_eq!(Labels::read(Some(&written)), labels);
        assert_eq!(Labels::read(None), Labels::default());
    }

    #[test]
    fn what_is_not_ours_is_not_taken_for_it() {
        let tags = [(SANDBOX, "not a tag"), (ARTIFACT, "sbx-run--warm"), (FINGERPRINT, "xyz")];
        let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        assert_eq!(Labels::read(Some(&tags)), Labels::default());
    }

    proptest! {
        #[test]
        fn any_directory_comes_back(path in ".{0,60}") {
            let labels = Labels { workdir: Some(path), ..Labels::default() };
            let written = labels.write();
            prop_assert!(written.values().all(|value| value.bytes().all(|b| b.is_ascii_graphic())));
            prop_assert_eq!(Labels::read(Some(&written)), labels);
        }

        #[test]
        fn any_value_is_read_without_a_panic(text in "[%0-9a-f/é]{0,20}") {
            decoded(&text);
        }
    }
}
