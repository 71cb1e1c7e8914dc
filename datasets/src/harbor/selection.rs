//! Which files of a task belong to its package and enter a sandbox: `.harborignore` and `.gitignore` applied.
//!
//! Source: Harbor 0.26, task file filter and packager.

use std::collections::BTreeMap;

use crate::ignore::IgnoreRules;
use crate::problem::Fault;
use crate::tree::{Entry, EntryKind, Tree};

const IGNORE_FILE: &str = ".harborignore";

/// What a package without a `.gitignore` leaves out.
const DEFAULT_IGNORES: &str = "__pycache__/\n*.pyc\n.DS_Store\n*.swp\n*.swo\n*~\n";

/// The `.harborignore` rules of a task, by the directory they lie in.
#[derive(Debug)]
pub(super) struct Selection {
    rules: BTreeMap<String, IgnoreRules>,
    git: IgnoreRules,
}

impl Selection {
    pub(super) fn read(tree: &Tree) -> Result<Self, Fault> {
        let mut rules = BTreeMap::new();
        for entry in tree.entries.iter().filter(|entry| entry.kind == EntryKind::File) {
            let Some((directory, IGNORE_FILE)) = entry.path.rsplit_once('/') else { continue };
            if in_scope(directory) {
                let text = tree.text(&entry.path, &mut Vec::new())?;
                rules.insert(directory.to_owned(), IgnoreRules::git(&text));
            }
        }
        let git = if tree.has_file(".gitignore") {
            IgnoreRules::git(&tree.text(".gitignore", &mut Vec::new())?)
        } else {
            IgnoreRules::git(DEFAULT_IGNORES)
        };
        Ok(Self { rules, git })
    }

    /// True if `.harborignore` keeps the file out of sandboxes and packages. Ignore files themselves are kept out
    /// everywhere.
    pub(super) fn excludes(&self, path: &str) -> bool {
        if path.rsplit('/').next() == Some(IGNORE_FILE) {
            return true;
        }
        let prefixes = path.match_indices('/').filter_map(|(end, _)| path.get(..end).map(|prefix| (prefix, true)));
        prefixes.chain([(path, false)]).any(|(candidate, is_directory)| self.matches(candidate, is_directory))
    }

    /// What the ignore files above one candidate say; the innermost that says anything wins.
    fn matches(&self, candidate: &str, is_directory: bool) -> bool {
        let applying = self.rules.iter().rev().filter_map(|(directory, rules)| {
            let relative = candidate.strip_prefix(directory.as_str())?.strip_prefix('/')?;
            rules.verdict(relative, is_directory)
        });
        applying.into_iter().next().unwrap_or(false)
    }

    /// The files that the package content hash covers, in path order.
    pub(super) fn package<'a>(&'a self, tree: &'a Tree) -> impl Iterator<Item = &'a Entry> {
        tree.entries.iter().filter(|entry| {
            entry.kind == EntryKind::File
                && is_package_part(&entry.path)
                && !self.excludes(&entry.path)
                && !self.git.ignores(&entry.path, false)
        })
    }

    /// The excluded files below a directory, relative to it.
    pub(super) fn excluded_below(&self, tree: &Tree, directory: &str) -> Vec<String> {
        tree.files_below(directory)
            .filter(|entry| self.excludes(&entry.path))
            .filter_map(|entry| entry.path.get(directory.len() + 1..).map(str::to_owned))
            .collect()
    }
}

/// True for what belongs to a task, apart from notes that lie beside it.
pub(super) fn is_package_part(path: &str) -> bool {
    let single = ["task.toml", "instruction.md", "README.md", "trajectory.json"];
    let directory = ["environment", "tests", "solution", "steps"];
    match path.split_once('/') {
        Some((first, _)) => directory.contains(&first),
        None => single.contains(&path) || directory.contains(&path),
    }
}

/// Ignore files count in `tests/`, `solution/`, and those of each step.
fn in_scope(directory: &str) -> bool {
    let mut parts = directory.split('/');
    match parts.next() {
        Some("tests" | "solution") => true,
        Some("steps") => matches!(parts.nth(1), Some("tests" | "solution")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;
    use crate::limits::Limits;

    #[test]
    fn inner_rules_win_and_other_places_have_none() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("tests/.harborignore", "*.log\nbig/\n");
        write("tests/sub/.harborignore", "!keep.log\n");
        write("environment/.harborignore", "*\n");
        for path in
            ["tests/a.log", "tests/sub/keep.log", "tests/sub/b.log", "tests/big/x", "tests/t.sh", "environment/d"]
        {
            write(path, "");
        }
        let tree = Tree::read(root.path(), &Limits::default()).unwrap();
        let selection = Selection::read(&tree).unwrap();
        assert_eq!(
            selection.excluded_below(&tree, "tests"),
            [".harborignore", "a.log", "big/x", "sub/.harborignore", "sub/b.log"]
        );
        assert!(!selection.excludes("environment/d"));
        assert!(selection.excludes("environment/.harborignore"));
    }
}
