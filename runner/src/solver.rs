//! Solvers: what does the task.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use bytes::Bytes;

use crate::agent::Agent;
use crate::recording::Replay;

/// What does the task.
#[derive(Debug, Clone)]
pub enum Solver {
    /// Nothing: the verifier must say no.
    None,
    /// The task's reference solution.
    Gold,
    /// A script of the user's, run in the sandbox.
    Command {
        /// How it was named: `command` or the file's name.
        name: String,
        /// The script.
        script: Bytes,
    },
    /// What a recording says, step by step.
    Replay(Arc<Replay>),
    /// A model behind a gateway.
    Agent(Arc<Agent>),
}

/// Longest command script, in bytes.
const MAX_SCRIPT: u64 = 4 << 20;

impl Solver {
    /// Reads `none`, `gold`, `command:TEXT`, `command-file:PATH`, `replay:FILE` or `agent`, for which `agent` is asked.
    ///
    /// # Errors
    /// The text is none of these, the file cannot be read, or there is no agent.
    pub fn parse(text: &str, agent: impl FnOnce() -> anyhow::Result<Agent>) -> anyhow::Result<Self> {
        match text.split_once(':') {
            None if text == "agent" => Ok(Self::Agent(Arc::new(agent()?))),
            Some(("replay", path)) => Ok(Self::Replay(Arc::new(Replay::read(Path::new(path))?))),
            None if text == "none" => Ok(Self::None),
            None if text == "gold" => Ok(Self::Gold),
            Some(("command", script)) if !script.trim().is_empty() => {
                Ok(Self::Command { name: "command".into(), script: Bytes::from(format!("{script}\n")) })
            }
            Some(("command-file", path)) => Self::from_file(Path::new(path)),
            _ => {
                bail!("unknown solver {text:?}: use none, gold, command:TEXT, command-file:PATH, replay:FILE or agent")
            }
        }
    }

    fn from_file(path: &Path) -> anyhow::Result<Self> {
        let name = path.file_name().map_or_else(|| "command-file".into(), |n| n.to_string_lossy().into_owned());
        Ok(Self::Command { name, script: read_script(path)? })
    }
}

/// Reads a script of the user's.
///
/// # Errors
/// It cannot be read, or is too large.
pub fn read_script(path: &Path) -> anyhow::Result<Bytes> {
    let what = || format!("solver file {}", path.display());
    let size = fs::metadata(path).with_context(what)?.len();
    if size > MAX_SCRIPT {
        bail!("{} has {size} bytes; the limit is {MAX_SCRIPT}", what());
    }
    Ok(fs::read(path).with_context(what)?.into())
}

impl fmt::Display for Solver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Gold => f.write_str("gold"),
            Self::Command { name, .. } => f.write_str(name),
            Self::Replay(replay) => write!(f, "replay:{}", replay.name),
            Self::Agent(_) => f.write_str("agent"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(text: &str) -> anyhow::Result<Solver> {
        Solver::parse(text, || bail!("no gateway"))
    }

    #[test]
    fn every_documented_form_is_read_and_others_are_refused() {
        assert!(matches!(parse("none").unwrap(), Solver::None));
        assert!(matches!(parse("gold").unwrap(), Solver::Gold));
        let Solver::Command { script, .. } = parse("command:echo a:b").unwrap() else { panic!("no command") };
        assert_eq!(script, Bytes::from("echo a:b\n"));
        for bad in ["", "Gold", "command:", "command: ", "command-file:/nonexistent/solver", "oracle", "replay:/none"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(parse("agent").unwrap_err().to_string(), "no gateway");
    }
}
