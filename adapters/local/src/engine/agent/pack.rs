//! Packs a path of the sandbox into a tar stream.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::unpack::named;

/// Writes `path` as a tar stream whose names begin with the last component of `path`.
///
/// Symlinks are stored as symlinks, except `path` itself, which is followed. Sockets, pipes and devices are left out.
/// Fails once the contents exceed `max_bytes`.
pub(super) fn pack(stream: OwnedFd, path: &str, max_bytes: u64) -> io::Result<()> {
    let source = fs::canonicalize(path).map_err(|error| named(path, error))?;
    let name =
        Path::new(path).file_name().or_else(|| source.file_name()).map_or_else(|| ".".into(), |name| name.to_owned());
    let mut archive = tar::Builder::new(io::BufWriter::with_capacity(1 << 16, File::from(stream)));
    archive.follow_symlinks(false);
    archive.sparse(false);
    let mut budget = Budget { max: max_bytes, left: max_bytes };
    add(&mut archive, &source, Path::new(&name), &mut budget).map_err(|error| named(path, error))?;
    archive.into_inner()?.flush()
}

struct Budget {
    max: u64,
    left: u64,
}

impl Budget {
    fn take(&mut self, bytes: u64) -> io::Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            let message = format!("more than the allowed {} bytes", self.max);
            io::Error::new(io::ErrorKind::FileTooLarge, message)
        })?;
        Ok(())
    }
}

fn add<W: Write>(archive: &mut tar::Builder<W>, source: &Path, name: &Path, budget: &mut Budget) -> io::Result<()> {
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
        for child in children {
            add(archive, &child.path(), &name.join(child.file_name()), budget)?;
        }
    } else if kind.is_file() {
        add_file(archive, source, name, budget)?;
    } else if kind.is_symlink() {
        archive.append_path_with_name(source, name)?;
    }
    Ok(())
}

/// Stores exactly as many bytes as the header announces, whatever the file becomes meanwhile.
fn add_file<W: Write>(
    archive: &mut tar::Builder<W>,
    source: &Path,
    name: &Path,
    budget: &mut Budget,
) -> io::Result<()> {
    // Without blocking, in case a pipe has taken the place of the file.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(source)?;
    let metadata = file.metadata()?;
    budget.take(metadata.len())?;
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
