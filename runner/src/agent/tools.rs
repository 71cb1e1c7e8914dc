//! What the model may do, and reading its calls.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::stream::RawCall;

/// Time limit of a command when the model sets none.
const COMMAND_LIMIT: u64 = 120;
/// Lines that are read when the model does not say how many.
const READ_LINES: u64 = 1000;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tool {
    /// Run a command by the shell.
    Run {
        /// The command.
        command: String,
        /// Its time limit.
        timeout: Duration,
    },
    /// Read lines of a file.
    Read {
        /// The file.
        path: String,
        /// The first line, from 1.
        first: u64,
        /// The last line.
        last: u64,
    },
    /// Write a file.
    Write {
        /// The file.
        path: String,
        /// All of its new content.
        content: String,
    },
    /// Replace a text that occurs exactly once in a file.
    Patch {
        /// The file.
        path: String,
        /// The text.
        old: String,
        /// What takes its place.
        new: String,
    },
    /// The work is done.
    Finish,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunArgs {
    command: String,
    timeout_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArgs {
    path: String,
    first_line: Option<u64>,
    lines: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArgs {
    path: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchArgs {
    path: String,
    old: String,
    new: String,
}

impl Tool {
    /// Reads a call.
    ///
    /// # Errors
    /// What is wrong with it, in words for the model.
    pub fn parse(call: &RawCall) -> Result<Self, String> {
        let arguments = arguments(call).map_err(|why| format!("the arguments are not a JSON object: {why}"))?;
        let tool = match call.name.as_str() {
            "run_command" => {
                let RunArgs { command, timeout_seconds } = read(arguments)?;
                let timeout = Duration::from_secs(timeout_seconds.unwrap_or(COMMAND_LIMIT).max(1));
                Self::Run { command: text("command", command)?, timeout }
            }
            "read_file" => {
                let ReadArgs { path, first_line, lines } = read(arguments)?;
                let first = first_line.unwrap_or(1).max(1);
                let last = first.saturating_add(lines.unwrap_or(READ_LINES).max(1) - 1);
                Self::Read { path: name(path)?, first, last }
            }
            "write_file" => {
                let WriteArgs { path, content } = read(arguments)?;
                Self::Write { path: name(path)?, content }
            }
            "patch_file" => {
                let PatchArgs { path, old, new } = read(arguments)?;
                if old.is_empty() || old == new {
                    return Err("`old` must not be empty, and `new` must differ from it".into());
                }
                Self::Patch { path: name(path)?, old, new }
            }
            // Whatever is said beside it does not matter.
            "finish" => Self::Finish,
            other => return Err(format!("there is no tool {other:?}; there are {}", NAMES.join(", "))),
        };
        Ok(tool)
    }
}

/// The arguments of a call. No text at all stands for no arguments.
pub fn arguments(call: &RawCall) -> Result<serde_json::Map<String, Value>, String> {
    if call.arguments.trim().is_empty() {
        return Ok(serde_json::Map::new());
    }
    serde_json::from_str(&call.arguments).map_err(|error| error.to_string())
}

fn read<T: for<'de> Deserialize<'de>>(arguments: serde_json::Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| error.to_string())
}

fn text(what: &str, text: String) -> Result<String, String> {
    match text {
        text if text.trim().is_empty() => Err(format!("`{what}` is empty")),
        text if text.contains('\0') => Err(format!("`{what}` holds a NUL byte")),
        text => Ok(text),
    }
}

/// A file name that no command takes for an option.
fn name(path: String) -> Result<String, String> {
    let path = text("path", path)?;
    Ok(if path.starts_with('-') { format!("./{path}") } else { path })
}

const NAMES: [&str; 5] = ["run_command", "read_file", "write_file", "patch_file", "finish"];

/// The tools as the gateway is told of them.
#[must_use]
pub fn definitions() -> Vec<Value> {
    let string = |description: &str| json!({ "type": "string", "description": description });
    let integer = |description: &str| json!({ "type": "integer", "minimum": 1, "description": description });
    let path = || string("File name, absolute or relative to the working directory.");
    let tool = |name: &str, description: &str, properties: Value, required: &[&str]| {
        json!({
            "type": "function",
            "function": {
                "name": name,
                "description": description,
                "parameters": {
                    "type": "object",
                    "properties": properties,
                    "required": required,
                    "additionalProperties": false,
                },
            },
        })
    };
    vec![
        tool(
            "run_command",
            "Runs a shell command in the working directory and returns its exit code and output. Every command is a new \
             shell: directory changes and variables do not last. Long output is shortened in the middle.",
            json!({
                "command": string("The command, for bash where it is there, else sh."),
                "timeout_seconds": integer("Time limit of the command. Default: 120."),
            }),
            &["command"],
        ),
        tool(
            "read_file",
            "Returns lines of a text file.",
            json!({
                "path": path(),
                "first_line": integer("First line to return, from 1. Default: 1."),
                "lines": integer("Number of lines. Default: 1000."),
            }),
            &["path"],
        ),
        tool(
            "write_file",
            "Writes a text file, replacing what was there. Makes missing directories.",
            json!({ "path": path(), "content": string("The whole new content.") }),
            &["path", "content"],
        ),
        tool(
            "patch_file",
            "Replaces a piece of a text file. The piece must occur exactly once.",
            json!({
                "path": path(),
                "old": string("The piece to replace, exactly as it is in the file, line ends included."),
                "new": string("What takes its place."),
            }),
            &["path", "old", "new"],
        ),
        tool(
            "finish",
            "Ends the work. Call it when the task is done, or when it cannot be done.",
            json!({ "summary": string("What was done, in a sentence.") }),
            &[],
        ),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(name: &str, arguments: &str) -> Result<Tool, String> {
        Tool::parse(&RawCall { id: "1".into(), name: name.into(), arguments: arguments.into() })
    }

    #[test]
    fn calls_are_read_with_their_defaults() {
        let command =
            |command: &str, seconds| Tool::Run { command: command.into(), timeout: Duration::from_secs(seconds) };
        assert_eq!(parse("run_command", r#"{"command": "ls"}"#).unwrap(), command("ls", 120));
        assert_eq!(parse("run_command", r#"{"command": "ls", "timeout_seconds": 0}"#).unwrap(), command("ls", 1));
        let read = Tool::Read { path: "./-f".into(), first: 5, last: u64::MAX };
        let arguments = format!(r#"{{"path": "-f", "first_line": 5, "lines": {}}}"#, u64::MAX);
        assert_eq!(parse("read_file", &arguments).unwrap(), read);
        assert_eq!(parse("finish", "").unwrap(), Tool::Finish);
        assert_eq!(parse("finish", r#"{"whatever": 1}"#).unwrap(), Tool::Finish);
    }

    #[test]
    fn what_is_wrong_with_a_call_is_said() {
        for (name, arguments, why) in [
            ("run_command", "{\"command\": \"l", "not a JSON object"),
            ("run_command", "[]", "not a JSON object"),
            ("run_command", "{}", "missing field `command`"),
            ("run_command", r#"{"command": " "}"#, "`command` is empty"),
            ("run_command", r#"{"cmd": "ls"}"#, "unknown field"),
            ("write_file", r#"{"path": "a\u0000b", "content": ""}"#, "NUL"),
            ("patch_file", r#"{"path": "a", "old": "", "new": "x"}"#, "`old` must not be empty"),
            ("sudo", "{}", "there is no tool"),
        ] {
            let error = parse(name, arguments).unwrap_err();
            assert!(error.contains(why), "{name} {arguments}: {error}");
        }
    }

    #[test]
    fn every_tool_that_is_offered_is_understood() {
        let offered: Vec<String> =
            definitions().iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(offered, NAMES);
    }
}
