//! The files of a task directory, listed once, checked, and in a fixed order.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::limits::Limits;
use crate::problem::{Fault, excerpt};

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file, or a link to one.
    File,
    /// A link to a directory or to nothing.
    OtherLink,
}

/// One entry below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Relative path with forward slashes.
    pub(crate) path: String,
    pub(crate) kind: EntryKind,
    /// Target, if it is a symbolic link.
    pub(crate) link: Option<PathBuf>,
    /// True if its owner may execute it.
    pub(crate) executable: bool,
}

/// A directory's entries, sorted by path. Every link in it stays inside, so that reading any of them is safe.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) entries: Vec<Entry>,
}

impl Tree {
    /// Lists everything below `root` but `.git`.
    ///
    /// # Errors
    /// A link that leads out or in a circle; a pipe, socket or device; a name that is not UTF-8; too many files.
    pub(crate) fn read(root: &Path, limits: &Limits) -> Result<Self, Fault> {
        let failed = |path: &Path, error: &io::Error| Fault::io("read", path, error);
        let real_root = fs::canonicalize(root).map_err(|error| failed(root, &error))?;
        let mut entries = Vec::new();
        let mut pending = vec![(root.to_owned(), String::new())];
        while let Some((directory, prefix)) = pending.pop() {
            for entry in fs::read_dir(&directory).map_err(|error| failed(&directory, &error))? {
                let entry = entry.map_err(|error| failed(&directory, &error))?;
                let path = entry.path();
                let Ok(name) = entry.file_name().into_string() else {
                    return Err(Fault::new(format!("the name {:?} is not UTF-8", entry.file_name()), "rename it"));
                };
                if name == ".git" {
                    continue;
                }
                if entries.len() as u64 >= limits.members {
                    return Err(Fault::new(
                        format!("the task has more than {} files", limits.members),
                        "remove files that it does not need, or raise the limit",
                    ));
                }
                let relative = format!("{prefix}{name}");
                let found = describe(&path, relative, &real_root)?;
                if found.kind == EntryKind::Directory {
                    pending.push((path, format!("{}/", found.path)));
                }
                entries.push(found);
            }
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { root: root.to_owned(), entries })
    }

    pub(crate) fn has_file(&self, path: &str) -> bool {
        self.kind(path) == Some(EntryKind::File)
    }

    pub(crate) fn has_directory(&self, path: &str) -> bool {
        self.kind(path) == Some(EntryKind::Directory)
    }

    fn kind(&self, path: &str) -> Option<EntryKind> {
        let at = self.entries.binary_search_by(|entry| entry.path.as_str().cmp(path)).ok()?;
        self.entries.get(at).map(|entry| entry.kind)
    }

    /// All files, in order.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.kind == EntryKind::File)
    }

    /// The files below a directory, in order.
    pub(crate) fn files_below<'a>(&'a self, directory: &str) -> impl Iterator<Item = &'a Entry> {
        let prefix = format!("{directory}/");
        self.files().filter(move |entry| entry.path.starts_with(&prefix))
    }

    /// Reads a file of at most `limit` bytes.
    pub(crate) fn bytes(&self, path: &str, limit: u64) -> Result<Vec<u8>, Fault> {
        let place = self.root.join(path);
        let failed = |error: io::Error| Fault::io("read", Path::new(path), &error);
        let mut bytes = Vec::new();
        File::open(place).map_err(failed)?.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > limit {
            return Err(Fault::new(format!("{path} is larger than {limit} bytes"), "make it smaller"));
        }
        Ok(bytes)
    }

    /// Reads a UTF-8 file of at most 16 MiB, without a leading byte order mark; says in `warnings` that there was one.
    pub(crate) fn text(&self, path: &str, warnings: &mut Vec<String>) -> Result<String, Fault> {
        let bytes = self.bytes(path, 16 << 20)?;
        let text =
            String::from_utf8(bytes).map_err(|_| Fault::new(format!("{path} is not UTF-8"), "save it as UTF-8"))?;
        Ok(match text.strip_prefix('\u{feff}') {
            Some(rest) => {
                warnings.push(format!("normalized: byte order mark of {path}"));
                rest.to_owned()
            }
            None => text,
        })
    }
}

