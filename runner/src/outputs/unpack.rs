//! Unpacking what came out of a sandbox. Its content is hostile.
//!
//! Only directories and regular files are made, below a directory of ours, with modes of ours. Links, devices, pipes
//! and names that lead elsewhere are skipped and listed. As no link is ever made, none can be followed, now or by the
//! reader of the result. Everything is bounded: bytes, members, depth, header size, and the list of what was skipped.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use tar::{Archive, Entry, EntryType};

/// The deepest path that is unpacked, in components.
const MAX_DEPTH: usize = 64;

/// Most bytes of headers (long names, extended attributes) of one member: the tar reader holds them in memory.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Most skipped members that are listed; the others are counted.
const MAX_LISTED: usize = 100;

/// Bounds of what is unpacked.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most bytes in all files together.
    pub bytes: u64,
    /// Most members, skipped ones included.
    pub members: u64,
}

/// What was unpacked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Regular files written.
    pub files: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Members that were left out, the first 100.
    pub skipped: Vec<Skipped>,
    /// Number of all members that were left out.
    pub skipped_count: u64,
    /// Why unpacking stopped before the end of the archive: a limit, or damage. What was unpacked until then stays.
    pub stopped: Option<String>,
}

/// A member that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its name, as the archive has it, cut to 200 characters.
    pub name: String,
    /// Why it was left out.
    pub why: String,
}

/// Unpacks an uncompressed tar file into `dest`, which is made if it is not there and must hold nothing that anybody
/// else can change. Blocks while it works.
///
/// # Errors
/// The host's disk failed. What is wrong with the archive is no error, but told in the result.
pub fn unpack_safely(tar: &Path, dest: &Path, limits: Limits) -> io::Result<Unpacked> {
    fs::create_dir_all(dest)?;
    let allowance = Rc::new(Cell::new(MAX_HEADER_BYTES));
    let mut archive = Archive::new(Metered { inner: File::open(tar)?, allowance: Rc::clone(&allowance) });
    let mut unpacked = Unpacked::default();
    let mut members = archive.entries_with_seek()?;
    for number in 1.. {
        allowance.set(MAX_HEADER_BYTES);
        let mut member = match members.next() {
            None => break,
            Some(Ok(member)) => member,
            Some(Err(error)) => {
                unpacked.stopped = Some(format!("damaged at member {number}: {error}"));
                break;
            }
        };
        if number > limits.members {
            unpacked.stopped = Some(format!("more than {} members", limits.members));
            break;
        }
        allowance.set(u64::MAX);
        match place(&mut member, dest, limits.bytes - unpacked.bytes) {
            Ok(Placed::Directory) => {}
            Ok(Placed::File(bytes)) => {
                unpacked.files += 1;
                unpacked.bytes += bytes;
            }
            Err(Refusal::Skip(why)) => unpacked.skip(&member, why),
            Err(Refusal::Stop(why)) => {
                unpacked.skip(&member, why.clone());
                unpacked.stopped = Some(why);
                break;
            }
            Err(Refusal::Disk(error)) => return Err(error),
        }
    }
    Ok(unpacked)
}

impl Unpacked {
    fn skip(&mut self, member: &Entry<'_, impl Read>, why: String) {
        self.skipped_count += 1;
        if self.skipped.len() < MAX_LISTED {
            let name = String::from_utf8_lossy(&member.path_bytes()).chars().take(200).collect();
            self.skipped.push(Skipped { name, why });
        }
    }
}

/// What became of a member.
enum Placed {
    Directory,
    File(u64),
}

/// Why a member was not placed.
enum Refusal {
    /// It is left out.
    Skip(String),
    /// Nothing more can be unpacked.
    Stop(String),
    /// The host failed.
    Disk(io::Error),
}

fn place(member: &mut Entry<'_, impl Read>, dest: &Path, room: u64) -> Result<Placed, Refusal> {
    let skip = |why: &str| Err(Refusal::Skip(why.to_owned()));
    let relative = relative_path(member)?;
    let path = dest.join(&relative);
    match member.header().entry_type() {
        EntryType::Directory => {
            make_directories(&path)?;
            Ok(Placed::Directory)
        }
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            if relative.as_os_str().is_empty() {
                return skip("a file without a name");
            }
            if member.size() > room {
                return Err(Refusal::Stop("the files are larger than the limit".to_owned()));
            }
            make_directories(path.parent().unwrap_or(dest))?;
            write(member, &path).map(Placed::File)
        }
        EntryType::Symlink | EntryType::Link => skip("links are not made"),
        EntryType::Char | EntryType::Block => skip("devices are not made"),
        EntryType::Fifo => skip("pipes are not made"),
        // Facts about the archive as a whole (such as the commit that `git archive` notes): not a member.
        EntryType::XGlobalHeader => Ok(Placed::Directory),
        _ => skip("an unknown kind of member"),
    }
}

/// The member's path, if it stays below the destination.
fn relative_path(member: &Entry<'_, impl Read>) -> Result<PathBuf, Refusal> {
    let skip = |why: &str| Err(Refusal::Skip(why.to_owned()));
    let Ok(path) = member.path() else { return skip("a name that cannot be a path") };
    let mut relative = PathBuf::new();
    let mut depth = 0;
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => {
                relative.push(name);
                depth += 1;
            }
            Component::ParentDir => return skip("its name leads out of the archive"),
            Component::RootDir | Component::Prefix(_) => return skip("its name is absolute"),
        }
    }
    if depth > MAX_DEPTH { skip("it lies too deep") } else { Ok(relative) }
}

fn make_directories(path: &Path) -> Result<(), Refusal> {
    fs::create_dir_all(path).map_err(refusal)
}

/// Writes a regular file over what an earlier member of the same name left. Of the mode only "executable" is taken.
fn write(member: &mut Entry<'_, impl Read>, path: &Path) -> Result<u64, Refusal> {
    let executable = member.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
    let mut file = File::options().write(true).create(true).truncate(true).open(path).map_err(refusal)?;
    let mode = if executable { 0o755 } else { 0o644 };
    file.set_permissions(fs::Permissions::from_mode(mode)).map_err(Refusal::Disk)?;
    let expected = member.size();
    let mut buffer = [0; 16 << 10];
    let mut written = 0;
    loop {
        let n = member.read(&mut buffer).map_err(|e| Refusal::Stop(format!("damaged: {e}")))?;
        if n == 0 {
            break;
        }
        file.write_all(buffer.get(..n).unwrap_or_default()).map_err(Refusal::Disk)?;
        written += n as u64;
    }
    if written == expected { Ok(written) } else { Err(Refusal::Stop("the archive ends within a file".to_owned())) }
}

/// Tells errors that a name causes from those of the disk.
fn refusal(error: io::Error) -> Refusal {
    use io::ErrorKind::{AlreadyExists, InvalidFilename, InvalidInput, IsADirectory, NotADirectory};
    match error.kind() {
        AlreadyExists | IsADirectory | NotADirectory => Refusal::Skip("it collides with another member".to_owned()),
        InvalidFilename | InvalidInput => Refusal::Skip("a name that the host cannot have".to_owned()),
        _ => Refusal::Disk(error),
    }
}

/// A reader that gives out no more than an allowance.
struct Metered<R> {
    inner: R,
    allowance: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.allowance.get();
        if left == 0 && !buffer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the headers of a member are too large"));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let n = self.inner.read(buffer.get_mut(..most).unwrap_or_default())?;
        self.allowance.set(left - n as u64);
        Ok(n)
    }
}

impl<R: Seek> Seek for Metered<R> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.inner.seek(position)
    }
}
