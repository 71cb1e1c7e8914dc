//! Unpacks a tar stream into the sandbox.
//!
//! Runs behind the sandbox's own root, so the host is out of reach; it still refuses what would leave the target
//! directory, because an upload that lands elsewhere is a lie about where the files are.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD};
use rustix::thread::{Gid, Uid};

use crate::engine::sys::FdReader;

/// Unpacks with modes, times, symlinks and hard links. Files belong to root, or to `owner`.
///
/// `target` is created with its parents if absent; a symlink there is followed, as every shell command would.
pub(super) fn unpack(stream: BorrowedFd<'_>, target: &str, owner: Option<(u32, u32)>) -> io::Result<()> {
    fs::create_dir_all(target).map_err(|error| named(target, error))?;
    let target = fs::canonicalize(target).map_err(|error| named(target, error))?;
    let mut archive = tar::Archive::new(FdReader(stream));
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    archive.set_preserve_ownerships(false);
    archive.set_overwrite(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let inside = relative(&path).ok_or_else(|| refused(&path, "leaves the target directory"))?;
        let kind = entry.header().entry_type();
        if !(kind.is_file() || kind.is_dir() || kind.is_symlink() || kind.is_hard_link()) {
            return Err(refused(&path, "is neither file, directory nor link"));
        }
        if inside.as_os_str().is_empty() {
            continue;
        }
        let placed = entry.unpack_in(&target).map_err(|error| named(&path.to_string_lossy(), error))?;
        if !placed {
            return Err(refused(&path, "leaves the target directory"));
        }
        if let Some((uid, gid)) = owner {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::chownat(CWD, target.join(inside), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    drain(stream)
}

/// What follows the end marker is padding; a sender that is not heard out would be told of a broken pipe.
fn drain(stream: BorrowedFd<'_>) -> io::Result<()> {
    io::copy(&mut FdReader(stream), &mut io::sink())?;
    Ok(())
}

/// `path` without `.` components, or `None` if it is absolute or climbs.
fn relative(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("refused {}: it {why}", path.display()))
}

pub(super) fn named(path: &str, error: io::Error) -> io::Error {
    // The tar crate wraps its errors; the innermost one says what the system refused.
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    io::Error::new(
        error.kind(),
        format!(
            "{path}: {error}{}",
            match cause.to_string() {
                inner if inner == error.to_string() => String::new(),
                inner => format!(": {inner}"),
            }
        ),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_paths_below_the_target_are_taken() {
        assert_eq!(relative(Path::new("./a/./b")), Some(PathBuf::from("a/b")));
        assert_eq!(relative(Path::new("a/../../b")), None);
        assert_eq!(relative(Path::new("/etc/passwd")), None);
    }

    proptest! {
        #[test]
        fn a_relative_path_never_climbs(path in "[a./]{0,20}") {
            if let Some(clean) = relative(Path::new(&path)) {
                prop_assert!(clean.components().all(|c| matches!(c, Component::Normal(_))));
            }
        }
    }
}
