//! A data set: its tasks as a stream of entries, and any of them on demand.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::bundled;
use crate::cache::Cache;
use crate::directory;
use crate::format::Format;
use crate::harbor::{DEFAULT_WORKDIR, Given};
use crate::limits::Limits;
use crate::problem::{DatasetError, Fault, Problem};
use crate::row::{self, Shape};
use crate::source::json::{self, Layout};
use crate::source::parquet;
use crate::source::scan::Scan;
use crate::source::{Kind, Source};
use crate::task::Task;

/// The name of the bundled data set.
pub const BUNDLED: &str = "smoke";

/// How to open a data set.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Read only tasks of this form; none means whatever is there.
    pub format: Option<Format>,
    /// Where SWE-smith environments are looked for before the `environments` directory beside the row file.
    pub environments: Option<PathBuf>,
    /// Directory of ours for unpacked archives and corrected copies. It may be shared by any number of processes.
    pub cache_dir: PathBuf,
    /// Bounds on what the data may cost.
    pub limits: Limits,
}

impl OpenOptions {
    /// Detection of the form, environments beside the row files, default limits.
    #[must_use]
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        Self { format: None, environments: None, cache_dir: cache_dir.into(), limits: Limits::default() }
    }
}

/// An open data set.
#[derive(Debug)]
pub struct Dataset {
    name: String,
    root: PathBuf,
    options: OpenOptions,
    cache: Cache,
}

/// One task of a data set, not loaded: its id and where it is.
#[derive(Debug, Clone)]
pub struct TaskEntry {
    /// Its id, unique in the data set.
    pub id: String,
    source: Arc<Source>,
    locator: Locator,
}

#[derive(Debug, Clone, Copy)]
enum Locator {
    Directory,
    Json(json::Position, Shape),
    Parquet(parquet::Position, Shape),
}

impl TaskEntry {
    /// The file or directory that holds the task, as the user knows it.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.source.shown
    }
}

