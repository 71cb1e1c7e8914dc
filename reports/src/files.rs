//! Files that are complete or not there: written beside their place, then moved into it.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::NamedTempFile;

/// A new content for a file. Readers see the old content until [`Replacement::commit`], also if that never comes.
#[derive(Debug)]
pub struct Replacement {
    path: PathBuf,
    writer: BufWriter<NamedTempFile>,
}

impl Replacement {
    /// Begins a new content for `path`, whose directory must be there.
    ///
    /// # Errors
    /// What making a file beside `path` fails with.
    pub fn new(path: &Path) -> io::Result<Self> {
        let file = tempfile::Builder::new()
            .prefix(".unfinished-")
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(directory(path))?;
        Ok(Self { path: path.to_owned(), writer: BufWriter::new(file) })
    }

    /// Makes the new content durable, then puts it in place of the old one.
    ///
    /// # Errors
    /// What writing fails with; the old content then stays.
    pub fn commit(self) -> io::Result<()> {
        let file = self.writer.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.as_file().sync_data()?;
        file.persist(&self.path)?;
        File::open(directory(&self.path))?.sync_all()
    }
}

impl Write for Replacement {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.writer.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Replaces `path` by `value` as readable JSON.
///
/// # Errors
/// What writing fails with; the old content then stays.
pub fn replace_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut file = Replacement::new(path)?;
    serde_json::to_writer_pretty(&mut file, value)?;
    file.write_all(b"\n")?;
    file.commit()
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
