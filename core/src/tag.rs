//! Correlation tags: the unique names put on everything we create, so that nothing is ever lost track of.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const PREFIX: &str = "sbx";

/// A correlation tag: `sbx-<run>-<unit>`, at most 63 characters of `a-z 0-9 -`, which every vendor takes as a label
/// value and nearly every one as a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Tag(String);

impl Tag {
    /// The tag of one unit (a trial's attempt, an artifact) of a run. Characters that are not allowed become `-`,
    /// and over-long parts are cut: run to 32 characters, unit to 24.
    #[must_use]
    pub fn new(run: &str, unit: &str) -> Self {
        Self(format!("{PREFIX}-{}-{}", clean(run, 32), clean(unit, 24)))
    }

    /// Reads a tag back from a label. `None` if the text is not one of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let ours = text.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with('-') && rest.len() > 1);
        let clean = text.len() <= 63 && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        (ours && clean).then(|| Self(text.to_owned()))
    }

    /// The tag as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
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
            Self::Run(run) => tag.starts_with(&format!("{PREFIX}-{}-", clean(run, 32))),
            Self::All => Tag::parse(tag).is_some(),
        }
    }
}

fn clean(text: &str, max: usize) -> String {
    text.chars()
        .take(max)
        .map(|c| match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => c,
            _ => '-',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_run_and_unit_make_a_tag_that_parses_and_is_found(run in ".{1,80}", unit in ".{1,80}") {
            let tag = Tag::new(&run, &unit);
            prop_assert_eq!(Tag::parse(tag.as_str()), Some(tag.clone()));
            prop_assert!(TagQuery::Run(run).matches(tag.as_str()));
            prop_assert!(TagQuery::Exact(tag.clone()).matches(tag.as_str()));
            prop_assert!(TagQuery::All.matches(tag.as_str()));
        }
    }

    #[test]
    fn a_run_whose_name_is_a_prefix_of_another_finds_only_its_own() {
        let other = Tag::new("run-10", "a");
        assert!(!TagQuery::Run("run-1".into()).matches(other.as_str()));
        assert_eq!(Tag::parse("unrelated"), None);
    }
}
