//! Packs host files into tar files for upload: the same files give the same bytes, so that a digest names them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sandbox_bench_core::{Digest, Input, InputEntry, Payload, Result, Stage};
use sandbox_bench_datasets::task::FileSet;

/// Beginning of the name of a cache's directory.
const PREFIX: &str = ".packs-";

/// Where a file of a pack comes from and where it goes.
#[derive(Debug, Clone)]
pub struct Member {
    /// Host path.
    pub source: PathBuf,
    /// Path in the tar, relative.
    pub path: PathBuf,
}

/// Packs file sets once each and remembers them for the length of a run.
pub struct PackCache {
    directory: tempfile::TempDir,
    packs: Mutex<HashMap<String, Input>>,
}

impl PackCache {
    /// An empty cache in a hidden directory of the run directory, which goes when the cache is dropped. What a killed
    /// process leaves is removed by [`remove_left_over`].
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(run_dir: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(run_dir)?;
        Ok(Self { directory, packs: Mutex::default() })
    }

    /// A host path for a temporary file of this run.
    #[must_use]
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file set as an input tree for `destination`.
    ///
    /// # Errors
    /// A file cannot be read, or the pack cannot be written.
    pub fn tree(&self, name: &str, files: &FileSet, destination: &str, stage: Stage) -> Result<Input> {
        let key = format!("{name}\0{destination}\0{stage:?}\0{}\0{:?}", files.root.display(), files.exclude);
        self.members(&key, name, destination, stage, || members_of(files))
    }

    /// A file of `size` bytes that no service can compress or knows already, the same in every run.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn filler(&self, size: u64, destination: &str) -> Result<Input> {
        let mut packs = self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("filler\0{size}\0{destination}");
        if let Some(input) = packs.get(&key) {
            return Ok(input.clone());
        }
        let path = self.directory.path().join(format!("{size}.bin"));
        let written = write_filler(&path, size).and_then(|()| Digest::of_reader(File::open(&path)?));
        let (digest, size) =
            written.map_err(|e| sandbox_bench_core::Error::invalid(format!("an input of {size} bytes")).because(e))?;
        let destination = destination.to_owned();
        let entry = InputEntry { name: "payload".into(), digest, size, destination, stage: Stage::Setup };
        let input = Input { entry, payload: Payload::File { path, mode: 0o644 } };
        packs.insert(key, input.clone());
        Ok(input)
    }

    /// Chosen files as an input tree for `destination`; `key` names the choice.
    ///
    /// # Errors
    /// As [`PackCache::tree`].
    pub fn members(
        &self,
        key: &str,
        name: &str,
        destination: &str,
        stage: Stage,
        members: impl FnOnce() -> io::Result<Vec<Member>>,
    ) -> Result<Input> {
        let mut packs = self.packs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(input) = packs.get(key) {
            return Ok(input.clone());
        }
        let tar = self.directory.path().join(format!("{}.tar", packs.len()));
        members().and_then(|members| write_tar(&tar, &members)).map_err(|e| {
            sandbox_bench_core::Error::invalid(format!("input {name}: cannot pack its files")).because(e)
        })?;
        let input = Input::tree(name, destination, stage, tar)?;
        packs.insert(key.to_owned(), input.clone());
        Ok(input)
    }
}

