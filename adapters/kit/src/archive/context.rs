//! The build context of a Dockerfile as an archive, with `.dockerignore` obeyed.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use sandbox_bench_core::{Error, Result};
use tar::EntryType;

use super::stream;

/// Writes everything in `context` that `.dockerignore` does not exclude. The Dockerfile is always sent. Symbolic links
/// are sent as links; what is neither file, directory nor link is left out.
///
/// # Errors
/// `InvalidRequest`, naming the path that cannot be read.
pub fn write_context<W: io::Write>(builder: &mut tar::Builder<W>, context: &Path, dockerfile: &str) -> Result<()> {
    let ignore = match fs::read_to_string(context.join(".dockerignore")) {
        Ok(text) => Ignore::parse(&text)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ignore::default(),
        Err(e) => return Err(unreadable(&context.join(".dockerignore"), e)),
    };
    let always = [Path::new(dockerfile).components().collect::<PathBuf>(), PathBuf::from(".dockerignore")];
    let mut waiting = vec![PathBuf::new()];
    while let Some(directory) = waiting.pop() {
        let here = context.join(&directory);
        let mut entries = fs::read_dir(&here)
            .and_then(|entries| entries.collect::<io::Result<Vec<_>>>())
            .map_err(|e| unreadable(&here, e))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = directory.join(entry.file_name());
            let excluded = ignore.excludes(&path) && !always.contains(&path);
            let metadata = entry.metadata().map_err(|e| unreadable(&entry.path(), e))?;
            if !excluded {
                append(builder, &entry.path(), &path, &metadata).map_err(|e| unreadable(&entry.path(), e))?;
            }
            let wanted = !excluded || ignore.has_exceptions || always.iter().any(|file| file.starts_with(&path));
            if metadata.is_dir() && wanted {
                waiting.push(path);
            }
        }
    }
    Ok(())
}

fn append<W: io::Write>(
    builder: &mut tar::Builder<W>,
    file: &Path,
    path: &Path,
    metadata: &fs::Metadata,
) -> io::Result<()> {
    let mtime = u64::try_from(metadata.mtime()).unwrap_or(0);
    let header = |kind, size| stream::header(kind, metadata.permissions().mode(), size, mtime);
    if metadata.is_dir() {
        stream::append(builder, header(EntryType::Directory, 0), path, io::empty())
    } else if metadata.is_symlink() {
        builder.append_link(&mut header(EntryType::Symlink, 0), path, fs::read_link(file)?)
    } else if metadata.is_file() {
        stream::append(builder, header(EntryType::Regular, metadata.len()), path, fs::File::open(file)?)
    } else {
        Ok(())
    }
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::invalid(format!("build context: cannot send {}", path.display())).because(error)
}

/// The patterns of a `.dockerignore` file: the last one that matches a path, or a directory above it, decides.
#[derive(Default)]
struct Ignore {
    patterns: Vec<(GlobMatcher, bool)>,
    has_exceptions: bool,
}

impl Ignore {
    fn parse(text: &str) -> Result<Self> {
        let mut out = Self::default();
        for line in text.trim_start_matches('\u{feff}').lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (pattern, excludes) = match line.strip_prefix('!') {
                Some(rest) => (rest.trim(), false),
                None => (line, true),
            };
            let pattern = pattern.trim_start_matches('/').trim_start_matches("./").trim_end_matches('/');
            if pattern.is_empty() || pattern == "." {
                continue;
            }
            let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
            let glob = glob.map_err(|e| Error::invalid(format!(".dockerignore: bad pattern {line:?}")).because(e))?;
            out.has_exceptions |= !excludes;
            out.patterns.push((glob.compile_matcher(), excludes));
        }
        Ok(out)
    }

    fn excludes(&self, path: &Path) -> bool {
        let hit = |glob: &GlobMatcher| path.ancestors().any(|p| !p.as_os_str().is_empty() && glob.is_match(p));
        self.patterns.iter().rev().find(|(glob, _)| hit(glob)).is_some_and(|(_, excludes)| *excludes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sent(ignore: &str, files: &[&str]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        fs::write(dir.path().join(".dockerignore"), ignore).unwrap();
        let mut builder = tar::Builder::new(Vec::new());
        write_context(&mut builder, dir.path(), "build/Dockerfile").unwrap();
        let bytes = builder.into_inner().unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut names: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.header().entry_type() == EntryType::Regular)
            .map(|entry| entry.path().unwrap().display().to_string())
            .filter(|name| name != ".dockerignore")
            .collect();
        names.sort();
        names
    }

    #[test]
    fn ignored_files_stay_and_exceptions_come_along() {
        let files = ["a.log", "keep.log", "src/b.log", "src/c.rs", "target/x/y", "build/Dockerfile", "build/z"];
        assert_eq!(
            sent("*.log\n!keep.log\n/target/\n", &files),
            ["build/Dockerfile", "build/z", "keep.log", "src/b.log", "src/c.rs"]
        );
        assert_eq!(sent("**/*.log\n# comment\n\nsrc\n", &files), ["build/Dockerfile", "build/z", "target/x/y"]);
    }

    #[test]
    fn the_dockerfile_is_sent_even_when_everything_is_ignored() {
        assert_eq!(
            sent("*\n!src/c.rs", &["build/Dockerfile", "src/c.rs", "src/d.rs"]),
            ["build/Dockerfile", "src/c.rs"]
        );
        assert_eq!(sent("build", &["build/Dockerfile", "build/z"]), ["build/Dockerfile"]);
    }

    #[test]
    fn links_are_sent_as_links_and_bad_patterns_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("link")).unwrap();
        let mut builder = tar::Builder::new(Vec::new());
        write_context(&mut builder, dir.path(), "Dockerfile").unwrap();
        let bytes = builder.into_inner().unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.link_name().unwrap().unwrap(), Path::new("/etc/hostname"));
        assert!(Ignore::parse("a[").is_err());
    }
}
