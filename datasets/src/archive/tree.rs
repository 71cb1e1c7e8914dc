//! The files of an archive as they are written: every step checks what is already there.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::archive::{Failure, names};
use crate::problem::{Fault, excerpt};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Symlink,
}

struct Node {
    path: PathBuf,
    kind: Kind,
}

/// What has been written below the root so far. Because only `Tree` writes there, its own record, not the file system,
/// says what a path is; no member is ever written through a link.
pub(super) struct Tree<'a> {
    root: &'a Path,
    nodes: HashMap<String, Node>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(root: &'a Path) -> Self {
        Self { root, nodes: HashMap::new() }
    }

    /// Makes a directory, or leaves it as it is.
    pub(super) fn directory(&mut self, parts: &[String]) -> Result<(), Fault> {
        self.parents(parts)?;
        let key = names::key(parts);
        if parts.is_empty() || self.nodes.get(&key).is_some_and(|node| node.kind == Kind::Directory) {
            return Ok(());
        }
        self.clear(parts)?;
        let path = self.path(parts);
        fs::create_dir(&path).map_err(|error| Fault::io("write", &path, &error))?;
        self.nodes.insert(key, Node { path, kind: Kind::Directory });
        Ok(())
    }

    /// Writes a file; `fill` writes its content. Set-id bits and writing by others are dropped.
    pub(super) fn file(
        &mut self,
        parts: &[String],
        mode: u32,
        fill: impl FnOnce(&mut File) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let path = self.vacant(parts)?;
        let failed = |error: &io::Error| Fault::io("write", &path, error);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(|e| failed(&e))?;
        fill(&mut file)?;
        file.set_permissions(Permissions::from_mode(mode & 0o755 | 0o600)).map_err(|e| failed(&e))?;
        self.nodes.insert(names::key(parts), Node { path, kind: Kind::File });
        Ok(())
    }

    /// Makes a symbolic link whose target stays inside.
    pub(super) fn symlink(&mut self, parts: &[String], target: &[u8]) -> Result<(), Fault> {
        let directory = parts.split_last().map(|(_, directory)| directory).unwrap_or_default();
        names::link_target(directory, target)?;
        let target = String::from_utf8_lossy(target).into_owned();
        let path = self.vacant(parts)?;
        symlink(&target, &path).map_err(|error| Fault::io("write", &path, &error))?;
        self.nodes.insert(names::key(parts), Node { path, kind: Kind::Symlink });
        Ok(())
    }

    /// Makes a hard link to a file that is already there.
    pub(super) fn hard_link(&mut self, parts: &[String], target: &[String]) -> Result<(), Fault> {
        let source = match self.nodes.get(&names::key(target)) {
            Some(node) if node.kind == Kind::File => node.path.clone(),
            _ => {
                return Err(Fault::new(
                    format!("hard link to {}, which is no earlier file of the archive", excerpt(&target.join("/"))),
                    "repack the archive without hard links",
                ));
            }
        };
        if names::key(parts) == names::key(target) {
            return Ok(());
        }
        let path = self.vacant(parts)?;
        fs::hard_link(&source, &path).map_err(|error| Fault::io("write", &path, &error))?;
        self.nodes.insert(names::key(parts), Node { path, kind: Kind::File });
        Ok(())
    }

    /// Checks that no link, followed to its end, leads out. The names alone were checked before; this sees links to
    /// links.
    pub(super) fn check_links(&self) -> Result<(), Fault> {
        let root = fs::canonicalize(self.root).map_err(|error| Fault::io("read", self.root, &error))?;
        for (name, node) in &self.nodes {
            if node.kind == Kind::Symlink && fs::canonicalize(&node.path).is_ok_and(|end| !end.starts_with(&root)) {
                return Err(Fault::new(
                    format!("the symbolic link {} leads out of the task", excerpt(name)),
                    "replace it by the file",
                ));
            }
        }
        Ok(())
    }

    /// The path for a new member, with its parents made and an earlier member of that name removed: the last one wins.
    fn vacant(&mut self, parts: &[String]) -> Result<PathBuf, Fault> {
        if parts.is_empty() {
            return Err(Fault::new("a member without a name is not a directory", "repack the archive"));
        }
        self.parents(parts)?;
        self.clear(parts)?;
        Ok(self.path(parts))
    }

    fn parents(&mut self, parts: &[String]) -> Result<(), Fault> {
        for length in 1..parts.len() {
            let parent = parts.get(..length).unwrap_or_default();
            let key = names::key(parent);
            match self.nodes.get(&key).map(|node| node.kind) {
                Some(Kind::Directory) => {}
                Some(_) => {
                    return Err(Fault::new(
                        format!("member {} lies below a file or link", excerpt(&parts.join("/"))),
                        "repack the archive",
                    ));
                }
                None => {
                    let path = self.path(parent);
                    fs::create_dir(&path).map_err(|error| Fault::io("write", &path, &error))?;
                    self.nodes.insert(key, Node { path, kind: Kind::Directory });
                }
            }
        }
        Ok(())
    }

    fn clear(&mut self, parts: &[String]) -> Result<(), Fault> {
        let key = names::key(parts);
        match self.nodes.get(&key) {
            None => return Ok(()),
            Some(node) if node.kind == Kind::Directory => {
                return Err(Fault::new(
                    format!("member {} is a directory and then something else", excerpt(&key)),
                    "repack the archive",
                ));
            }
            Some(node) => fs::remove_file(&node.path).map_err(|error| Fault::io("write", &node.path, &error))?,
        }
        self.nodes.remove(&key);
        Ok(())
    }

    /// Where the member goes: below the recorded path of its parent, which may be spelled in another Unicode form.
    fn path(&self, parts: &[String]) -> PathBuf {
        let Some((name, directory)) = parts.split_last() else { return self.root.to_owned() };
        match self.nodes.get(&names::key(directory)) {
            Some(node) => node.path.join(name),
            None => self.root.join(directory.join("/")).join(name),
        }
    }
}
