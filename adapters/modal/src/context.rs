//! The build context of a Dockerfile. The service keeps files by their digests, and a context as a list of them (a mount), as
//! the official client sends it (Python package modal 1.6.4, `modal/mount.py`). Directories without a file are lost on the way.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sandbox_bench_core::{Call, Digest, Error, ErrorKind, Result};
use sandbox_bench_kit::archive;
use sandbox_bench_kit::wait::bounded;
use tar::EntryType;

use crate::client::Client;
use crate::proto::client::MountFile;

/// Larger files take another way into the service, which is not gone here.
const LARGEST: u64 = 4 << 20;
/// Files in one question for what is missing, as the official client asks.
const BATCH: usize = 64;
/// How often a file is sent before the service has it.
const TRIES: usize = 3;

/// True if a Dockerfile may take something from its context.
pub(crate) fn needed(dockerfile: &str) -> bool {
    dockerfile.lines().any(|line| {
        let word = line.split_whitespace().next().unwrap_or_default().to_uppercase();
        ["COPY", "ADD"].contains(&word.as_str()) || line.contains("--mount=")
    })
}

/// Sends what the service does not have yet of a context; returns the id of it there.
///
/// # Errors
/// `InvalidRequest` for a context that cannot be read, `Unsupported` for a file that is too large.
pub(crate) async fn place(client: &Client, call: &Call, (context, dockerfile): (&Path, &str)) -> Result<String> {
    let (context, dockerfile) = (context.to_owned(), dockerfile.to_owned());
    let listing = tokio::task::spawn_blocking(move || Listing::read(&context, &dockerfile));
    let listing = bounded(call, "build context", listing)
        .await?
        .unwrap_or_else(|e| Err(Error::new(ErrorKind::Failed, "reading the build context failed").because(e)))?;
    let mut sent = HashSet::new();
    for batch in listing.files.chunks(BATCH) {
        let digests = batch.iter().map(|file| file.digest.clone()).collect();
        let missing: HashSet<String> = client.missing_files(call, digests).await?.into_iter().collect();
        for file in batch.iter().filter(|file| missing.contains(&file.digest)) {
            if sent.insert(&file.digest) {
                send(client, call, file, listing.content(file)?).await?;
            }
        }
    }
    let files = listing.files.iter().map(|file| MountFile {
        filename: format!("/{}", file.path.display()),
        sha256_hex: file.digest.clone(),
        size: Some(file.size),
        mode: Some(file.mode),
    });
    client.mount(call, files.collect()).await
}

async fn send(client: &Client, call: &Call, file: &Member, content: Bytes) -> Result<()> {
    for _ in 0..TRIES {
        if client.put_file(call, &file.digest, content.clone()).await? {
            return Ok(());
        }
    }
    Err(Error::new(ErrorKind::Unavailable, format!("build context: the service does not keep {}", file.path.display())))
}

/// A file of a context.
#[derive(Debug)]
struct Member {
    path: PathBuf,
    digest: String,
    size: u64,
    mode: u32,
    content: Place,
}

/// Where the content of a file is.
#[derive(Debug)]
enum Place {
    /// In the archive, from this byte on.
    Archive(u64),
    /// In the file that a symbolic link leads to: the service knows no links.
    Target(PathBuf),
}

/// All files of a context, with their content as it was at one moment.
struct Listing {
    archive: File,
    files: Vec<Member>,
}

