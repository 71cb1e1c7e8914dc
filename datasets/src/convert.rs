//! Writing a data set in another container.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sandbox_bench_core::Digest;
use serde_json::Value;

use crate::dataset::{Dataset, Raw, TaskEntry};
use crate::limits::Limits;
use crate::normalize;
use crate::problem::{Fault, Problem};
use crate::row::{self, Shape};
use crate::task::{ImageSpec, Task};
use crate::tree::Tree;
use crate::write::{ArchiveRow, Container, RowWriter, Rows, pack};

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// `rows.jsonl` and `swesmith.jsonl`.
    Jsonl,
    /// `rows.parquet` and `swesmith.parquet`.
    Parquet,
    /// One directory per task.
    Directories,
}

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Converted {
    /// Tasks written.
    pub tasks: u64,
    /// Tasks left out.
    pub left_out: u64,
    /// Files written, or the directory that holds the task directories.
    pub written: Vec<PathBuf>,
}

/// The output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct ConvertError {
    /// Where.
    pub path: PathBuf,
    /// Why not; [`io::ErrorKind::AlreadyExists`] when something is there.
    pub source: io::Error,
}

/// Writes all tasks of a data set into the directory `out`, one at a time. Tasks that cannot be converted are told to
/// `problem` and left out. SWE-smith rows take the environments that stand for their images with them.
///
/// Digests do not change: a converted task is the same task.
///
/// # Errors
/// When the output cannot be written.
pub fn convert(
    dataset: &Dataset,
    target: Target,
    out: &Path,
    mut problem: impl FnMut(Problem),
) -> Result<Converted, ConvertError> {
    let mut left_out = 0;
    let mut problem = |found| {
        left_out += 1;
        problem(found);
    };
    let mut output = Output { out, target, tasks: None, bugs: None, count: 0 };
    for entry in dataset.entries() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(found) => {
                problem(found);
                continue;
            }
        };
        let loaded = dataset.load(&entry).and_then(|task| {
            let raw = dataset.raw(&entry).map_err(|fault| fault.at(entry.file(), Some(&entry.id)))?;
            Ok((task, raw))
        });
        match loaded {
            Ok((task, raw)) => match output.write(dataset, &entry, &task, raw)? {
                Some(fault) => problem(fault.at(entry.file(), Some(&entry.id))),
                None => output.count += 1,
            },
            Err(found) => problem(found),
        }
    }
    output.finish().map(|converted| Converted { left_out, ..converted })
}

struct Output<'a> {
    out: &'a Path,
    target: Target,
    tasks: Option<RowWriter>,
    bugs: Option<RowWriter>,
    count: u64,
}

impl Output<'_> {
    /// Writes one task; a fault means that it has no form in the target.
    fn write(
        &mut self,
        dataset: &Dataset,
        entry: &TaskEntry,
        task: &Task,
        raw: Raw,
    ) -> Result<Option<Fault>, ConvertError> {
        let container = match self.target {
            Target::Jsonl => Container::Jsonl,
            Target::Parquet => Container::Parquet,
            Target::Directories => return self.directory(dataset, entry, raw),
        };
        match raw {
            Raw::Row(row, Shape::SweSmith) => {
                self.environment(task)?;
                let bug = match row::bug(&row) {
                    Ok(bug) => bug,
                    Err(fault) => return Ok(Some(fault)),
                };
                let path = self.out.join(format!("swesmith.{}", container.extension()));
                push(&mut self.bugs, &path, container, &bug)?;
            }
            raw => {
                let archive = match packed(dataset, raw) {
                    Ok(archive) => archive,
                    Err(fault) => return Ok(Some(fault)),
                };
                let row = ArchiveRow {
                    id: entry.id.clone(),
                    instruction: task.instruction.clone(),
                    env_type: task.metadata.get("env_type").and_then(Value::as_str).map(str::to_owned),
                    archive,
                };
                let path = self.out.join(format!("rows.{}", container.extension()));
                push(&mut self.tasks, &path, container, &row)?;
            }
        }
        Ok(None)
    }

    fn directory(&mut self, dataset: &Dataset, entry: &TaskEntry, raw: Raw) -> Result<Option<Fault>, ConvertError> {
        if matches!(raw, Raw::Row(_, Shape::SweSmith)) {
            let remedy = "convert it to jsonl or parquet";
            return Ok(Some(Fault::new("a SWE-smith row has no form as a directory", remedy)));
        }
        let from = match dataset.unpacked(raw) {
            Ok(from) => from,
            Err(fault) => return Ok(Some(fault)),
        };
        let to = self.out.join(safe_name(&entry.id));
        self.copy(&from, &to)?;
        Ok(None)
    }

    /// Copies the directory that stands for a SWE-smith image, once.
    fn environment(&self, task: &Task) -> Result<(), ConvertError> {
        // Where images come first, the environment says that they can be had.
        let ImageSpec::Dockerfile { manifest, context, .. } = &task.environment.image else { return Ok(()) };
        let Some(key) = manifest.as_ref().map(OsStr::new).or(context.root.file_name()) else { return Ok(()) };
        let to = self.out.join("environments").join(key);
        if to.exists() { Ok(()) } else { self.copy(&context.root, &to) }
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<(), ConvertError> {
        let failed = |source: io::Error| ConvertError { path: to.to_owned(), source };
        if to.exists() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        fs::create_dir_all(to).map_err(failed)?;
        let copied =
            Tree::read(from, &Limits::default()).and_then(|tree| normalize::copy(&tree, tree.entries.iter(), &[], to));
        copied.map_err(|fault| failed(fault.into()))
    }

    fn finish(self) -> Result<Converted, ConvertError> {
        let mut converted = Converted { tasks: self.count, ..Converted::default() };
        if self.target == Target::Directories {
            converted.written.push(self.out.to_owned());
        }
        for writer in [self.tasks, self.bugs].into_iter().flatten() {
            let path = writer.path().to_owned();
            converted.written.push(writer.finish().map_err(|source| ConvertError { path, source })?);
        }
        Ok(converted)
    }
}

fn push(
    writer: &mut Option<RowWriter>,
    path: &Path,
    container: Container,
    row: &impl Rows,
) -> Result<(), ConvertError> {
    let failed = |source: io::Error| ConvertError { path: path.to_owned(), source };
    let writer = match writer {
        Some(writer) => writer,
        None if path.exists() => return Err(failed(io::ErrorKind::AlreadyExists.into())),
        None => writer.insert(RowWriter::create(path, container).map_err(failed)?),
    };
    writer.push(row).map_err(failed)
}

/// The archive of a task: as it is in a row, or made from its directory.
fn packed(dataset: &Dataset, raw: Raw) -> Result<Vec<u8>, Fault> {
    match raw {
        Raw::Directory(path) => pack(&path, dataset.limits()),
        Raw::Row(row, _) => row::archive_bytes(row),
    }
}

/// A name for files: the id if it is plain, else its plain characters and a short digest that keeps it unique, also
/// where letter case does not count.
#[must_use]
pub fn safe_name(id: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
    if (1..=100).contains(&id.len()) && id.chars().all(plain) && !id.starts_with('.') {
        return id.to_owned();
    }
    let shown: String = id.chars().map(|c| if plain(c.to_ascii_lowercase()) { c } else { '-' }).take(80).collect();
    format!("{}-{}", shown.trim_start_matches('.'), Digest::of(id.as_bytes()).short(8))
}
