//! Applying a git patch to file contents, or taking it back, without git and without touching any file.
//!
//! The result depends on nothing but the patch and the contents: no fuzz, no rejects, no partly applied patch. A patch
//! that is in the files already is noticed. Both questions, whether it fits and whether it is there, are first asked for
//! the exact lines that the patch names; only if both answers are no, for lines that have moved.

mod hunk;

use std::borrow::Cow;
use std::collections::BTreeMap;

use diffy::patch_set::{FileMode, FileOperation, FilePatch, ParseOptions, PatchKind, PatchSet};
use hunk::Hunk;

/// Which way to apply a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// As written.
    Forward,
    /// Taking it back.
    Reverse,
}

impl Direction {
    fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Reverse,
            Self::Reverse => Self::Forward,
        }
    }
}

/// What a patch makes of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Path relative to the repository, with forward slashes.
    pub path: String,
    /// The new content; none means that the file is removed.
    pub content: Option<Vec<u8>>,
    /// Whether the file is to be executable, if the patch says so.
    pub executable: Option<bool>,
}

/// Why a patch was not applied. Nothing is applied then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The text is no patch, or a broken one.
    #[error("the patch is broken: {0}")]
    Malformed(String),
    /// A kind of change that only git itself can make.
    #[error("the patch changes {path}, which is {what}: that is not supported")]
    Unsupported {
        /// The file.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// A path that leaves the repository.
    #[error("the patch names {0:?}, which is outside of the repository")]
    UnsafePath(String),
    /// The files already are as the patch would make them.
    #[error("the patch is applied already")]
    AlreadyApplied,
    /// The files are not those that the patch was made for.
    #[error("the patch does not apply to {path}: {why}")]
    DoesNotApply {
        /// The file.
        path: String,
        /// What is different.
        why: String,
    },
}

/// The files that a patch reads or writes, sorted.
///
/// # Errors
/// As [`apply`], as far as the patch alone can show.
pub fn files_touched(patch: &str) -> Result<Vec<String>, PatchError> {
    let text = terminated(patch);
    let files = parse(&text)?;
    let mut paths: Vec<String> =
        edits(&files, Direction::Forward)?.into_iter().flat_map(|edit| [edit.from, edit.to]).flatten().collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// Applies a patch to the files that `read` yields (none for a file that does not exist), and returns what changes.
///
/// # Errors
/// [`PatchError::AlreadyApplied`] when there is nothing to do; else what is wrong with the patch or the files.
pub fn apply(
    patch: &str,
    direction: Direction,
    read: impl Fn(&str) -> Option<Vec<u8>>,
) -> Result<Vec<FileChange>, PatchError> {
    let text = terminated(patch);
    let files = parse(&text)?;
    let wanted = edits(&files, direction)?;
    let opposite = edits(&files, direction.opposite())?;
    if let Ok(changes) = attempt(&wanted, true, &read) {
        return Ok(changes);
    }
    if attempt(&opposite, true, &read).is_ok() {
        return Err(PatchError::AlreadyApplied);
    }
    attempt(&wanted, false, &read).map_err(|error| match attempt(&opposite, false, &read) {
        Ok(_) => PatchError::AlreadyApplied,
        Err(_) => error,
    })
}

/// The change of one file, in the direction in which it is applied.
struct Edit<'a> {
    from: Option<String>,
    to: Option<String>,
    /// `from` stays.
    copy: bool,
    hunks: Vec<Hunk<'a>>,
    executable: Option<bool>,
}

/// Patches lose their last line end in some data sets.
fn terminated(patch: &str) -> Cow<'_, str> {
    if patch.ends_with('\n') { patch.into() } else { format!("{patch}\n").into() }
}

fn parse(text: &str) -> Result<Vec<FilePatch<'_, [u8]>>, PatchError> {
    let git = text.lines().any(|line| line.starts_with("diff --git "));
    let options = if git { ParseOptions::gitdiff() } else { ParseOptions::unidiff() };
    let files: Vec<FilePatch<'_, [u8]>> = PatchSet::parse_bytes(text.as_bytes(), options)
        .collect::<Result<_, _>>()
        .map_err(|error| PatchError::Malformed(error.to_string()))?;
    // The parser passes over hunks that follow garbage; a patch must not lose one silently.
    let hunks: usize = files.iter().filter_map(|file| file.patch().as_text()).map(|patch| patch.hunks().len()).sum();
    if text.lines().filter(|line| line.starts_with("@@ -")).count() != hunks {
        return Err(PatchError::Malformed("there is a hunk that belongs to no file".to_owned()));
    }
    Ok(files)
}

