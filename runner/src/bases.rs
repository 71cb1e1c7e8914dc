//! What stands in for images that a backend cannot start from: the tables `[recipes.<backend>]` of `bench.toml`.

use std::collections::BTreeMap;

use globset::Glob;
use serde::Deserialize;
use serde::de::Error as _;

/// Globs on image references, each with what to start from in place of the image: a reference that the backend can start
/// from (an image, a runtime), or `base`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bases {
    /// The longest glob first: it says most.
    stand_ins: Vec<(Glob, String)>,
}

impl Bases {
    /// The word for the backend's general base.
    pub const GENERAL: &str = "base";

    /// What to start from in place of `image`, if the configuration says it. Docker's own names are short names, too:
    /// `python:*` fits `docker.io/library/python:3.12`.
    #[must_use]
    pub fn stand_in(&self, image: &str) -> Option<&str> {
        let short = image.strip_prefix("docker.io/").unwrap_or(image);
        let short = short.strip_prefix("library/").unwrap_or(short);
        self.stand_ins
            .iter()
            .find(|(glob, _)| {
                let matcher = glob.compile_matcher();
                matcher.is_match(image) || matcher.is_match(short)
            })
            .map(|(_, stand_in)| stand_in.as_str())
    }
}

impl<'de> Deserialize<'de> for Bases {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = BTreeMap::<String, String>::deserialize(deserializer)?;
        let mut stand_ins = Vec::new();
        for (pattern, stand_in) in table {
            if stand_in.is_empty() {
                return Err(D::Error::custom(format!("{pattern:?} is mapped to nothing; name an image, or \"base\"")));
            }
            stand_ins.push((Glob::new(&pattern).map_err(D::Error::custom)?, stand_in));
        }
        stand_ins.sort_by_key(|(glob, _)| std::cmp::Reverse(glob.glob().len()));
        Ok(Self { stand_ins })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_longest_glob_that_fits_decides() {
        let bases: Bases = toml::from_str(
            "\"python:*\" = \"base\"\n\"python:3.13*\" = \"python3.13\"\n\"ghcr.io/**/ubuntu-24-04:*\" = \"ubuntu\"",
        )
        .unwrap();
        for (image, stand_in) in [
            ("python:3.12-slim", Some("base")),
            ("python:3.13-slim", Some("python3.13")),
            ("docker.io/library/python:3.13", Some("python3.13")),
            ("ghcr.io/laude-institute/t-bench/ubuntu-24-04:20250624", Some("ubuntu")),
            ("node:22", None),
        ] {
            assert_eq!(bases.stand_in(image), stand_in, "{image}");
        }
    }

    #[test]
    fn a_wrong_mapping_is_told() {
        assert!(toml::from_str::<Bases>("\"[\" = \"base\"").is_err());
        assert!(toml::from_str::<Bases>("\"a\" = \"\"").unwrap_err().to_string().contains("mapped to nothing"));
    }
}
