//! The files of a run directory that are published: all of them, but the log of publishing, hidden and unfinished ones.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use sandbox_bench_core::{Digest, TrackedFile};

use super::log::LOG;
use crate::outputs;

/// Directories whose files are entered into the lineage together, for there may be thousands of them.
const TOGETHER: [&str; 4] = ["outputs", "inputs", "reports", "report"];
/// What a run is given, by the beginning of its path.
const GIVEN: [&str; 5] = ["manifest.json", "task.sh", "launch-", "component-", "inputs"];

/// Paths of the files in `directory`, with `/`, sorted.
///
/// # Errors
/// It cannot be read.
pub fn list(directory: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    walk(directory, "", &mut found)?;
    found.sort();
    Ok(found)
}

fn walk(directory: &Path, prefix: &str, found: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (path, kind) = (format!("{prefix}{name}"), entry.file_type()?);
        let unfinished = prefix == format!("{}/", outputs::DIRECTORY) && name == outputs::UNFINISHED;
        if name.starts_with('.') || unfinished || path == LOG {
            continue;
        }
        if kind.is_dir() {
            walk(&entry.path(), &format!("{path}/"), found)?;
        } else if kind.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

/// The file of this path, with the digest of its content. Reads all of it, in bounded memory.
///
/// # Errors
/// It cannot be read.
pub fn describe(directory: &Path, path: String) -> io::Result<TrackedFile> {
    let (digest, size) = Digest::of_reader(File::open(directory.join(&path))?)?;
    Ok(TrackedFile { input: given(&path), path, digest: Some(digest), size })
}

/// What is entered into the lineage for these files: each by itself, or its directory.
pub fn lineage(files: &[TrackedFile]) -> Vec<TrackedFile> {
    let mut entries: Vec<TrackedFile> = Vec::new();
    for file in files {
        match file.path.split_once('/') {
            Some((directory, _)) if TOGETHER.contains(&directory) => {
                match entries.iter_mut().find(|e| e.path == directory) {
                    Some(entry) => entry.size += file.size,
                    None => {
                        let path = directory.to_owned();
                        entries.push(TrackedFile { input: given(&path), path, digest: None, size: file.size });
                    }
                }
            }
            _ => entries.push(file.clone()),
        }
    }
    entries
}

fn given(path: &str) -> bool {
    GIVEN.iter().any(|given| path.starts_with(given))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn evidence_is_listed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        for path in [
            "manifest.json",
            "outputs/ab/cd",
            "outputs/unfinished/x",
            ".packs-1/x",
            LOG,
            "inputs/t-1.txt",
            "inputs/t-2.txt",
        ] {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "content").unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("link")).unwrap();
        let listed = list(directory.path()).unwrap();
        assert_eq!(listed, ["inputs/t-1.txt", "inputs/t-2.txt", "manifest.json", "outputs/ab/cd"]);
        let files: Vec<TrackedFile> =
            listed.into_iter().map(|path| describe(directory.path(), path).unwrap()).collect();
        assert_eq!((files[0].size, files[0].digest.clone()), (7, Some(Digest::of(b"content"))));
        let entries = lineage(&files);
        let shown: Vec<_> = entries.iter().map(|entry| (entry.path.as_str(), entry.size, entry.input)).collect();
        assert_eq!(shown, [("inputs", 14, true), ("manifest.json", 7, true), ("outputs", 7, false)]);
    }
}
