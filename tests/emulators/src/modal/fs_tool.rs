//! `/__modal/.bin/modal-sandbox-fs-tools`, the program in every sandbox by which official clients move files. Its argument is a
//! JSON object; contents pass through standard input and output, errors are JSON on standard error. Its form is that of
//! the Python client's `_utils/sandbox_fs_utils.py`.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Result;
use super::output::Output;
use super::status::violation;
use crate::machine::{Machine, MachineError};

/// Where the program is.
const PROGRAM: &str = "/__modal/.bin/modal-sandbox-fs-tools";
/// Its exit code when it fails.
const FAILED: i32 = 1;

/// What the tool is asked to do.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Ask {
    WriteFile { path: String },
    ReadFile { path: String },
    ListFiles { path: String },
    Stat { path: String },
    MakeDirectory { path: String, parents: bool },
    Remove { path: String, recursive: bool },
}

/// What the tool says when it fails.
struct Failure {
    kind: String,
    message: String,
}

impl Ask {
    /// What a command asks of the tool; none if it is another program.
    ///
    /// # Errors
    /// The tool's argument is not one.
    pub(super) fn of(command: &[String]) -> Result<Option<Ask>> {
        let [program, arguments @ ..] = command else { return Ok(None) };
        if program != PROGRAM {
            return Ok(None);
        }
        let [argument] = arguments else { return Err(violation(format!("{PROGRAM} takes one argument"))) };
        let ask: Ask = serde_json::from_str(argument).map_err(|error| violation(format!("{PROGRAM}: {error}")))?;
        let path = ask.path();
        if path.starts_with('/') {
            Ok(Some(ask))
        } else {
            Err(violation(format!("{PROGRAM}: {path:?} is not absolute")))
        }
    }

    fn path(&self) -> &str {
        match self {
            Ask::WriteFile { path }
            | Ask::ReadFile { path }
            | Ask::ListFiles { path }
            | Ask::Stat { path }
            | Ask::MakeDirectory { path, .. }
            | Ask::Remove { path, .. } => path,
        }
    }

    /// Does it, and answers with the exit code.
    pub(super) async fn play(self, machine: Arc<Machine>, input: mpsc::Receiver<Bytes>, output: Output) -> i32 {
        match self.act(&machine, input, &output).await {
            Ok(()) => 0,
            Err(Failure { kind, message }) => {
                output.stderr.line(&json!({ "version": 1, "error_kind": kind, "message": message }).to_string());
                FAILED
            }
        }
    }

    async fn act(&self, machine: &Machine, input: mpsc::Receiver<Bytes>, output: &Output) -> Outcome {
        match self {
            Ask::WriteFile { path } => {
                run(machine, WRITABLE, &[path]).await?;
                let bytes = stream::unfold(input, |mut input| async move { Some((input.recv().await?, input)) });
                let bytes = std::pin::pin!(bytes.map(Ok::<_, std::convert::Infallible>));
                machine.write_file(path, bytes).await?;
            }
            Ask::ReadFile { path } => {
                run(machine, READABLE, &[path]).await?;
                let mut bytes = std::pin::pin!(machine.read_file(path).await?);
                while let Some(part) = bytes.next().await {
                    output.stdout.write(&part.map_err(MachineError::from)?);
                }
            }
            Ask::ListFiles { path } => {
                let found = run(machine, LIST, &[path, FORMAT]).await?;
                let entries: Vec<Value> = entries(&found, |name| format!("{}/{name}", path.trim_end_matches('/')));
                output.stdout.write(json!(entries).to_string().as_bytes());
            }
            Ask::Stat { path } => {
                let found = run(machine, STAT, &[path, FORMAT]).await?;
                let entries = entries(&found, |_| path.clone());
                output.stdout.write(entries.first().unwrap_or(&Value::Null).to_string().as_bytes());
            }
            Ask::MakeDirectory { path, parents } => {
                run(machine, if *parents { MAKE_ALL } else { MAKE_ONE }, &[path]).await?;
            }
            Ask::Remove { path, recursive } => {
                run(machine, if *recursive { REMOVE_ALL } else { REMOVE_ONE }, &[path]).await?;
            }
        }
        Ok(())
    }
}

type Outcome<T = ()> = std::result::Result<T, Failure>;

impl From<MachineError> for Failure {
    fn from(error: MachineError) -> Failure {
        Failure { kind: "Io".to_owned(), message: error.to_string() }
    }
}

