//! Small tasks in Harbor form, written by the tests themselves.

use std::fs;
use std::path::{Path, PathBuf};

/// A verifier that accepts the work of [`Task`]'s own solution, says so in the reward file, and exits accordingly.
pub const WANTS_DONE: &str = "\
if [ \"$(cat done)\" = done ]; then echo 1 >/logs/verifier/reward.txt; else echo 0 >/logs/verifier/reward.txt; exit 1; fi";

/// The image that every backend of these tests can start from.
pub const IMAGE: &str = "debian:bookworm-slim";

/// A task directory.
#[derive(Debug)]
pub struct Task {
    directory: PathBuf,
}

impl Task {
    pub(crate) fn write(directory: PathBuf, test: &str) -> Self {
        let task = Self { directory };
        task.file("task.toml", format!("[environment]\ndocker_image = \"{IMAGE}\"\n"))
            .file("instruction.md", "Write the word `done` to the file `done`.\n")
            .file("tests/test.sh", format!("#!/bin/sh\n{test}\n"))
            .solution("echo done >done")
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Writes one of its files.
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Replaces its reference solution.
    pub fn solution(self, script: &str) -> Self {
        self.file("solution/solve.sh", format!("#!/bin/sh\n{script}\n"))
    }

    /// Adds to the end of its `task.toml`, of which `[environment]` is open.
    pub fn toml(self, more: &str) -> Self {
        let text = fs::read_to_string(self.directory.join("task.toml")).unwrap();
        self.file("task.toml", text + more + "\n")
    }

    /// Gives it a Dockerfile in place of its image.
    pub fn dockerfile(self, text: &str) -> Self {
        self.file("task.toml", "[environment]\n").file("environment/Dockerfile", text)
    }

    /// Removes a file or directory.
    pub fn without(self, name: &str) -> Self {
        let path = self.directory.join(name);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        self
    }
}
