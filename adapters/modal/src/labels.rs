//! Names and tags of what we create, by which it is found again.
//!
//! A sandbox has the correlation tag as its name and among its tags. An image has no tags, but names of the form `NAME:TAG`:
//! an artifact's is its correlation tag with its fingerprint. Both are short and plain enough for the service (names: 64
//! characters of `A-Za-z0-9-_.`; Python package modal 1.6.4, `modal/_utils/name_utils.py`).

use sandbox_bench_core::{Digest, Tag, TagQuery};

use crate::proto::client::SandboxTag;

/// On every sandbox of ours.
const OURS: (&str, &str) = ("sandbox-bench", "1");
/// Whether it was destroyed. The service lists what has ended for a long time; so only this tells what is still to be found.
const STATE: &str = "sandbox-bench-state";
const OPEN: &str = "open";
const DESTROYED: &str = "destroyed";
/// The part of the correlation tag that all sandboxes of a run share.
const RUN: &str = "sandbox-bench-run";
/// The correlation tag.
const TAG: &str = "sandbox-bench-tag";
/// What begins every correlation tag.
const PREFIX: &str = "sbx-";

/// What is written on a new sandbox.
pub(crate) fn of(tag: &Tag) -> Vec<SandboxTag> {
    all(tag, OPEN)
}

/// What is written on a sandbox that is about to be destroyed.
pub(crate) fn destroyed(tag: &Tag) -> Vec<SandboxTag> {
    all(tag, DESTROYED)
}

/// What every sandbox carries that was not destroyed.
pub(crate) fn open() -> SandboxTag {
    written(STATE, OPEN)
}

fn all(tag: &Tag, state: &str) -> Vec<SandboxTag> {
    vec![written(OURS.0, OURS.1), written(RUN, run(tag)), written(TAG, tag.as_str()), written(STATE, state)]
}

/// What every sandbox that is looked for carries.
pub(crate) fn wanted(query: &TagQuery) -> SandboxTag {
    match query {
        TagQuery::Exact(tag) => written(TAG, tag.as_str()),
        TagQuery::Run(name) => written(RUN, run(&Tag::new(name, "unit"))),
        TagQuery::All => written(OURS.0, OURS.1),
    }
}

/// The correlation tag of a sandbox, if it is ours.
pub(crate) fn read(tags: &[SandboxTag]) -> Option<Tag> {
    tags.iter().find(|tag| tag.tag_name == TAG).and_then(|tag| Tag::parse(&tag.tag_value))
}

/// The name of an artifact's image.
pub(crate) fn artifact_name(tag: &Tag, fingerprint: &Digest) -> String {
    format!("{tag}:{}", fingerprint.hex())
}

/// What the name of an image says, if it is an artifact of ours. The service may put the environment before it.
pub(crate) fn parse_artifact_name(name: &str) -> Option<(Tag, Digest)> {
    let (tag, hex) = name.rsplit('/').next()?.split_once(':')?;
    Some((Tag::parse(tag)?, format!("sha256:{hex}").parse().ok()?))
}

/// What begins the name of every artifact that is looked for.
pub(crate) fn artifact_prefix(query: &TagQuery) -> String {
    match query {
        TagQuery::Exact(tag) => format!("{tag}:"),
        TagQuery::Run(name) => format!("{}--", run(&Tag::new(name, "unit"))),
        TagQuery::All => PREFIX.to_owned(),
    }
}

fn written(name: &str, value: &str) -> SandboxTag {
    SandboxTag { tag_name: name.to_owned(), tag_value: value.to_owned() }
}

fn run(tag: &Tag) -> &str {
    tag.as_str().split_once("--").map_or(tag.as_str(), |(run, _)| run)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_found_by_every_query_that_means_it(run in ".{1,60}", unit in ".{1,60}", content in any::<[u8; 8]>()) {
            let tag = Tag::new(&run, &unit);
            let tags = of(&tag);
            let plain = |text: &str| text.len() <= 63 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
            prop_assert!(tags.iter().all(|tag| plain(&tag.tag_name) && plain(&tag.tag_value)));
            prop_assert_eq!(read(&tags), Some(tag.clone()));
            let fingerprint = Digest::of(&content);
            let name = artifact_name(&tag, &fingerprint);
            for query in [TagQuery::Exact(tag.clone()), TagQuery::Run(run), TagQuery::All] {
                prop_assert!(tags.contains(&wanted(&query)) && tags.contains(&open()));
                prop_assert!(destroyed(&tag).contains(&wanted(&query)) && !destroyed(&tag).contains(&open()));
                prop_assert!(name.starts_with(&artifact_prefix(&query)));
            }
            let parts: Vec<&str> = name.split(':').collect();
            prop_assert!(parts.len() == 2 && parts.iter().all(|part| part.len() <= 64));
            prop_assert_eq!(parse_artifact_name(&name), Some((tag.clone(), fingerprint.clone())));
            prop_assert_eq!(parse_artifact_name(&format!("main/{name}")), Some((tag, fingerprint)));
        }

        #[test]
        fn names_of_others_are_not_ours(name in "[a-z.:/-]{0,90}") {
            prop_assert_eq!(parse_artifact_name(&name), None);
        }
    }

    #[test]
    fn a_run_whose_name_begins_like_another_finds_only_its_own() {
        let other = of(&Tag::new("run-10", "a"));
        assert!(!other.contains(&wanted(&TagQuery::Run("run-1".into()))));
        assert_eq!(read(&[]), None);
    }
}
