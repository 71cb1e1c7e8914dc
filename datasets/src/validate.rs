//! Finding everything that is wrong with a data set.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use sandbox_bench_core::{Digest, Requirement};

use crate::dataset::{Dataset, TaskEntry};
use crate::manifest;
use crate::problem::{Problem, Severity};
use crate::task::{ImageSpec, Task};

/// Loads every task and tells what is wrong, one problem at a time, in the order of the data set. Errors are tasks that
/// cannot be used; warnings are what deserves a look. A data set without tasks is an error, too.
pub fn validate(dataset: &Dataset) -> impl Iterator<Item = Problem> + '_ {
    let mut checks = Checks { file: dataset.root().to_owned(), ..Checks::default() };
    let manifest = manifest::read(dataset.root());
    let start: Vec<Problem> = match manifest {
        Ok(listed) => {
            checks.listed = listed;
            Vec::new()
        }
        Err(fault) => vec![fault.at(&dataset.root().join(manifest::FILE), None)],
    };
    let mut entries = dataset.entries();
    let mut done = false;
    let rest = std::iter::from_fn(move || {
        if done {
            return None;
        }
        Some(match entries.next() {
            Some(Ok(entry)) => match dataset.load(&entry) {
                Ok(task) => checks.task(&entry, &task),
                Err(problem) => {
                    checks.tasks += 1;
                    vec![problem]
                }
            },
            Some(Err(problem)) => {
                checks.tasks += 1;
                vec![problem]
            }
            None => {
                done = true;
                checks.end()
            }
        })
    });
    start.into_iter().chain(rest.flatten())
}

#[derive(Default)]
struct Checks {
    file: PathBuf,
    tasks: u64,
    last_file: PathBuf,
    /// Ids without letter case, and how they were written first.
    folded: HashMap<String, String>,
    /// What a manifest lists and has not been seen.
    listed: BTreeMap<String, Digest>,
}

impl Checks {
    fn task(&mut self, entry: &TaskEntry, task: &Task) -> Vec<Problem> {
        self.tasks += 1;
        let marked = self.last_file != entry.file() && begins_with_mark(entry.file());
        self.last_file = entry.file().to_owned();
        let mut found = Vec::new();
        let mut warn = |what: String, remedy: &str| {
            found.push(Problem {
                file: entry.file().display().to_string(),
                task: Some(entry.id.clone()),
                what,
                remedy: remedy.to_owned(),
                severity: Severity::Warning,
            });
        };
        if marked {
            warn("the file begins with a byte order mark".to_owned(), "remove it: other programs stumble over it");
        }
        for warning in &task.warnings {
            let corrected = warning.starts_with("normalized:");
            let remedy = if corrected { "a corrected copy is used; correct the original" } else { "look at the task" };
            warn(warning.clone(), remedy);
        }
        for requirement in &task.requires {
            if let Requirement::Other(what) = requirement {
                warn(format!("it needs {what}"), "no backend offers that yet: its trials will be unavailable");
            }
        }
        if let ImageSpec::Dockerfile { recipe, .. } = &task.environment.image
            && let Some(why) = &recipe.unsupported
        {
            warn(format!("the Dockerfile cannot be replayed: {why}"), "only backends that build images can run it");
        }
        if task.solution.is_none() && task.requires.is_empty() {
            warn("there is no gold solution".to_owned(), "add one, so that the verifier can be proven");
        }
        if let Some(first) = self.folded.insert(entry.id.to_lowercase(), entry.id.clone()) {
            warn(format!("its id differs from {first} in letter case alone"), "rename one of them");
        }
        if let Some(digest) = self.listed.remove(&entry.id)
            && digest != task.digest
        {
            warn(
                format!("its digest is {}, not the one in {}", task.digest, manifest::FILE),
                "fetch the data set again",
            );
        }
        found
    }

    /// What can be said only at the end.
    fn end(&mut self) -> Vec<Problem> {
        let problem = |task: Option<String>, what: &str, remedy: &str| Problem {
            file: self.file.display().to_string(),
            task,
            what: what.to_owned(),
            remedy: remedy.to_owned(),
            severity: Severity::Error,
        };
        let missing = self.listed.keys().map(|name| {
            problem(Some(name.clone()), "the manifest lists it, but it is not here", "fetch the data set again")
        });
        let mut found: Vec<Problem> = missing.collect();
        if self.tasks == 0 {
            found.push(problem(None, "there are no tasks", "name a directory of tasks, a row file, or an archive"));
        }
        found
    }
}

fn begins_with_mark(path: &Path) -> bool {
    let mut start = [0; 3];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"\xef\xbb\xbf"
}
