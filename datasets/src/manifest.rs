//! `dataset.toml`: what a published Harbor data set should hold.
//!
//! Source: Harbor 0.26, data set manifests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sandbox_bench_core::Digest;

use crate::harbor::Section;
use crate::problem::Fault;

/// The file's name.
pub(crate) const FILE: &str = "dataset.toml";

/// The listed tasks and their digests, if the directory has a manifest.
pub(crate) fn read(directory: &Path) -> Result<BTreeMap<String, Digest>, Fault> {
    let path = directory.join(FILE);
    if !path.is_file() {
        return Ok(BTreeMap::new());
    }
    let text = fs::read_to_string(&path).map_err(|error| Fault::io("read", &path, &error))?;
    parse(&text)
}

fn parse(text: &str) -> Result<BTreeMap<String, Digest>, Fault> {
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| Fault::new(format!("not TOML: {}", error.message()), "correct it"))?;
    let mut tasks = BTreeMap::new();
    for task in Section::root(&table).sections("tasks")? {
        let name = task.text("name")?.ok_or_else(|| task.wrong("name", "a task's name"))?;
        let digest = task.text("digest")?.and_then(|digest| digest.parse().ok());
        tasks.insert(name, digest.ok_or_else(|| task.wrong("digest", "sha256: and 64 hex digits"))?);
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_and_digests() {
        let digest = Digest::of(b"x");
        let text = format!("[dataset]\nname = 'a/b'\n[[tasks]]\nname = 'a/t'\ndigest = '{digest}'\n");
        assert_eq!(parse(&text).unwrap(), BTreeMap::from([("a/t".to_owned(), digest)]));
        for bad in ["[[tasks]]\nname = 'a/t'", "[[tasks]]\ndigest = 'x'", "tasks = 1", "["] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
