//! Writing row files: the same rows give the same bytes, and a file appears whole or not at all.

mod columns;
mod pack;

use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use columns::Columns;
pub(crate) use pack::pack;
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::limits::Limits;
use crate::problem::Fault;

/// A task in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveRow {
    /// The task's id.
    pub id: String,
    /// Its instruction.
    pub instruction: String,
    /// What kind of environment it wants, if it is not the usual one.
    pub env_type: Option<String>,
    /// A gzip tar archive of its directory.
    pub archive: Vec<u8>,
}

impl ArchiveRow {
    /// Packs a task directory. The archive depends on nothing but the files in it.
    ///
    /// # Errors
    /// What of the directory cannot be packed, in words.
    pub fn pack(id: &str, instruction: &str, directory: &Path) -> Result<Self, String> {
        let archive =
            pack(directory, &Limits::default()).map_err(|fault| format!("{} ({})", fault.what, fault.remedy))?;
        Ok(Self { id: id.to_owned(), instruction: instruction.to_owned(), env_type: None, archive })
    }
}

/// A SWE-smith task, with the columns of the published sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BugRow {
    /// `owner__repo.commit.kind`.
    pub instance_id: String,
    /// The patch that introduces the bug.
    pub patch: String,
    /// Tests that the bug breaks.
    #[serde(rename = "FAIL_TO_PASS")]
    pub fail_to_pass: Vec<String>,
    /// Tests that work nevertheless.
    #[serde(rename = "PASS_TO_PASS")]
    pub pass_to_pass: Vec<String>,
    /// The published image.
    pub image_name: String,
    /// The repository's mirror.
    pub repo: String,
    /// What a user would report.
    pub problem_statement: String,
}

/// What a row file consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// One JSON object per line.
    Jsonl,
    /// Parquet, compressed with zstd.
    Parquet,
}

impl Container {
    /// The usual ending of such files.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
        }
    }
}

/// Rows that can be written to one file.
pub trait Rows {
    /// The row as a JSON object; its keys have a fixed order.
    fn json(&self) -> impl Serialize + '_;
    /// Its columns in Parquet.
    fn columns(&self) -> Columns;
}

#[derive(Serialize)]
struct ArchiveJson<'a> {
    task_id: &'a str,
    prompt: &'a str,
    instruction: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    env_type: Option<&'a str>,
    task_files: TaskFiles,
}

#[derive(Serialize)]
struct TaskFiles {
    encoding: &'static str,
    content: String,
}

impl Rows for ArchiveRow {
    fn json(&self) -> impl Serialize + '_ {
        ArchiveJson {
            task_id: &self.id,
            prompt: &self.instruction,
            instruction: &self.instruction,
            env_type: self.env_type.as_deref(),
            task_files: TaskFiles { encoding: "tar.gz+base64", content: STANDARD.encode(&self.archive) },
        }
    }

    fn columns(&self) -> Columns {
        Columns::default()
            .text("path", &self.id)
            .binary("task_binary", &self.archive)
            .text("instruction", &self.instruction)
            .text("env_type", self.env_type.as_deref().unwrap_or_default())
    }
}

impl Rows for BugRow {
    fn json(&self) -> impl Serialize + '_ {
        self
    }

    fn columns(&self) -> Columns {
        Columns::default()
            .text("instance_id", &self.instance_id)
            .text("patch", &self.patch)
            .texts("FAIL_TO_PASS", &self.fail_to_pass)
            .texts("PASS_TO_PASS", &self.pass_to_pass)
            .text("image_name", &self.image_name)
            .text("repo", &self.repo)
            .text("problem_statement", &self.problem_statement)
    }
}

/// A row file being written. It comes to its place by [`RowWriter::finish`]; dropped before, it leaves nothing.
pub struct RowWriter {
    path: PathBuf,
    sink: Sink,
}

enum Sink {
    Json(BufWriter<NamedTempFile>),
    /// The writer exists once the first row has said which columns there are.
    Parquet(NamedTempFile, Option<columns::Writer>),
}

impl RowWriter {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(path: &Path, container: Container) -> io::Result<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent)?;
        let file = tempfile::Builder::new().prefix(".new-").tempfile_in(parent)?;
        let sink = match container {
            Container::Jsonl => Sink::Json(BufWriter::new(file)),
            Container::Parquet => Sink::Parquet(file, None),
        };
        Ok(Self { path: path.to_owned(), sink })
    }

    /// Adds a row. Rows are written as they come; memory stays bounded.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn push(&mut self, row: &impl Rows) -> io::Result<()> {
        match &mut self.sink {
            Sink::Json(file) => {
                serde_json::to_writer(&mut *file, &row.json())?;
                file.write_all(b"\n")
            }
            Sink::Parquet(file, writer) => {
                let columns = row.columns();
                let writer = match writer {
                    Some(writer) => writer,
                    None => writer.insert(columns::Writer::new(file.reopen()?, &columns)?),
                };
                writer.push(columns)
            }
        }
    }

    /// Where the file will be.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// Those of the file system, and [`io::ErrorKind::AlreadyExists`] when something is there.
    pub fn finish(self) -> io::Result<PathBuf> {
        let file = match self.sink {
            Sink::Json(file) => file.into_inner().map_err(io::IntoInnerError::into_error)?,
            Sink::Parquet(file, writer) => {
                writer.map_or(Ok(()), columns::Writer::finish)?;
                file
            }
        };
        file.as_file().sync_all()?;
        set_readable(file.path())?;
        file.persist_noclobber(&self.path).map_err(|error| error.error)?;
        Ok(self.path)
    }
}

/// Temporary files are made for their owner alone; a data set is for everybody.
fn set_readable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        Self::other(format!("{} ({})", fault.what, fault.remedy))
    }
}
