//! Task directories of either kind.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::harbor::{self, Given};
use crate::limits::Limits;
use crate::problem::Fault;
use crate::task::{Family, Task};
use crate::tb1;

/// The kind of task that the directory is, if it is one.
pub(crate) fn family(directory: &Path) -> Option<Family> {
    if directory.join("task.toml").is_file() {
        Some(Family::Harbor)
    } else if directory.join("task.yaml").is_file() {
        Some(Family::TerminalBench1)
    } else {
        None
    }
}

/// True for a directory that was meant to be a task, but has no task file.
pub(crate) fn resembles_task(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).exists();
    has("instruction.md") || has("run-tests.sh") || (has("environment") && has("tests"))
}

/// The id of the task in the directory.
pub(crate) fn id(directory: &Path) -> String {
    harbor::id(directory)
}

/// Loads the task in `directory`.
pub(crate) fn load(directory: &Path, given: Given<'_>, cache: &Cache, limits: &Limits) -> Result<Task, Fault> {
    match family(directory) {
        Some(Family::TerminalBench1) => tb1::load(directory, given.id, given.instruction, cache, limits),
        Some(_) => harbor::load(directory, given, cache, limits),
        None => Err(Fault::new("there is neither task.toml nor task.yaml", "add one, or remove the task")),
    }
}

/// The directory itself, or its only subdirectory if it is no task: some archives wrap their task in one.
pub(crate) fn unwrapped(directory: &Path) -> PathBuf {
    if family(directory).is_some() {
        return directory.to_owned();
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    match (directories.next(), directories.next()) {
        (Some(only), None) => only.path(),
        _ => directory.to_owned(),
    }
}