impl Listing {
    fn read(context: &Path, dockerfile: &str) -> Result<Self> {
        let on_host = |e: io::Error| Error::invalid("build context: it cannot be read").because(e);
        let mut builder = tar::Builder::new(BufWriter::new(tempfile::tempfile().map_err(on_host)?));
        archive::write_context(&mut builder, context, dockerfile)?;
        let root = context.canonicalize().map_err(on_host)?;
        let archive = builder.into_inner().and_then(|writer| Ok(writer.into_inner()?)).map_err(on_host)?;
        let mut reader = archive.try_clone().map_err(on_host)?;
        io::Seek::rewind(&mut reader).map_err(on_host)?;
        let mut files = Vec::new();
        for entry in tar::Archive::new(io::BufReader::new(reader)).entries().map_err(on_host)? {
            let mut entry = entry.map_err(on_host)?;
            let path = entry.path().map_err(on_host)?.into_owned();
            match entry.header().entry_type() {
                EntryType::Regular => {
                    small(&path, entry.size())?;
                    let (mode, at) = (entry.header().mode().map_err(on_host)?, entry.raw_file_position());
                    let mut content = Vec::new();
                    entry.read_to_end(&mut content).map_err(on_host)?;
                    files.push(Member::new(path, mode, &content, Place::Archive(at)));
                }
                EntryType::Symlink => {
                    let target = context.join(&path).canonicalize().unwrap_or_default();
                    if target.starts_with(&root) && target.is_file() {
                        let metadata = target.metadata().map_err(on_host)?;
                        small(&path, metadata.len())?;
                        let content = std::fs::read(&target).map_err(on_host)?;
                        files.push(Member::new(path, metadata.permissions().mode(), &content, Place::Target(target)));
                    }
                }
                _ => {}
            }
        }
        Ok(Self { archive, files })
    }

    /// The content of one of its files.
    fn content(&self, file: &Member) -> Result<Bytes> {
        let read = match &file.content {
            Place::Archive(at) => {
                let mut content = vec![0; usize::try_from(file.size).unwrap_or_default()];
                self.archive.read_exact_at(&mut content, *at).map(|()| content)
            }
            Place::Target(path) => std::fs::read(path),
        };
        let content =
            read.map_err(|e| Error::new(ErrorKind::Failed, "the build context cannot be read again").because(e))?;
        Ok(content.into())
    }
}

impl Member {
    fn new(path: PathBuf, mode: u32, content: &[u8], place: Place) -> Self {
        let (digest, size) = (Digest::of(content).hex(), content.len() as u64);
        Self { path, digest, size, mode: mode & 0o7777, content: place }
    }
}

/// Refuses what the service does not take.
fn small(path: &Path, size: u64) -> Result<()> {
    if size <= LARGEST {
        return Ok(());
    }
    let what = format!("build context: {} has more than {} MiB", path.display(), LARGEST >> 20);
    Err(Error::unsupported(what).hint("leave it out with .dockerignore, or have the build fetch it"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_context_is_its_files_with_their_modes_and_what_links_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        put("Dockerfile", b"FROM x\nCOPY . /");
        put("bin/run", b"#!/bin/sh");
        put("ignored", b"x");
        put(".dockerignore", b"ignored");
        std::fs::set_permissions(dir.path().join("bin/run"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("bin/run", dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("outside")).unwrap();
        let listing = Listing::read(dir.path(), "Dockerfile").unwrap();
        let mut seen: Vec<_> = listing
            .files
            .iter()
            .map(|file| {
                assert_eq!(file.digest, Digest::of(&listing.content(file).unwrap()).hex());
                (file.path.display().to_string(), file.mode & 0o777, file.size)
            })
            .collect();
        seen.sort();
        seen.retain(|(name, ..)| name != "Dockerfile" && name != ".dockerignore");
        assert_eq!(seen, [("bin/run".to_owned(), 0o755, 9), ("link".to_owned(), 0o755, 9)]);
    }

    #[test]
    fn a_file_that_is_too_large_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("Dockerfile"), "FROM x").unwrap();
        File::create(dir.path().join("big.bin")).unwrap().set_len(LARGEST + 1).unwrap();
        let error = Listing::read(dir.path(), "Dockerfile").err().unwrap();
        assert_eq!(*error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("big.bin"), "{error}");
    }

    #[test]
    fn a_context_is_sent_only_where_something_may_take_from_it() {
        assert!(!needed("FROM x\nRUN echo COPY\n# ADD y"));
        for taking in ["FROM x\ncopy a b", "FROM x\n  ADD a b", "FROM x\nRUN --mount=type=bind,target=/x ls"] {
            assert!(needed(taking), "{taking}");
        }
    }
}
