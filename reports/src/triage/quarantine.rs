//! The quarantine list: a text file with one task a line, which `triage` writes, people edit, and a run reads.
//!
//! A line is `data set`, `task`, `digest`, `why`, with a tab between each. The digest `-` stands for any content of the task.
//! Empty lines and lines that begin with `#` say nothing.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sandbox_bench_core::Digest;

use super::Quarantined;

/// Largest list that is read, in bytes.
const LARGEST: u64 = 64 << 20;

/// In place of a digest: whatever the task's content is.
const ANY: &str = "-";

/// Data set and task.
type Named = (String, String);
/// The content that is meant, or any, and why it is in quarantine.
type Entry = (Option<Digest>, String);

/// Tasks that are not to be run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quarantine {
    tasks: HashMap<Named, Vec<Entry>>,
}

/// What a list says of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed<'a> {
    /// Nothing.
    No,
    /// It is in quarantine, with the reason.
    Yes(&'a str),
    /// A task of that name is in quarantine, but its content was another one: what was wrong may be mended.
    OtherContent,
}

/// Why a list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum QuarantineError {
    /// It cannot be read.
    #[error("quarantine list {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// A line is not of the form.
    #[error(
        "quarantine list {path}, line {line}: {why}; a line is: data set, task, digest (or -), why, with tabs between"
    )]
    Form {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

impl Quarantine {
    /// Reads a list.
    ///
    /// # Errors
    /// It cannot be read, or a line is not of the form: a list that is misread would let in what it is to keep out.
    pub fn read(path: &Path) -> Result<Self, QuarantineError> {
        let io = |source| QuarantineError::Io { path: path.to_owned(), source };
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text)).map_err(io)?;
        if read as u64 > LARGEST {
            return Err(io(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {LARGEST} bytes"))));
        }
        let mut list = Self::default();
        for (line, text) in (1..).zip(text.lines()) {
            if text.trim().is_empty() || text.starts_with('#') {
                continue;
            }
            list.add(text).map_err(|why| QuarantineError::Form { path: path.to_owned(), line, why })?;
        }
        Ok(list)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let mut fields = line.splitn(4, '\t');
        let mut field = || fields.next().filter(|field| !field.is_empty());
        let (Some(dataset), Some(task), Some(digest)) = (field(), field(), field()) else {
            return Err("it has fewer than three fields".to_owned());
        };
        let digest = match digest {
            ANY => None,
            digest => Some(digest.parse::<Digest>().map_err(|error| error.to_string())?),
        };
        let why = field().unwrap_or("no reason is given").to_owned();
        self.tasks.entry((dataset.to_owned(), task.to_owned())).or_default().push((digest, why));
        Ok(())
    }

    /// What the list says of this task.
    #[must_use]
    pub fn judge(&self, dataset: &str, task: &str, digest: &Digest) -> Listed<'_> {
        let Some(lines) = self.tasks.get(&(field(dataset), field(task))) else { return Listed::No };
        let of_this = lines.iter().find(|(listed, _)| listed.as_ref().is_none_or(|listed| listed == digest));
        of_this.map_or(Listed::OtherContent, |(_, why)| Listed::Yes(why))
    }

    /// The list of these tasks, as [`Quarantine::read`] reads it.
    #[must_use]
    pub fn write(tasks: &[Quarantined]) -> String {
        let mut text = String::new();
        for Quarantined { task, why } in tasks {
            let _ = writeln!(text, "{}\t{}\t{}\t{}", field(&task.dataset), field(&task.task), task.digest, field(why));
        }
        text
    }
}

/// A field of a line: what would end it, or the line, is a blank.
fn field(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::super::TaskName;
    use super::*;

    fn read(text: &str) -> Result<Quarantine, QuarantineError> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("quarantine.tsv");
        fs::write(&path, text).unwrap();
        Quarantine::read(&path)
    }

    #[test]
    fn what_is_written_is_read_again_and_holds_for_the_content_it_was_written_of() {
        let task = TaskName { dataset: "a\tb".into(), task: "one\ntwo".into(), digest: Digest::of(b"old") };
        let list =
            read(&Quarantine::write(&[Quarantined { task: task.clone(), why: "flaky:\tit\r\nwas".into() }])).unwrap();
        assert_eq!(list.judge("a\tb", "one\ntwo", &task.digest), Listed::Yes("flaky: it  was"));
        assert_eq!(list.judge("a\tb", "one\ntwo", &Digest::of(b"new")), Listed::OtherContent);
        assert_eq!(list.judge("a\tb", "one", &task.digest), Listed::No);
    }

    #[test]
    fn a_person_may_write_it_too() {
        let digest = Digest::of(b"x");
        let list = read(&format!("# ours\n\nset\tone\t-\nset\ttwo\t{digest}\tbroken\tfor long\n")).unwrap();
        assert_eq!(list.judge("set", "one", &digest), Listed::Yes("no reason is given"));
        assert_eq!(list.judge("set", "two", &digest), Listed::Yes("broken\tfor long"));
        assert_eq!(read("").unwrap(), Quarantine::default());
    }

    #[test]
    fn a_line_that_is_none_is_named_with_its_number() {
        for (text, says) in [
            ("set\tone\t-\nset one -\n", "line 2: it has fewer than three fields"),
            ("set\t\t-\n", "line 1: it has fewer"),
            ("set\tone\tsha256:12\twhy\n", "line 1: not a digest"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
        let gone = Quarantine::read(Path::new("nothing-here")).unwrap_err();
        assert!(matches!(gone, QuarantineError::Io { .. }), "{gone}");
    }
}
