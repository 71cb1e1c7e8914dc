//! Applies the layers of an image to a directory.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD};
use rustix::thread::{Gid, Uid};
use sha2::{Digest, Sha256};

use super::{Blob, Check, Unpack};

/// An image that unpacks to more than this is taken for a bomb.
const MAX_BYTES: u64 = 64 << 30;
/// Likewise for the number of its entries.
const MAX_ENTRIES: u64 = 10_000_000;
/// Prefix of a whiteout: the rest of the name is deleted (OCI image specification, "Whiteouts").
const WHITEOUT: &str = ".wh.";
/// Everything that lower layers had in this directory is deleted.
const OPAQUE: &str = ".wh..wh..opq";

/// Unpacks behind a `chroot` into the target: the process is not good for anything else afterwards.
pub(crate) fn unpack(order: &Unpack) -> io::Result<()> {
    let files = order.layers.iter().map(|layer| File::open(&layer.file)).collect::<io::Result<Vec<_>>>()?;
    rustix::process::chroot(&order.target)?;
    std::env::set_current_dir("/")?;
    rustix::process::umask(rustix::fs::Mode::empty());
    let mut limits = Limits { bytes: MAX_BYTES, entries: MAX_ENTRIES };
    for (layer, file) in order.layers.iter().zip(files) {
        apply(layer, file, order.mapped_ids, &mut limits)?;
    }
    Ok(())
}

struct Limits {
    bytes: u64,
    entries: u64,
}

impl Limits {
    fn take(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.bytes.checked_sub(bytes).zip(self.entries.checked_sub(1));
        let (bytes, entries) =
            left.ok_or_else(|| invalid("the image unpacks to more than 64 GiB or 10 million files"))?;
        (self.bytes, self.entries) = (bytes, entries);
        Ok(())
    }
}

fn apply(layer: &Blob, mut file: File, mapped_ids: u32, limits: &mut Limits) -> io::Result<()> {
    file.seek(SeekFrom::Start(layer.offset))?;
    let mut stored = Hashing::new(file.take(layer.size), matches!(layer.check, Check::Stored(_)));
    let mut content = Hashing::new(decompress(&mut stored)?, matches!(layer.check, Check::Content(_)));
    let mut archive = tar::Archive::new(&mut content);
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    archive.set_overwrite(true);
    let mut seen = HashSet::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        limits.take(entry.size())?;
        place(&mut entry, mapped_ids, &mut seen)?;
    }
    // A digest covers the padding after the end marker as well.
    io::copy(&mut content, &mut io::sink())?;
    let content_digest = content.digest();
    drop(content);
    io::copy(&mut stored, &mut io::sink())?;
    let (expected, actual) = match &layer.check {
        Check::Stored(expected) => (expected, stored.digest()),
        Check::Content(expected) => (expected, content_digest),
        Check::Nothing => return Ok(()),
    };
    if *expected == actual {
        Ok(())
    } else {
        Err(invalid(format!("layer has SHA-256 {actual} where the image announces {expected}: the file is damaged")))
    }
}

fn place<R: Read>(entry: &mut tar::Entry<'_, R>, mapped_ids: u32, seen: &mut HashSet<PathBuf>) -> io::Result<()> {
    let named = entry.path()?.into_owned();
    let path = absolute(&named).ok_or_else(|| invalid(format!("entry {} leaves the image", named.display())))?;
    let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
        return Ok(());
    };
    if name == OPAQUE {
        return empty(path.parent().unwrap_or(Path::new("/")), seen);
    }
    if let Some(hidden) = name.strip_prefix(WHITEOUT) {
        return remove(&path.with_file_name(hidden));
    }
    let kind = entry.header().entry_type();
    if !(kind.is_file() || kind.is_dir() || kind.is_symlink() || kind.is_hard_link()) {
        // Device nodes cannot be made in a user namespace; /dev is the sandbox's own anyway.
        return Ok(());
    }
    // What a lower layer had there is replaced, unless both are directories.
    if fs::symlink_metadata(&path).is_ok_and(|old| !(old.is_dir() && kind.is_dir())) {
        remove(&path)?;
    }
    let context = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", named.display()));
    if !entry.unpack_in("/").map_err(context)? {
        return Err(invalid(format!("entry {} leaves the image", named.display())));
    }
    if !kind.is_hard_link() {
        give(&path, entry.header(), mapped_ids).map_err(context)?;
    }
    seen.insert(path);
    Ok(())
}

/// Gives the file to its owner, as far as the owner has an id here.
fn give(path: &Path, header: &tar::Header, mapped_ids: u32) -> io::Result<()> {
    // Some archivers leave the fields blank, which means root.
    let mapped = |id: io::Result<u64>| id.ok().and_then(|id| u32::try_from(id).ok()).filter(|id| *id < mapped_ids);
    let uid = mapped(header.uid()).unwrap_or(0);
    let gid = mapped(header.gid()).unwrap_or(0);
    if (uid, gid) == (0, 0) {
        return Ok(());
    }
    rustix::fs::chownat(CWD, path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = header.mode()?;
    if mode & 0o6000 != 0 && !header.entry_type().is_symlink() {
        // Changing the owner clears these bits.
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777))?;
    }
    Ok(())
}

/// Deletes what lower layers left in a directory; what this layer has placed there stays.
fn empty(directory: &Path, seen: &HashSet<PathBuf>) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        if !seen.contains(&path) {
            remove(&path)?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// The path from the root of the image, or `None` if it is absolute or climbs.
fn absolute(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}

/// Passes bytes through and hashes them if somebody will ask.
struct Hashing<R> {
    inner: R,
    hash: Option<Sha256>,
}

impl<R> Hashing<R> {
    fn new(inner: R, wanted: bool) -> Self {
        Hashing { inner, hash: wanted.then(Sha256::new) }
    }

    fn digest(&self) -> String {
        let digest = self.hash.clone().unwrap_or_default().finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if let Some(hash) = &mut self.hash {
            hash.update(buffer.get(..read).unwrap_or_default());
        }
        Ok(read)
    }
}

/// The content of a gzip or zstd stream, or the bytes themselves.
pub(super) fn decompress<'a>(source: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut source = BufReader::with_capacity(1 << 16, source);
    let magic = source.fill_buf()?;
    Ok(match compression(magic) {
        Some(Compression::Gzip) => Box::new(flate2::bufread::MultiGzDecoder::new(source)),
        Some(Compression::Zstd) => Box::new(zstd::stream::read::Decoder::with_buffer(source)?),
        None => Box::new(source),
    })
}

pub(super) enum Compression {
    Gzip,
    Zstd,
}

/// By magic number: RFC 1952 §2.3.1 and RFC 8878 §3.1.1.
pub(super) fn compression(start: &[u8]) -> Option<Compression> {
    if start.starts_with(&[0x1f, 0x8b]) {
        Some(Compression::Gzip)
    } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Some(Compression::Zstd)
    } else {
        None
    }
}

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}
