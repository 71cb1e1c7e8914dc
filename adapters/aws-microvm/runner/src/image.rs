//! What the program does while an image is built, as steps of its Dockerfile, and what that makes possible later.
//!
//! A running MicroVM cannot be saved. But what was changed in it can be told ([`Changes`]), because the image knows what it
//! held ([`index`]); laid over the same image when that is built again ([`apply`]), it gives one with the same files.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::archive;

/// Where the image holds the program and what it knows.
pub(crate) const HOME: &str = "/opt/sandbox-bench";
const INDEX: &str = "index.gz";
const USER: &str = "user";
/// Who the image's commands run as is noted here, by that user.
const NOTE: &str = "/tmp/.sandbox-bench-user";
/// What the build context has of ours; a task's `COPY .` may have brought it anywhere.
const CONTEXT: &str = ".sandbox-bench-context";
/// The member of a layer that lists what was removed.
const REMOVED: &str = ".sandbox-removed";
/// What is no part of an image: the kernel's and the platform's files, what is temporary, and our own.
const APART: [&str; 10] = [
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/tmp",
    "/etc/hosts",
    "/etc/hostname",
    "/etc/resolv.conf",
    "/var/lib/sandbox-runner",
    HOME,
];

/// Does what the arguments after the program's name ask for.
///
/// # Errors
/// What failed, in words.
pub(crate) fn step(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["note-user"] => fs::write(NOTE, crate::sys::own_uid().to_string()),
        ["index"] => index(),
        ["apply", layer] => apply(Path::new(layer)),
        _ => return Err("no such step; there are: note-user, index, apply LAYER".to_owned()),
    };
    done.map_err(|e| format!("{}: {e}", words.join(" ")))
}

/// Number of the user whom the image's commands run as; none if nobody noted it.
pub(crate) fn user() -> Option<String> {
    fs::read_to_string(Path::new(HOME).join(USER)).ok().filter(|user| !user.is_empty())
}

/// Writes down every path of the image, and takes the note of its user home.
fn index() -> io::Result<()> {
    if let Ok(user) = fs::read(NOTE) {
        fs::write(Path::new(HOME).join(USER), user)?;
        fs::remove_file(NOTE)?;
    }
    let file = BufWriter::new(File::create(Path::new(HOME).join(INDEX))?);
    let mut out = GzEncoder::new(file, Compression::fast());
    walk(|path, _| {
        out.write_all(path.as_os_str().as_bytes())?;
        out.write_all(&[0])
    })?;
    out.finish()?.flush()
}

fn read_index() -> io::Result<HashSet<PathBuf>> {
    let mut bytes = Vec::new();
    GzDecoder::new(BufReader::new(File::open(Path::new(HOME).join(INDEX))?)).read_to_end(&mut bytes)?;
    let paths = bytes.split(|b| *b == 0).filter(|path| !path.is_empty());
    Ok(paths.map(|path| PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()))).collect())
}

/// Visits everything that is part of the image, parents first; directories that cannot be read are empty.
fn walk(mut visit: impl FnMut(&Path, &fs::DirEntry) -> io::Result<()>) -> io::Result<()> {
    let mut waiting = vec![PathBuf::from("/")];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if APART.iter().any(|apart| path.as_os_str() == *apart) {
                continue;
            }
            if entry.file_name() == CONTEXT {
                // What cannot be removed is a file of the image.
                let _ = fs::remove_dir_all(&path);
            }
            visit(&path, &entry)?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(path);
            }
        }
    }
    Ok(())
}

/// What there is to save.
pub(crate) struct Changes {
    index: HashSet<PathBuf>,
    /// Seconds and nanoseconds since the epoch from which on a file's change counts.
    since: (i64, i64),
}

impl Changes {
    /// # Errors
    /// The image has no index.
    pub(crate) fn since(since: (i64, i64)) -> io::Result<Self> {
        Ok(Self { index: read_index()?, since })
    }

    /// Writes a layer: what is new or was changed, and a list of what is gone.
    pub(crate) fn write<W: Write>(mut self, to: W) -> io::Result<W> {
        let mut layer = archive::Packer::new(to);
        walk(|path, entry| {
            // It may have vanished.
            let Ok(metadata) = entry.metadata() else { return Ok(()) };
            let known = self.index.remove(path);
            if known && (metadata.ctime(), metadata.ctime_nsec()) < self.since {
                return Ok(());
            }
            layer.add(path, path.strip_prefix("/").unwrap_or(path), &metadata)
        })?;
        let mut gone: Vec<_> = self.index.into_iter().map(|path| path.into_os_string().into_vec()).collect();
        gone.sort();
        layer.text(REMOVED, &gone.join(&0))?;
        layer.finish()
    }
}

/// Removes what a layer says is gone, then unpacks it over the image, owners included.
fn apply(layer: &Path) -> io::Result<()> {
    let open = || Ok::<_, io::Error>(tar::Archive::new(GzDecoder::new(BufReader::new(File::open(layer)?))));
    let mut complete = false;
    for entry in open()?.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        complete |= name == Path::new(archive::END);
        if name == Path::new(REMOVED) {
            let mut list = Vec::new();
            entry.read_to_end(&mut list)?;
            // Longer paths first: what is in a directory goes before it.
            for path in list.split(|b| *b == 0).filter(|path| !path.is_empty()).rev() {
                remove(Path::new(std::ffi::OsStr::from_bytes(path)))?;
            }
        }
    }
    if !complete {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the layer is not whole"));
    }
    let mut archive = open()?;
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(true);
    archive.set_preserve_mtime(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.into_owned();
        if [REMOVED, archive::END].iter().any(|own| name == Path::new(own)) {
            continue;
        }
        let place = Path::new("/").join(&name);
        let directory = entry.header().entry_type().is_dir();
        // What has become something else makes room first.
        match fs::symlink_metadata(&place) {
            Ok(there) if there.is_dir() != directory => remove(&place)?,
            Ok(there) if there.is_symlink() || entry.header().entry_type().is_symlink() => remove(&place)?,
            _ => {}
        }
        entry.unpack_in("/")?;
    }
    fs::remove_file(layer)
}

fn remove(path: &Path) -> io::Result<()> {
    let done = match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    done.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}
