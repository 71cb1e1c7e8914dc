//! Finding sources below a path: a depth-first walk in name order that never holds more than the names of the
//! directories on its way.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sandbox_bench_core::Digest;

use super::json::Layout;
use super::{Kind, Source};
use crate::archive;
use crate::cache::{self, Cache};
use crate::directory;
use crate::format::Format;
use crate::limits::Limits;
use crate::problem::{Fault, Problem};
use crate::task::Family;

/// Directories that hold something other than tasks.
const RESERVED: [&str; 1] = ["environments"];

/// What a file's name, or its first bytes, say that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Lines,
    Array,
    Parquet,
    Archive,
}

/// A path still to be looked at.
struct Pending {
    path: PathBuf,
    shown: PathBuf,
    depth: u32,
    /// An id for the task, should it be one.
    id: Option<String>,
}

/// The walk.
pub(crate) struct Scan<'a> {
    pending: Vec<Pending>,
    format: Option<Format>,
    cache: &'a Cache,
    limits: &'a Limits,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(root: &Path, format: Option<Format>, cache: &'a Cache, limits: &'a Limits) -> Self {
        let root = Pending { path: root.to_owned(), shown: root.to_owned(), depth: 0, id: None };
        Self { pending: vec![root], format, cache, limits }
    }

    /// True if the path given by the user is itself a source or a directory.
    pub(crate) fn recognises(path: &Path) -> bool {
        path.is_dir() || file_kind(path, true).is_some()
    }

    fn visit(&mut self, pending: Pending) -> Result<Option<Source>, Fault> {
        if pending.path.is_dir() {
            return self.visit_directory(pending);
        }
        let direct = pending.depth == 0;
        let Some(kind) = file_kind(&pending.path, direct) else { return Ok(None) };
        let rows = !matches!(self.format, Some(Format::Harbor | Format::TerminalBench1));
        let kind = match kind {
            FileKind::Archive => return self.visit_archive(pending).map(|()| None),
            _ if !rows => return Ok(None),
            FileKind::Lines => Kind::Json(Layout::Lines),
            FileKind::Array => Kind::Json(Layout::Array),
            FileKind::Parquet => Kind::Parquet(OnceLock::new()),
        };
        // In a collection of sources, `<source>/tasks.parquet`, paths are unique only in their source.
        let collected = !direct && pending.path.file_name().is_some_and(|name| name == "tasks.parquet");
        let parent = pending.shown.parent().and_then(Path::file_name).filter(|_| collected);
        let qualifier = parent.map(|name| name.to_string_lossy().into_owned());
        Ok(Some(Source { path: pending.path, shown: pending.shown, kind, qualifier }))
    }

    fn visit_directory(&mut self, pending: Pending) -> Result<Option<Source>, Fault> {
        let family = directory::family(&pending.path);
        let wanted = match self.format {
            None => family.is_some(),
            Some(Format::Harbor) => family == Some(Family::Harbor),
            Some(Format::TerminalBench1) => pending.path.join("task.yaml").is_file(),
            Some(Format::TaskRows | Format::SweSmith) => false,
        };
        if wanted {
            let kind = Kind::Directory { id: pending.id };
            return Ok(Some(Source { path: pending.path, shown: pending.shown, kind, qualifier: None }));
        }
        if family.is_some() {
            return Ok(None);
        }
        if directory::resembles_task(&pending.path) {
            return Err(Fault::new("there is neither task.toml nor task.yaml", "add one, or remove the directory"));
        }
        if pending.depth >= self.limits.depth {
            return Ok(None);
        }
        for name in names(&pending.path)?.into_iter().rev() {
            self.pending.push(Pending {
                path: pending.path.join(&name),
                shown: pending.shown.join(&name),
                depth: pending.depth + 1,
                id: None,
            });
        }
        Ok(None)
    }

    /// Unpacks the archive and goes on in its directory.
    fn visit_archive(&mut self, pending: Pending) -> Result<(), Fault> {
        let failed = |error: io::Error| Fault::io("read", &pending.path, &error);
        let file = File::open(&pending.path).map_err(failed)?;
        let (key, size) = Digest::of_reader(&file).map_err(failed)?;
        let place = self.cache.directory(cache::Kind::Archive, &key, |place| {
            let again = File::open(&pending.path).map_err(failed)?;
            archive::unpack(again, size, place, self.limits)
        })?;
        if pending.depth >= self.limits.depth {
            return Ok(());
        }
        let id = pending.shown.file_name().map(|name| stem(&name.to_string_lossy()).to_owned());
        let task = directory::unwrapped(&place);
        let wrapped = task != place;
        let one_task = directory::family(&task).is_some();
        self.pending.push(Pending {
            path: if one_task { task } else { place },
            shown: pending.shown,
            depth: pending.depth + 1,
            id: if one_task && !wrapped { id } else { None },
        });
        Ok(())
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<Source, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let pending = self.pending.pop()?;
            let shown = pending.shown.clone();
            match self.visit(pending) {
                Ok(Some(source)) => return Some(Ok(source)),
                Ok(None) => {}
                Err(fault) => return Some(Err(fault.at(&shown, None))),
            }
        }
    }
}

/// The names in a directory that may be sources, in order.
fn names(directory: &Path) -> Result<Vec<std::ffi::OsString>, Fault> {
    let failed = |error: io::Error| Fault::io("read", directory, &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let text = name.to_string_lossy();
        if !text.starts_with('.') && !text.starts_with("README") && !RESERVED.contains(&text.as_ref()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// What the file is. A file that the user named directly is also known by its first bytes.
fn file_kind(path: &Path, direct: bool) -> Option<FileKind> {
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if ends(&[".jsonl", ".ndjson"]) {
        return Some(FileKind::Lines);
    }
    if ends(&[".parquet"]) {
        return Some(FileKind::Parquet);
    }
    if ends(&[".tar", ".tar.gz", ".tgz"]) {
        return Some(FileKind::Archive);
    }
    let is_json = ends(&[".json"]);
    if !is_json && !direct {
        return None;
    }
    let mut head = [0; 512];
    let read = File::open(path).and_then(|mut file| file.read(&mut head)).ok()?;
    let head = head.get(..read)?;
    let text: Vec<u8> = head.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    match text {
        [b'[', ..] if direct => Some(FileKind::Array),
        // In a directory, other JSON arrays are none of our business.
        [b'[', b'{', ..] if is_json => Some(FileKind::Array),
        [b'{', ..] if direct => Some(FileKind::Lines),
        [b'P', b'A', b'R', b'1', ..] => Some(FileKind::Parquet),
        [0x1f, 0x8b, ..] => Some(FileKind::Archive),
        _ if head.get(257..262) == Some(b"ustar") => Some(FileKind::Archive),
        _ => None,
    }
}

fn stem(name: &str) -> &str {
    [".tar.gz", ".tgz", ".tar"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}