impl Dataset {
    /// Opens the bundled data set (`smoke`), or the file or directory at a path. Tasks are not read yet.
    ///
    /// # Errors
    /// When there is nothing, it cannot be read, or is no data set in any known form.
    pub fn open(name_or_path: &str, options: OpenOptions) -> Result<Self, DatasetError> {
        let cache = Cache::new(options.cache_dir.clone());
        if name_or_path == BUNDLED {
            let root = bundled::unpack(&cache).map_err(DatasetError::Bundled)?;
            return Ok(Self { name: BUNDLED.to_owned(), root, options, cache });
        }
        let path = PathBuf::from(name_or_path);
        let metadata = fs::metadata(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => DatasetError::NotFound { path: path.clone() },
            _ => DatasetError::Unreadable { path: path.clone(), source: error },
        })?;
        if !metadata.is_dir() && !metadata.is_file() {
            // Opening a pipe would wait for a writer that may never come.
            let why = "it is neither a directory nor a regular file".to_owned();
            return Err(DatasetError::Unrecognised { path, why });
        }
        let readable = if metadata.is_dir() { fs::read_dir(&path).map(|_| ()) } else { File::open(&path).map(|_| ()) };
        readable.map_err(|source| DatasetError::Unreadable { path: path.clone(), source })?;
        if !Scan::recognises(&path) {
            let why = "it must be a directory of tasks, a row file (.jsonl, .ndjson, .json, .parquet) or an archive \
                       (.tar, .tar.gz, .tgz)";
            return Err(DatasetError::Unrecognised { path, why: why.to_owned() });
        }
        let name = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let name = name.file_name().map_or_else(|| name_or_path.to_owned(), |name| name.to_string_lossy().into_owned());
        Ok(Self { name, root: path, options, cache })
    }

    /// Its name: `smoke`, or the last part of its path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its tasks in a fixed order: directories by name, rows as they stand. A task that cannot be listed is a
    /// [`Problem`], and the stream goes on. Only ids are held, never contents.
    pub fn entries(&self) -> impl Iterator<Item = Result<TaskEntry, Problem>> + '_ {
        Entries {
            dataset: self,
            scan: Scan::new(&self.root, self.options.format, &self.cache, &self.options.limits),
            open: None,
            seen: HashMap::new(),
        }
    }

    /// Loads one task. Archives are unpacked into the cache directory; loading the same task many times, also at one
    /// time, is safe.
    ///
    /// # Errors
    /// What is wrong with the task.
    pub fn load(&self, entry: &TaskEntry) -> Result<Task, Problem> {
        self.load_located(entry).map_err(|fault| fault.at(&entry.source.shown, Some(&entry.id)))
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.options.limits
    }

    /// Where the data set is read.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What the entry stands for, as it is.
    pub(crate) fn raw(&self, entry: &TaskEntry) -> Result<Raw, Fault> {
        let source = &entry.source;
        let (row, shape) = match entry.locator {
            Locator::Directory => return Ok(Raw::Directory(source.path.clone())),
            Locator::Json(position, shape) => (parse_row(&json::read(&source.path, position)?)?, shape),
            Locator::Parquet(position, shape) => (source.table()?.row(position)?, shape),
        };
        if qualified(source, shape, row::id(&row, shape)?) != entry.id {
            return Err(Fault::new("another row is there now", "do not change the file while it is in use"));
        }
        Ok(Raw::Row(row, shape))
    }

    /// The directory of a task, unpacked if need be.
    pub(crate) fn unpacked(&self, raw: Raw) -> Result<PathBuf, Fault> {
        match raw {
            Raw::Directory(path) => Ok(path),
            Raw::Row(row, _) => row::unpack(&row::archive_bytes(row)?, &self.cache, &self.options.limits),
        }
    }

    fn load_located(&self, entry: &TaskEntry) -> Result<Task, Fault> {
        let (row, shape) = match self.raw(entry)? {
            Raw::Row(row, shape) => (row, shape),
            Raw::Directory(path) => {
                let given = Given { id: &entry.id, instruction: None, default_workdir: DEFAULT_WORKDIR };
                return directory::load(&path, given, &self.cache, &self.options.limits);
            }
        };
        let beside = entry.source.path.parent().unwrap_or(Path::new("")).join("environments");
        let environments: Vec<&Path> =
            self.options.environments.as_deref().into_iter().chain([beside.as_path()]).collect();
        let context = row::Context {
            id: &entry.id,
            cache: &self.cache,
            limits: &self.options.limits,
            environments: &environments,
        };
        row::load(row, shape, &context)
    }
}

/// A task as it is in the data set.
pub(crate) enum Raw {
    /// A task directory.
    Directory(PathBuf),
    /// A row.
    Row(Map<String, Value>, Shape),
}

/// The stream of entries.
struct Entries<'a> {
    dataset: &'a Dataset,
    scan: Scan<'a>,
    open: Option<(Arc<Source>, Reader)>,
    /// Where each id was seen first.
    seen: HashMap<String, Arc<Source>>,
}

/// What is left of the source that is being read.
enum Reader {
    Once,
    Json(json::Rows<BufReader<File>>),
    Parquet { rows: parquet::Rows, shape: Shape },
}

type Listed = Result<(String, Locator), (Option<String>, Fault)>;