/// Kinds of failures with their messages. Scripts print the kind alone.
const KINDS: [(&str, &str); 6] = [
    ("NotFound", "No such file or directory"),
    ("IsDirectory", "Is a directory"),
    ("NotDirectory", "Not a directory"),
    ("IsFile", "Is a file"),
    ("PathAlreadyExists", "Path already exists"),
    ("DirectoryNotEmpty", "Directory not empty"),
];

const WRITABLE: &str = r#"
if [ -d "$1" ]; then echo IsDirectory >&2; exit 1; fi
at=$1
while [ "$at" != / ]; do
  at=$(dirname -- "$at")
  if [ -e "$at" ] && [ ! -d "$at" ]; then echo NotDirectory >&2; exit 1; fi
done"#;
const READABLE: &str = r#"
if [ -d "$1" ]; then echo IsDirectory >&2; exit 1; fi
if [ ! -e "$1" ]; then echo NotFound >&2; exit 1; fi"#;
const LIST: &str = r#"
if [ ! -e "$1" ]; then echo NotFound >&2; exit 1; fi
if [ ! -d "$1" ]; then echo NotDirectory >&2; exit 1; fi
exec find "$1/" -mindepth 1 -maxdepth 1 -printf "$2""#;
const STAT: &str = r#"
if [ ! -e "$1" ] && [ ! -L "$1" ]; then echo NotFound >&2; exit 1; fi
exec find "$1" -maxdepth 0 -printf "$2""#;
const MAKE_ALL: &str = r#"
if [ -e "$1" ] && [ ! -d "$1" ]; then echo PathAlreadyExists >&2; exit 1; fi
at=$1
while [ "$at" != / ]; do
  at=$(dirname -- "$at")
  if [ -e "$at" ] && [ ! -d "$at" ]; then echo NotDirectory >&2; exit 1; fi
done
exec mkdir -p -- "$1""#;
const MAKE_ONE: &str = r#"
if [ -e "$1" ]; then echo PathAlreadyExists >&2; exit 1; fi
parent=$(dirname -- "$1")
if [ ! -e "$parent" ]; then echo NotFound >&2; exit 1; fi
if [ ! -d "$parent" ]; then echo NotDirectory >&2; exit 1; fi
exec mkdir -- "$1""#;
const REMOVE_ALL: &str = r#"
if [ ! -e "$1" ] && [ ! -L "$1" ]; then echo NotFound >&2; exit 1; fi
exec rm -rf -- "$1""#;
const REMOVE_ONE: &str = r#"
if [ ! -e "$1" ] && [ ! -L "$1" ]; then echo NotFound >&2; exit 1; fi
if [ ! -d "$1" ] || [ -L "$1" ]; then exec rm -f -- "$1"; fi
rmdir -- "$1" 2>/dev/null || { echo DirectoryNotEmpty >&2; exit 1; }"#;

/// Nine fields of each entry, for `find -printf`.
const FORMAT: &str = r"%f\0%y\0%s\0%m\0%M\0%u\0%g\0%T@\0%l\0";
const FIELDS: usize = 9;

async fn run(machine: &Machine, script: &str, arguments: &[&str]) -> Outcome<Vec<u8>> {
    machine.tool(script, arguments).await.map_err(|error| match error {
        MachineError::Failed { why, .. } => match KINDS.iter().find(|(kind, _)| *kind == why) {
            Some((kind, message)) => Failure { kind: (*kind).to_owned(), message: (*message).to_owned() },
            None => Failure { kind: "Io".to_owned(), message: why },
        },
        error => error.into(),
    })
}

/// The entries that `find` has printed, by name; `path` makes the whole path of a name.
fn entries(found: &[u8], path: impl Fn(&str) -> String) -> Vec<Value> {
    let text = String::from_utf8_lossy(found);
    let fields: Vec<&str> = text.split_terminator('\0').collect();
    let entry = |fields: &[&str]| -> Option<Value> {
        let [name, kind, size, mode, permissions, owner, group, modified, target] = fields else { return None };
        let kind = match *kind {
            "d" => "directory",
            "l" => "symlink",
            _ => "file",
        };
        let mut entry = json!({
            "name": name,
            "path": path(name),
            "type": kind,
            "size": size.parse::<u64>().ok()?,
            "mode": u32::from_str_radix(mode, 8).ok()?,
            "permissions": permissions.get(1..)?,
            "owner": owner,
            "group": group,
            "modified_time": modified.parse::<f64>().ok()?,
        });
        if kind == "symlink" {
            entry["symlink_target"] = json!(target);
        }
        Some(entry)
    };
    let mut files: Vec<&[&str]> = fields.chunks(FIELDS).collect();
    files.sort();
    files.into_iter().filter_map(entry).collect()
}
