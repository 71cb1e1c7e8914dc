//! A test's own place: results, tasks, caches and the `local` backend's state, apart from every other test's.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{Bench, RunDir, Task};

/// The test's own place. Removed when dropped.
#[derive(Debug)]
pub struct World {
    dir: TempDir,
}

impl World {
    /// A new, empty place.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it makes directories; a default would hide that")]
    pub fn new() -> Self {
        // The state of `local` cannot be on an overlay, which a container's own directories are.
        let usual = if Path::new("/.dockerenv").exists() { "/dev/shm" } else { "/var/tmp" };
        let base = std::env::var_os("TEST_STATE_DIR").map_or_else(|| PathBuf::from(usual), PathBuf::from);
        Self { dir: tempfile::Builder::new().prefix("sandbox-bench-e2e-").tempdir_in(base).unwrap() }
    }

    /// Its directory, in which commands run.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A command line of the program, as typed after its name.
    #[must_use]
    pub fn bench(&self, line: &str) -> Bench {
        Bench::new(self.path(), line)
    }

    /// Writes the task `name` into the data set `tasks`: an image, the verifier `test`, and a solution that writes
    /// `done` to the file `done`.
    #[must_use]
    pub fn task(&self, name: &str, test: &str) -> Task {
        Task::write(self.path().join("tasks").join(name), test)
    }

    /// Writes a file.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// The run directories, oldest first.
    #[must_use]
    pub fn runs(&self) -> Vec<RunDir> {
        let Ok(entries) = fs::read_dir(self.path().join("results")) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort_by_key(|path| fs::metadata(path.join("manifest.json")).and_then(|facts| facts.modified()).ok());
        paths.into_iter().map(RunDir::new).collect()
    }

    /// The only run directory.
    #[must_use]
    pub fn run(&self) -> RunDir {
        let mut runs = self.runs();
        assert_eq!(runs.len(), 1, "run directories: {runs:?}");
        runs.remove(0)
    }

    /// The newest run directory.
    #[must_use]
    pub fn last_run(&self) -> RunDir {
        self.runs().pop().expect("a run directory")
    }
}
