//! Files of the reference backend, placed and packed through `/proc/PID/root`.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Component, Path, PathBuf};

use sandbox_bench_core::*;

/// Refuses inputs that have no place in a sandbox.
pub fn check(input: &Input) -> Result<()> {
    let to = &input.entry.destination;
    let dots = Path::new(to).components().any(|part| part == Component::ParentDir);
    if !to.starts_with('/') || dots || to.contains('\0') {
        return Err(Error::invalid(format!("input {}: {to:?} is no absolute path", input.entry.name)));
    }
    let Payload::Tree { tar } = &input.payload else { return Ok(()) };
    let broken = |e: io::Error| Error::invalid(format!("input {}: not a tar file", input.entry.name)).because(e);
    for entry in tar::Archive::new(File::open(tar).map_err(broken)?).entries().map_err(broken)? {
        let entry = entry.map_err(broken)?;
        let path = entry.path().map_err(broken)?;
        if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(Error::invalid(format!("input {}: the member {path:?} leaves it", input.entry.name)));
        }
    }
    Ok(())
}

/// Places one input.
pub fn place(view: &Path, input: &Input) -> Result<()> {
    let to = view.join(input.entry.destination.trim_start_matches('/'));
    let placed = match &input.payload {
        Payload::Bytes { bytes, mode } => write(&to, *mode, &mut &bytes[..]),
        Payload::File { path, mode } => File::open(path).and_then(|mut file| write(&to, *mode, &mut file)),
        Payload::Tree { tar } => unpack(&to, tar),
    };
    placed.map_err(|e| Error::new(ErrorKind::Failed, format!("cannot place {}", input.entry.destination)).because(e))
}

fn write(to: &Path, mode: u32, from: &mut dyn Read) -> io::Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::remove_file(to).ok();
    io::copy(from, &mut File::create_new(to)?)?;
    fs::set_permissions(to, Permissions::from_mode(mode))
}

fn unpack(to: &Path, tar: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in tar::Archive::new(File::open(tar)?).entries()? {
        let mut entry = entry?;
        let (path, mode) = (to.join(entry.path()?), entry.header().mode()? & 0o7777);
        match entry.header().entry_type() {
            tar::EntryType::Directory => {
                fs::create_dir_all(&path)?;
                fs::set_permissions(&path, Permissions::from_mode(mode))?;
            }
            tar::EntryType::Symlink => {
                fs::remove_file(&path).ok();
                symlink(entry.link_name()?.unwrap_or_default(), &path)?;
                lchown(&path, Some(0), Some(0))?;
            }
            _ => write(&path, mode, &mut entry)?,
        }
    }
    Ok(())
}

/// Writes the file or directory `from` as a tar stream of at most `limit` bytes. Returns its size.
pub fn pack(view: &Path, from: &str, to: &Path, limit: u64) -> Result<u64> {
    // Whatever comes of it, an older file of this name does not stay.
    fs::remove_file(to).ok();
    if !from.starts_with('/') || from.contains('\0') {
        return Err(Error::invalid(format!("{from:?} is no absolute path")));
    }
    let path = view.join(from.trim_start_matches('/'));
    let name = path.file_name().map(PathBuf::from).unwrap_or_else(|| ".".into());
    if path.symlink_metadata().is_err() {
        return Err(Error::new(ErrorKind::NotFound, format!("{from}: not found")));
    }
    let mut packed = File::create(to).map(|file| tar::Builder::new(Bounded { file, left: limit, written: 0 }));
    let done = packed.as_mut().map_err(|e| io::Error::other(e.to_string())).and_then(|tar| add(tar, &path, &name));
    match done.and(packed).and_then(tar::Builder::into_inner) {
        Ok(bounded) => Ok(bounded.written),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Err(Error::invalid(format!("{from}: more than {limit} bytes")).hint("raise the limit"))
        }
        Err(error) => Err(Error::new(ErrorKind::Failed, format!("cannot pack {from}")).because(error)),
    }
}

fn add(tar: &mut tar::Builder<Bounded>, path: &Path, name: &Path) -> io::Result<()> {
    let Ok(meta) = path.symlink_metadata() else { return Ok(()) };
    let mut header = tar::Header::new_gnu();
    header.set_mode(meta.mode() & 0o7777);
    header.set_uid(meta.uid().into());
    header.set_gid(meta.gid().into());
    header.set_mtime(u64::try_from(meta.mtime()).unwrap_or(0));
    header.set_size(0);
    if meta.is_symlink() {
        header.set_entry_type(tar::EntryType::Symlink);
        return tar.append_link(&mut header, name, fs::read_link(path)?);
    }
    if meta.is_dir() {
        header.set_entry_type(tar::EntryType::Directory);
        tar.append_data(&mut header, name, io::empty())?;
        let mut below: Vec<_> = fs::read_dir(path)?.flatten().map(|entry| entry.file_name()).collect();
        below.sort();
        return below.iter().try_for_each(|entry| add(tar, &path.join(entry), &name.join(entry)));
    }
    // Opening anything else could block.
    if !meta.is_file() {
        return Ok(());
    }
    let Ok(file) = File::open(path) else { return Ok(()) };
    // Exactly as many bytes as the header says, whatever happens to the file meanwhile.
    header.set_size(meta.len());
    tar.append_data(&mut header, name, file.chain(io::repeat(0)).take(meta.len()))
}

/// A file that refuses to grow beyond a limit.
struct Bounded {
    file: File,
    left: u64,
    written: u64,
}

impl Write for Bounded {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(buf.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        self.written += buf.len() as u64;
        self.file.write_all(buf).map(|()| buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