/// Removes the caches that killed processes left in a run directory. The run must not be going on.
///
/// # Errors
/// A directory cannot be read or removed.
pub fn remove_left_over(run_dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(run_dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn write_filler(path: &Path, size: u64) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut random = ChaCha8Rng::seed_from_u64(size);
    let mut block = [0; 64 << 10];
    let mut left = size;
    while left > 0 {
        random.fill_bytes(&mut block);
        let now = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        file.write_all(block.get(..now).unwrap_or_default())?;
        left -= now as u64;
    }
    file.flush()
}

/// All members of a file set, in path order.
fn members_of(files: &FileSet) -> io::Result<Vec<Member>> {
    let mut members = Vec::new();
    walk(&files.root, Path::new(""), &mut members)?;
    members.retain(|member| !files.exclude.iter().any(|skip| member.path.starts_with(skip)));
    Ok(members)
}

/// Adds everything below `root/relative`, directories before their content, in name order.
pub fn walk(root: &Path, relative: &Path, members: &mut Vec<Member>) -> io::Result<()> {
    let mut names: Vec<_> =
        fs::read_dir(root.join(relative))?.map(|entry| entry.map(|e| e.file_name())).collect::<io::Result<_>>()?;
    names.sort();
    for name in names {
        let path = relative.join(name);
        let source = root.join(&path);
        let is_dir = fs::symlink_metadata(&source)?.is_dir();
        members.push(Member { source, path: path.clone() });
        if is_dir {
            walk(root, &path, members)?;
        }
    }
    Ok(())
}

/// Writes the members to a tar file. Owners and times are fixed; scripts are made executable, because task authors on
/// other systems lose that bit.
fn write_tar(to: &Path, members: &[Member]) -> io::Result<()> {
    let mut builder = tar::Builder::new(BufWriter::new(File::create(to)?));
    for member in members {
        let metadata = fs::symlink_metadata(&member.source)?;
        let mut header = tar::Header::new_gnu();
        header.set_mtime(1);
        header.set_uid(0);
        header.set_gid(0);
        if metadata.is_symlink() {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_mode(0o777);
            header.set_size(0);
            builder.append_link(&mut header, &member.path, fs::read_link(&member.source)?)?;
        } else if metadata.is_dir() {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(mode_of(&metadata) | 0o700);
            header.set_size(0);
            builder.append_data(&mut header, &member.path, io::empty())?;
        } else if metadata.is_file() {
            let mut file = File::open(&member.source)?;
            let executable = is_script(&member.source, &mut file)?;
            header.set_mode(mode_of(&metadata) | if executable { 0o755 } else { 0o644 });
            header.set_size(metadata.len());
            builder.append_data(&mut header, &member.path, File::open(&member.source)?.take(metadata.len()))?;
        }
    }
    builder.into_inner()?.flush()
}

#[cfg(unix)]
fn mode_of(metadata: &fs::Metadata) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777
}

#[cfg(not(unix))]
fn mode_of(_: &fs::Metadata) -> u32 {
    0o644
}

fn is_script(path: &Path, file: &mut File) -> io::Result<bool> {
    let mut start = [0u8; 2];
    let shebang = file.read(&mut start)? == 2 && &start == b"#!";
    Ok(shebang || path.extension().is_some_and(|extension| extension == "sh"))
}

/// True if a relative path has nothing but plain components.
#[must_use]
pub fn is_plain(path: &Path) -> bool {
    path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn set(root: &Path) -> FileSet {
        FileSet { root: root.to_owned(), exclude: vec!["secret".into()] }
    }

    #[test]
    fn equal_files_give_equal_digests_and_scripts_become_executable() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("test.sh"), "#!/bin/sh\n").unwrap();
        fs::write(dir.path().join("sub/data"), [0u8, 255]).unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        let run = tempfile::tempdir().unwrap();
        let one = PackCache::new(run.path()).unwrap();
        let a = one.tree("tests", &set(dir.path()), "/tests", Stage::Verify).unwrap();
        fs::write(dir.path().join("sub/data"), [0u8, 255]).unwrap();
        let two = PackCache::new(run.path()).unwrap();
        let b = two.tree("tests", &set(dir.path()), "/tests", Stage::Verify).unwrap();
        assert_eq!(a.entry, b.entry);
        let sandbox_bench_core::Payload::Tree { tar } = a.payload else { panic!("not a tree") };
        let mut archive = tar::Archive::new(File::open(tar).unwrap());
        let seen: Vec<(String, u32)> = archive
            .entries()
            .unwrap()
            .map(|e| {
                let e = e.unwrap();
                (e.path().unwrap().display().to_string(), e.header().mode().unwrap() & 0o111)
            })
            .collect();
        assert_eq!(seen.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), ["sub", "sub/data", "test.sh"]);
        assert_eq!(seen[2].1, 0o111);
    }

    #[test]
    fn a_cache_goes_with_its_owner_and_what_a_killed_one_left_is_removed() {
        let run = tempfile::tempdir().unwrap();
        drop(PackCache::new(run.path()).unwrap());
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0);
        std::mem::forget(PackCache::new(run.path()).unwrap());
        fs::write(run.path().join("journal.jsonl"), "").unwrap();
        remove_left_over(run.path()).unwrap();
        let left: Vec<_> = fs::read_dir(run.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["journal.jsonl"]);
    }
}
