//! Packs a path of the sandbox into a tar stream.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::unpack::named;

/// Writes `path` as a tar stream whose names begin with the last component of `path`.
///
/// Symlinks are stored as such, also `path` itself. Sockets, pipes and devices are left out. Fails with
/// [`io::ErrorKind::FileTooLarge`] once the stream exceeds `max_bytes`.
pub(super) fn pack(stream: OwnedFd, path: &str, max_bytes: u64) -> io::Result<()> {
    // A trailing slash would make the kernel follow a symlink.
    let source: PathBuf = Path::new(path).components().collect();
    let name = source.file_name().map_or_else(|| Path::new("."), Path::new);
    fs::symlink_metadata(&source).map_err(|error| match error.kind() {
        io::ErrorKind::NotADirectory => named(path, io::Error::new(io::ErrorKind::NotFound, error)),
        _ => named(path, error),
    })?;
    let limited = Limited { inner: File::from(stream), left: max_bytes, max: max_bytes };
    let mut archive = tar::Builder::new(BufWriter::with_capacity(1 << 16, limited));
    archive.follow_symlinks(false);
    add(&mut archive, &source, name).and_then(|()| archive.into_inner()?.flush()).map_err(|error| named(path, error))
}

fn add<W: Write>(archive: &mut tar::Builder<W>, source: &Path, name: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(source) {
        Ok(metadata) => metadata,
        // Vanished between listing and packing: the sandbox may still be busy.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let kind = metadata.file_type();
    if kind.is_dir() {
        archive.append_dir(name, source)?;
        let mut children: Vec<_> = fs::read_dir(source)?.collect::<Result<_, _>>()?;
        children.sort_by_key(fs::DirEntry::file_name);
        children.iter().try_for_each(|child| add(archive, &child.path(), &name.join(child.file_name())))
    } else if kind.is_file() {
        add_file(archive, source, name)
    } else if kind.is_symlink() {
        archive.append_path_with_name(source, name)
    } else {
        Ok(())
    }
}

/// Stores exactly as many bytes as the header announces, whatever the file becomes meanwhile.
fn add_file<W: Write>(archive: &mut tar::Builder<W>, source: &Path, name: &Path) -> io::Result<()> {
    // Without blocking, in case a pipe has taken the place of the file.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(source)?;
    let metadata = file.metadata()?;
    let mut header = tar::Header::new_gnu();
    header.set_metadata(&metadata);
    let mut content = file.take(metadata.len());
    archive.append_data(&mut header, name, &mut content)?;
    match content.limit() {
        0 => Ok(()),
        missing => {
            Err(io::Error::other(format!("{} became {missing} bytes shorter while it was read", source.display())))
        }
    }
}

/// Refuses to write more than a limit.
struct Limited<W> {
    inner: W,
    left: u64,
    max: u64,
}

impl<W: Write> Write for Limited<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let message = || format!("more than the allowed {} bytes", self.max);
        self.left = self
            .left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| io::Error::new(io::ErrorKind::FileTooLarge, message()))?;
        self.inner.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
