//! Correlation tags: the unique names put on everything we create, so that nothing is ever lost track of.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;

const PREFIX: &str = "sbx";
/// Most characters of the part that names the run, and of the part that names the unit.
const RUN: usize = 31;
const UNIT: usize = 26;
/// Digits of the digest that stands for what was left out of a part.
const DIGEST: usize = 8;

/// A correlation tag: `sbx-<run>--<unit>`, at most 63 characters of `a-z 0-9 -` that begins and ends with a letter or
/// digit, which every vendor takes as a label value and nearly every one as a name. A doubled `-` separates the parts
/// and occurs nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Tag(String);

impl Tag {
    /// The tag of one unit (a trial's attempt, an artifact) of a run. A part that is too long (run: 31 characters,
    /// unit: 26) or has characters that are not allowed is replaced by what of it is allowed and a digest of the
    /// whole, so that different parts never give equal tags.
    #[must_use]
    pub fn new(run: &str, unit: &str) -> Self {
        Self(format!("{PREFIX}-{}--{}", part(run, RUN), part(unit, UNIT)))
    }

    /// Reads a tag back from a label. `None` if the text is not one of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (run, unit) = text.strip_prefix(PREFIX)?.strip_prefix('-')?.split_once("--")?;
        (is_part(run, RUN) && is_part(unit, UNIT)).then(|| Self(text.to_owned()))
    }

    /// The tag as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text is not a tag of ours.
#[derive(Debug, thiserror::Error)]
#[error("not a correlation tag: {0:?}")]
pub struct InvalidTag(String);

impl TryFrom<String> for Tag {
    type Error = InvalidTag;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or(InvalidTag(text))
    }
}

impl From<Tag> for String {
    fn from(tag: Tag) -> Self {
        tag.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which of our objects a search is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TagQuery {
    /// The object with exactly this tag.
    Exact(Tag),
    /// Everything that a run created.
    Run(String),
    /// Everything that any run created.
    All,
}

impl TagQuery {
    /// True if an object labelled `tag` is meant.
    #[must_use]
    pub fn matches(&self, tag: &str) -> bool {
        match self {
            Self::Exact(t) => t.as_str() == tag,
            Self::Run(run) => Tag::parse(tag).is_some() && tag.starts_with(&format!("{PREFIX}-{}--", part(run, RUN))),
            Self::All => Tag::parse(tag).is_some(),
        }
    }
}

/// `text` if it is a legal part, else what of it is legal, then a digest of the whole.
fn part(text: &str, max: usize) -> String {
    if is_part(text, max) {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars().map(|c| c.to_ascii_lowercase()).take(max) {
        if c.is_ascii_alphanumeric() {
            kept.push(c);
        } else if !kept.is_empty() && !kept.ends_with('-') {
            kept.push('-');
        }
    }
    kept.truncate(max - DIGEST - 1);
    let kept = kept.trim_matches('-');
    let digest = Digest::of(text.as_bytes()).short(DIGEST);
    if kept.is_empty() { digest } else { format!("{kept}-{digest}") }
}

fn is_part(text: &str, max: usize) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty()
        && text.len() <= max
        && text.bytes().all(legal)
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_run_and_unit_make_a_tag_that_parses_and_is_found(run in ".{1,80}", unit in ".{1,80}") {
            let tag = Tag::new(&run, &unit);
            prop_assert!(tag.as_str().len() <= 63);
            prop_assert_eq!(Tag::parse(tag.as_str()), Some(tag.clone()));
            prop_assert!(TagQuery::Run(run).matches(tag.as_str()));
            prop_assert!(TagQuery::Exact(tag.clone()).matches(tag.as_str()));
            prop_assert!(TagQuery::All.matches(tag.as_str()));
        }
    }

    #[test]
    fn different_units_have_different_tags() {
        let long = "a".repeat(40);
        assert_ne!(Tag::new("r", &format!("{long}1")), Tag::new("r", &format!("{long}2")));
        assert_ne!(Tag::new("r", "ü"), Tag::new("r", "ö"));
        assert_eq!(Tag::new("run", "unit").as_str(), "sbx-run--unit");
    }

    #[test]
    fn a_run_whose_name_is_a_prefix_of_another_finds_only_its_own() {
        let other = Tag::new("run-10", "a");
        assert!(!TagQuery::Run("run-1".into()).matches(other.as_str()));
        assert!(!TagQuery::Run("run".into()).matches(other.as_str()));
        assert_eq!(Tag::parse("unrelated"), None);
    }
}
