//! Directories of our own, named by the digest of what they were made from.
//!
//! A directory appears under its final name complete or not at all, so that any number of loaders may want it at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandbox_bench_core::Digest;

use crate::problem::Fault;

/// What a cached directory holds. The names carry a version: a change of the contents' meaning needs a new one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// An unpacked archive, keyed by the archive's bytes.
    Archive,
    /// A Harbor task whose scripts were put right, keyed by its content digest.
    Normalized,
    /// The parts of a terminal-bench 1 task, arranged as in the sandbox, keyed by its content digest.
    TerminalBench1,
    /// Bundled data, keyed by the packed bytes.
    Bundled,
    /// The environment that a repository's manifest describes, keyed by what it is made from.
    Environment,
}

impl Kind {
    fn directory(self) -> &'static str {
        match self {
            Self::Archive => "archives-1",
            Self::Normalized => "normalized-1",
            Self::TerminalBench1 => "terminal-bench-1",
            Self::Bundled => "bundled-1",
            Self::Environment => "environments-1",
        }
    }
}

/// No archive takes this long to unpack.
const MAX_SCRATCH_AGE: Duration = Duration::from_secs(24 * 3600);

/// The cache below one directory, which is made when first needed.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    root: PathBuf,
}

impl Cache {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The directory for `key`; `fill` writes its contents the first time.
    ///
    /// # Errors
    /// Those of `fill`, and those of the file system.
    pub(crate) fn directory(
        &self,
        kind: Kind,
        key: &Digest,
        fill: impl FnOnce(&Path) -> Result<(), Fault>,
    ) -> Result<PathBuf, Fault> {
        let parent = self.root.join(kind.directory());
        let place = parent.join(key.hex());
        if place.is_dir() {
            return Ok(place);
        }
        let failed = |error: io::Error| Fault::io("write to the cache", &parent, &error);
        fs::create_dir_all(&parent).map_err(failed)?;
        let scratch = self.scratch().map_err(failed)?;
        let content = scratch.path().join("content");
        fs::create_dir(&content).map_err(failed)?;
        fill(&content)?;
        match fs::rename(&content, &place) {
            Ok(()) => Ok(place),
            // Another loader was faster; its result is the same.
            Err(_) if place.is_dir() => Ok(place),
            Err(error) => Err(failed(error)),
        }
    }

    /// A directory for work in progress, on the same file system. What killed processes left there goes after a day.
    fn scratch(&self) -> io::Result<tempfile::TempDir> {
        let parent = self.root.join("scratch");
        fs::create_dir_all(&parent)?;
        for entry in fs::read_dir(&parent)?.flatten() {
            let age =
                entry.metadata().and_then(|metadata| metadata.modified()).ok().and_then(|time| time.elapsed().ok());
            if age.is_some_and(|age| age > MAX_SCRATCH_AGE) && fs::remove_dir_all(entry.path()).is_err() {
                tracing::warn!(path = %entry.path().display(), "cannot remove an abandoned directory of the cache");
            }
        }
        tempfile::tempdir_in(parent)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn concurrent_loaders_get_one_complete_directory() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::new(root.path().join("not/yet/there"));
        let key = Digest::of(b"key");
        let fills = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let place = cache
                        .directory(Kind::Archive, &key, |dir| {
                            fills.fetch_add(1, Ordering::Relaxed);
                            fs::write(dir.join("a"), "1").unwrap();
                            fs::write(dir.join("b"), "2").unwrap();
                            Ok(())
                        })
                        .unwrap();
                    assert_eq!(fs::read_dir(place).unwrap().count(), 2);
                });
            }
        });
        assert!(fills.load(Ordering::Relaxed) >= 1);
        assert_eq!(fs::read_dir(root.path().join("not/yet/there/archives-1")).unwrap().count(), 1);
        assert_eq!(fs::read_dir(root.path().join("not/yet/there/scratch")).unwrap().count(), 0);
    }

    #[test]
    fn a_failed_fill_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::new(root.path().to_owned());
        let key = Digest::of(b"key");
        let fault = Fault::new("no", "nothing");
        let result = cache.directory(Kind::Archive, &key, |dir| {
            fs::write(dir.join("a"), "1").unwrap();
            Err(fault.clone())
        });
        assert_eq!(result, Err(fault));
        assert_eq!(fs::read_dir(root.path().join("archives-1")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(root.path().join("scratch")).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_process_left_goes_after_a_day() {
        let root = tempfile::tempdir().unwrap();
        let abandoned = root.path().join("scratch/abandoned");
        let recent = root.path().join("scratch/recent");
        for directory in [&abandoned, &recent] {
            fs::create_dir_all(directory).unwrap();
        }
        let long_ago = std::time::SystemTime::now() - 2 * MAX_SCRATCH_AGE;
        fs::File::open(&abandoned).unwrap().set_modified(long_ago).unwrap();
        Cache::new(root.path().to_owned()).directory(Kind::Archive, &Digest::of(b"x"), |_| Ok(())).unwrap();
        assert!(!abandoned.exists() && recent.exists());
    }
}