fn edits<'a>(files: &'a [FilePatch<'a, [u8]>], direction: Direction) -> Result<Vec<Edit<'a>>, PatchError> {
    let mut edits = files.iter().map(|file| edit(file, direction)).collect::<Result<Vec<_>, _>>()?;
    if direction == Direction::Reverse {
        edits.reverse();
    }
    Ok(edits)
}

fn edit<'a>(file: &'a FilePatch<'a, [u8]>, direction: Direction) -> Result<Edit<'a>, PatchError> {
    let reverse = direction == Direction::Reverse;
    let (mut from, mut to, copy) = match file.operation() {
        FileOperation::Create(path) => (None, Some(prefixed(path)?), false),
        FileOperation::Delete(path) => (Some(prefixed(path)?), None, false),
        FileOperation::Modify { original, modified } => (Some(prefixed(original)?), Some(prefixed(modified)?), false),
        FileOperation::Rename { from, to } => (Some(plain(from)?), Some(plain(to)?), false),
        FileOperation::Copy { from, to } => (Some(plain(from)?), Some(plain(to)?), true),
    };
    let path = to.clone().or(from.clone()).unwrap_or_default();
    let modes = [file.old_mode(), file.new_mode()];
    let what = match file.patch() {
        PatchKind::Binary(_) => Some("a binary file"),
        _ if modes.contains(&Some(&FileMode::Symlink)) => Some("a symbolic link"),
        _ if modes.contains(&Some(&FileMode::Gitlink)) => Some("a submodule"),
        PatchKind::Text(_) => None,
    };
    if let Some(what) = what {
        return Err(PatchError::Unsupported { path, what });
    }
    if reverse {
        // Taking back a copy removes it.
        (from, to) = if copy { (to, None) } else { (to, from) };
    }
    let mode = if reverse { file.old_mode() } else { file.new_mode() };
    Ok(Edit {
        from,
        to,
        copy: copy && !reverse,
        hunks: match file.patch().as_text() {
            Some(patch) => patch.hunks().iter().map(|hunk| Hunk::new(hunk, reverse)).collect(),
            None => Vec::new(),
        },
        executable: mode.map(|mode| *mode == FileMode::Executable),
    })
}

/// A path behind `a/` or `b/`.
fn prefixed(path: &[u8]) -> Result<String, PatchError> {
    let path = plain_text(path)?;
    let (_, rest) = path.split_once('/').ok_or_else(|| PatchError::UnsafePath(path.clone()))?;
    checked(rest.to_owned())
}

fn plain(path: &[u8]) -> Result<String, PatchError> {
    checked(plain_text(path)?)
}

fn plain_text(path: &[u8]) -> Result<String, PatchError> {
    String::from_utf8(path.to_vec()).map_err(|_| PatchError::Malformed("a file name is not UTF-8".to_owned()))
}

fn checked(path: String) -> Result<String, PatchError> {
    let inside = path.split('/').all(|part| !matches!(part, "" | "." | "..")) && !path.chars().any(char::is_control);
    if inside { Ok(path) } else { Err(PatchError::UnsafePath(path)) }
}

/// Applies all edits to a picture of the files.
fn attempt(
    edits: &[Edit<'_>],
    exact: bool,
    read: &impl Fn(&str) -> Option<Vec<u8>>,
) -> Result<Vec<FileChange>, PatchError> {
    let mut changed: BTreeMap<String, (Option<Vec<u8>>, Option<bool>)> = BTreeMap::new();
    for edit in edits {
        let current = |path: &str| match changed.get(path) {
            Some((content, _)) => content.clone(),
            None => read(path),
        };
        let failed = |path: &str, why: String| PatchError::DoesNotApply { path: path.to_owned(), why };
        let content = match &edit.from {
            Some(path) => current(path).ok_or_else(|| failed(path, "it does not exist".to_owned()))?,
            None => Vec::new(),
        };
        let path = edit.to.as_deref().or(edit.from.as_deref()).unwrap_or_default();
        if edit.to.is_some() && edit.to != edit.from && current(path).is_some() {
            return Err(failed(path, "it exists already".to_owned()));
        }
        let content = hunk::apply(&content, &edit.hunks, exact)
            .map_err(|number| failed(path, format!("hunk {number} does not fit")))?;
        if edit.to.is_none() && !content.is_empty() && !(edit.hunks.is_empty() && edit.from.is_some()) {
            return Err(failed(path, "it has more content than the patch removes".to_owned()));
        }
        if let Some(from) = edit.from.as_ref().filter(|_| !edit.copy) {
            changed.insert(from.clone(), (None, None));
        }
        if let Some(to) = &edit.to {
            changed.insert(to.clone(), (Some(content), edit.executable));
        }
    }
    let change = |(path, (content, executable))| FileChange { path, content, executable };
    Ok(changed.into_iter().map(change).collect())
}

#[cfg(test)]
mod tests;
