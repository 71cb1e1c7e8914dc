//! A run directory as a reader finds it.

use std::fs;
use std::path::{Path, PathBuf};

use sandbox_bench_core::OutputRef;
use sandbox_bench_core::evidence::{Attempt, Event, JournalLine};
use serde_json::Value;

/// The directory of a run.
#[derive(Debug, Clone)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run's id.
    #[must_use]
    pub fn id(&self) -> String {
        self.path.file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// It, as an argument of a command that runs in the test's place.
    #[must_use]
    pub fn argument(&self) -> String {
        format!("results/{}", self.id())
    }

    /// The content of a JSON file.
    #[must_use]
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.read(name)).unwrap()
    }

    /// The lines of a JSONL file.
    #[must_use]
    pub fn lines(&self, name: &str) -> Vec<Value> {
        let text = String::from_utf8(self.read(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let path = self.path.join(name);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The attempts of `trials.jsonl`.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempt> {
        self.lines("trials.jsonl").into_iter().map(|line| serde_json::from_value(line).unwrap()).collect()
    }

    /// The only attempt at `task`.
    #[must_use]
    pub fn attempt(&self, task: &str) -> Attempt {
        let mut found: Vec<Attempt> = self.attempts().into_iter().filter(|a| a.trial.task == task).collect();
        assert_eq!(found.len(), 1, "attempts at {task}");
        found.remove(0)
    }

    /// The events of the journal.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let lines = self.lines("journal.jsonl").into_iter();
        lines.map(|line| serde_json::from_value::<JournalLine>(line).unwrap().event).collect()
    }

    /// The bytes of a kept output.
    #[must_use]
    pub fn output(&self, output: &OutputRef) -> Vec<u8> {
        self.read(&output.stored)
    }

    /// Every file of the directory.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        files(&self.path)
    }

    /// Checks every file that has a schema against the schema that is shipped.
    ///
    /// # Panics
    /// One does not fit, or is not there; the message names the place.
    pub fn validate(&self) {
        check("manifest", &[self.json("manifest.json")]);
        check("summary", &[self.json("summary.json")]);
        check("cleanup", &[self.json("cleanup.json")]);
        check("trial", &self.lines("trials.jsonl"));
        check("journal-line", &self.lines("journal.jsonl"));
        self.validate_records();
    }

    /// The same of a fixture's run.
    ///
    /// # Panics
    /// As [`RunDir::validate`].
    pub fn validate_fixture(&self) {
        check("fixture-manifest", &[self.json("manifest.json")]);
        check("fixture-summary", &[self.json("summary.json")]);
        check("fixture-trial", &self.lines("trials.jsonl"));
        check("journal-line", &self.lines("journal.jsonl"));
        for file in self.files() {
            let path = file.strip_prefix(&self.path).unwrap().to_str().unwrap();
            let name = path.split(['-', '/']).next().unwrap();
            match name {
                "cleanup" => check("fixture-cleanup", &[self.json(path)]),
                "launch" => check("fixture-launch", &[self.json(path)]),
                "reports" => check("fixture-report", &[self.json(path)]),
                _ => {}
            }
        }
        self.validate_records();
    }

    fn validate_records(&self) {
        check("command-receipt", &self.lines("receipts.jsonl"));
        check("case-report", &self.lines("cases.jsonl"));
        if self.path.join("tracking.jsonl").is_file() {
            check("tracking-line", &self.lines("tracking.jsonl"));
        }
    }
}

fn check(schema: &str, documents: &[Value]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/schemas/{schema}.json"));
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let validator = jsonschema::validator_for(&serde_json::from_slice(&text).unwrap()).unwrap();
    for document in documents {
        let faults: Vec<String> =
            validator.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(faults.is_empty(), "against {schema}.json: {faults:#?}\n{document:#}");
    }
}

/// Checks that `secret` is neither in a text that was shown nor in any file below `directory`.
///
/// # Panics
/// It is; the message names the place. Also if there is hardly a file to look at.
pub fn assert_hidden(secret: &str, directory: &Path, shown: &[&str]) {
    assert!(!shown.iter().any(|text| text.contains(secret)), "the secret was shown: {shown:?}");
    let kept = files(directory);
    assert!(kept.len() > 10, "there is evidence to look at");
    for file in kept {
        let content = fs::read(&file).expect("a file that was listed");
        let found = content.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!found, "the secret is in {}", file.display());
    }
}

/// Every regular file below `directory`.
#[must_use]
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}