fn describe(path: &Path, relative: String, real_root: &Path) -> Result<Entry, Fault> {
    let failed = |error: io::Error| Fault::io("read", path, &error);
    let metadata = fs::symlink_metadata(path).map_err(failed)?;
    let kind = metadata.file_type();
    let entry = |kind, link| Entry {
        path: relative.clone(),
        kind,
        link,
        executable: metadata.permissions().mode() & 0o100 != 0,
    };
    if kind.is_dir() {
        return Ok(entry(EntryKind::Directory, None));
    }
    if kind.is_file() {
        return Ok(entry(EntryKind::File, None));
    }
    if !kind.is_symlink() {
        return Err(Fault::new(
            format!("{} is neither file nor directory nor link", excerpt(&relative)),
            "remove the pipe, socket or device",
        ));
    }
    let target = fs::read_link(path).map_err(failed)?;
    let outside = || {
        let what = format!("the symbolic link {} leads out of the task or in a circle", excerpt(&relative));
        Fault::new(what, "replace it by the file")
    };
    if target.is_absolute() {
        return Err(outside());
    }
    let end = match fs::canonicalize(path) {
        Ok(end) => end,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A dangling link: its name alone must stay inside.
            let depth = relative.matches('/').count();
            return if climbs(&target, depth) { Err(outside()) } else { Ok(entry(EntryKind::OtherLink, Some(target))) };
        }
        Err(_) => return Err(outside()),
    };
    let parent = path.parent().map(fs::canonicalize).transpose().map_err(failed)?.unwrap_or_default();
    if !end.starts_with(real_root) || (end.is_dir() && parent.starts_with(&end)) {
        return Err(outside());
    }
    Ok(entry(if end.is_file() { EntryKind::File } else { EntryKind::OtherLink }, Some(target)))
}

/// True if a relative target goes up more than `depth` directories at any point.
fn climbs(target: &Path, depth: usize) -> bool {
    let mut depth = depth;
    for part in target.components() {
        match part {
            std::path::Component::ParentDir if depth == 0 => return true,
            std::path::Component::ParentDir => depth -= 1,
            std::path::Component::Normal(_) => depth += 1,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::symlink;

    use super::*;

    fn read(make: impl FnOnce(&Path)) -> Result<Tree, Fault> {
        let root = tempfile::tempdir().unwrap();
        let task = root.path().join("task");
        fs::create_dir_all(task.join("tests/data")).unwrap();
        fs::write(root.path().join("secret"), "s").unwrap();
        fs::write(task.join("tests/a"), "a").unwrap();
        make(&task);
        Tree::read(&task, &Limits::default())
    }

    #[test]
    fn links_inside_are_fine() {
        let tree = read(|task| {
            symlink("../tests/a", task.join("tests/link")).unwrap();
            symlink("data", task.join("tests/dirlink")).unwrap();
            symlink("missing", task.join("tests/dangling")).unwrap();
        })
        .unwrap();
        assert!(tree.has_file("tests/link"));
        assert!(tree.has_directory("tests/data") && !tree.has_directory("tests/dirlink"));
        assert_eq!(tree.files_below("tests").count(), 2);
    }

    #[test]
    fn links_outside_and_circles_are_refused() {
        for target in ["../../secret", "/etc/passwd", "../../missing", "..", "self", "../../task/../secret"] {
            let result = read(|task| symlink(target, task.join("tests/self")).unwrap());
            assert!(result.is_err(), "{target}");
        }
        let chain = read(|task| {
            symlink("..", task.join("tests/data/up")).unwrap_or_default();
        });
        assert!(chain.is_err(), "a directory link cycle");
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let root = tempfile::tempdir().unwrap();
        for n in 0..4 {
            fs::write(root.path().join(n.to_string()), "").unwrap();
        }
        let limits = Limits { members: 3, ..Limits::default() };
        assert!(Tree::read(root.path(), &limits).unwrap_err().what.contains("more than 3 files"));
    }
}