impl Entries<'_> {
    fn open(&self, source: &Source) -> Result<Reader, Fault> {
        match &source.kind {
            Kind::Directory { .. } => Ok(Reader::Once),
            Kind::Json(layout) => {
                let file = File::open(&source.path).map_err(|error| Fault::io("read", &source.path, &error))?;
                let limit = self.dataset.options.limits.row_bytes;
                Ok(Reader::Json(json::Rows::new(BufReader::with_capacity(1 << 16, file), *layout, limit)))
            }
            Kind::Parquet(_) => {
                let table = source.table()?;
                let shape = self.shape(|column| table.has(column))?;
                Ok(Reader::Parquet { rows: parquet::Rows::new(table, row::id_columns(shape)), shape })
            }
        }
    }

    fn shape(&self, has: impl Fn(&str) -> bool) -> Result<Shape, Fault> {
        match self.dataset.options.format {
            // The user knows better than the keys.
            Some(Format::SweSmith) if has("instance_id") => Ok(Shape::SweSmith),
            Some(Format::TaskRows) => row::shape(|key| !matches!(key, "instance_id" | "patch") && has(key)),
            _ => row::shape(has),
        }
    }

    fn list(&self, source: &Source, reader: &mut Reader, first: bool) -> Option<Listed> {
        match reader {
            Reader::Once => {
                let Kind::Directory { id } = &source.kind else { return None };
                let id = id.clone().unwrap_or_else(|| directory::id(&source.path));
                first.then_some(Ok((id, Locator::Directory)))
            }
            Reader::Json(rows) => {
                let unit = match source.kind {
                    Kind::Json(layout) => layout.unit(),
                    _ => Layout::Lines.unit(),
                };
                let position = match rows.advance()? {
                    Ok(position) => position,
                    Err((number, fault)) => return Some(Err((Some(format!("{unit} {number}")), fault))),
                };
                let listed = parse_row(rows.text()).and_then(|row| {
                    let shape = self.shape(|key| row.get(key).is_some_and(|value| !value.is_null()))?;
                    Ok((qualified(source, shape, row::id(&row, shape)?), Locator::Json(position, shape)))
                });
                Some(listed.map_err(|fault| (Some(format!("{unit} {}", position.number)), fault)))
            }
            Reader::Parquet { rows, shape } => {
                let (position, row) = match rows.next()? {
                    Ok(found) => found,
                    Err(fault) => return Some(Err((None, fault))),
                };
                let id = row::id(&row, *shape).map_err(|fault| (Some(format!("row {}", position.number)), fault));
                Some(id.map(|id| (qualified(source, *shape, id), Locator::Parquet(position, *shape))))
            }
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<TaskEntry, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (source, mut reader, first) = match self.open.take() {
                Some((source, reader)) => (source, reader, false),
                None => {
                    let source = match self.scan.next()? {
                        Ok(source) => Arc::new(source),
                        Err(problem) => return Some(Err(problem)),
                    };
                    match self.open(&source) {
                        Ok(reader) => (source, reader, true),
                        Err(fault) => return Some(Err(fault.at(&source.shown, None))),
                    }
                }
            };
            let Some(listed) = self.list(&source, &mut reader, first) else { continue };
            self.open = Some((Arc::clone(&source), reader));
            let (id, locator) = match listed {
                Ok(listed) => listed,
                Err((task, fault)) => return Some(Err(fault.at(&source.shown, task.as_deref()))),
            };
            if let Some(earlier) = self.seen.get(&id) {
                let what = format!("the id is used twice; it was first in {}", earlier.shown.display());
                return Some(Err(Fault::new(what, "give every task its own id").at(&source.shown, Some(&id))));
            }
            self.seen.insert(id.clone(), Arc::clone(&source));
            return Some(Ok(TaskEntry { id, source, locator }));
        }
    }
}

fn parse_row(text: &[u8]) -> Result<Map<String, Value>, Fault> {
    serde_json::from_slice(text.trim_ascii()).map_err(|error| {
        let message = error.to_string();
        // The row is one line, whatever line of the file it is.
        let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
        let what = format!("the row is no JSON object: {what} at column {}", error.column());
        Fault::new(what, "correct the row, or fetch the file again")
    })
}

/// The id in the data set: `path` rows of several sources carry the source's name.
fn qualified(source: &Source, shape: Shape, id: String) -> String {
    match (&source.qualifier, shape) {
        (Some(qualifier), Shape::TaskBinary) => format!("{qualifier}/{id}"),
        _ => id,
    }
}
