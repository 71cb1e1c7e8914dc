//! Unpacking of tar archives, plain or gzip, into a directory of our own.
//!
//! Whatever the archive says, nothing is written outside the destination, the size and number of members are bounded,
//! and only regular files, directories and links that stay inside are made. Owners and special mode bits are dropped.

mod gunzip;
mod names;
mod tree;

use std::io::{self, BufReader, Read};
use std::path::Path;

use gunzip::{Gunzip, only_zeros};
use tar::EntryType;
use tree::Tree;

use crate::limits::Limits;
use crate::problem::{Fault, excerpt};

/// Unpacks `archive`, which has `packed` bytes, into the empty directory `destination`.
///
/// # Errors
/// An archive that is broken, exceeds a limit, or has a member that is refused. What was written by then stays.
pub(crate) fn unpack(archive: impl Read, packed: u64, destination: &Path, limits: &Limits) -> Result<(), Fault> {
    let limit = limits.unpacked_for(packed);
    unpack_within(archive, limit, destination, limits.members).map_err(|failure| match failure {
        Failure::Refused(fault) => fault,
        Failure::Broken(error) if error.kind() == io::ErrorKind::FileTooLarge => Fault::new(
            format!("the archive of {packed} bytes unpacks to more than {limit}"),
            "pack fewer files, or raise the limits",
        ),
        Failure::Broken(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            Fault::io("unpack to", destination, &error)
        }
        Failure::Broken(error) => Fault::new(format!("the archive is broken: {error}"), "fetch or pack it again"),
    })
}

/// Why an archive is not unpacked.
enum Failure {
    Refused(Fault),
    Broken(io::Error),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

fn unpack_within(archive: impl Read, limit: u64, destination: &Path, most: u64) -> Result<(), Failure> {
    let mut input = BufReader::new(archive);
    let gzip = io::BufRead::fill_buf(&mut input)?.starts_with(&[0x1f, 0x8b]);
    let plain: Box<dyn Read> = if gzip { Box::new(Gunzip::new(input)) } else { Box::new(input) };
    let bounded = Bounded { inner: plain, left: limit };
    let mut archive = tar::Archive::new(bounded);
    let mut tree = Tree::new(destination);
    let mut members = 0;
    for entry in archive.entries()? {
        let mut entry = entry?;
        members += 1;
        if members > most {
            return Err(Fault::new(
                format!("the archive has more than {most} members"),
                "pack fewer files, or raise the limit",
            )
            .into());
        }
        place(&mut tree, &mut entry)?;
    }
    // Reading on to the end checks the checksum of the last gzip member.
    only_zeros(BufReader::new(archive.into_inner()))?;
    Ok(tree.check_links()?)
}

fn place<R: Read>(tree: &mut Tree<'_>, entry: &mut tar::Entry<'_, R>) -> Result<(), Failure> {
    let kind = entry.header().entry_type();
    if kind == EntryType::XGlobalHeader {
        return Ok(());
    }
    let parts = names::parts(&entry.path_bytes())?;
    let link = entry.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default();
    match kind {
        EntryType::Directory => tree.directory(&parts)?,
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            let mode = entry.header().mode().unwrap_or(0o644);
            tree.file(&parts, mode, |file| Ok(io::copy(entry, file).map(|_| ())?))?;
        }
        EntryType::Symlink => tree.symlink(&parts, &link)?,
        EntryType::Link => tree.hard_link(&parts, &names::parts(&link)?)?,
        other => {
            let what = match other {
                EntryType::Fifo => "a named pipe",
                EntryType::Char | EntryType::Block => "a device",
                _ => "of an unknown kind",
            };
            let what = format!("member {} is {what}", excerpt(&parts.join("/")));
            let remedy = "leave it out: only files, directories and links can be in a task";
            return Err(Fault::new(what, remedy).into());
        }
    }
    Ok(())
}

/// A reader that fails once more than `left` bytes come out of it.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
        Ok(read)
    }
}
