//! Solvers: what does the task.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use bytes::Bytes;

/// What does the task.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}

/// Longest command script, in bytes.
const MAX_SCRIPT: u64 = 4 << 20;

impl Solver {
    /// Reads `none`, `gold`, `command:TEXT` or `command-file:PATH`.
    ///
    /// # Errors
    /// The text is none of these, or the file cannot be read.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            None if text == "gold" => Ok(Self::Gold),
            Some(("command", script)) if !script.trim().is_empty() => {
                Ok(Self::Command { name: "command".into(), script: Bytes::from(format!("{script}\n")) })
            }
            Some(("command-file", path)) => Self::from_file(Path::new(path)),
            _ => bail!("unknown solver {text:?}: use none, gold, command:TEXT or command-file:PATH"),
        }
    }

    fn from_file(path: &Path) -> anyhow::Result<Self> {
        let size = fs::metadata(path).with_context(|| format!("solver file {}", path.display()))?.len();
        if size > MAX_SCRIPT {
            bail!("solver file {} has {size} bytes; the limit is {MAX_SCRIPT}", path.display());
        }
        let script = fs::read(path).with_context(|| format!("solver file {}", path.display()))?;
        let name = path.file_name().map_or_else(|| "command-file".into(), |n| n.to_string_lossy().into_owned());
        Ok(Self::Command { name, script: script.into() })
    }
}

impl fmt::Display for Solver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Gold => f.write_str("gold"),
            Self::Command { name, .. } => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_documented_form_is_read_and_others_are_refused() {
        assert_eq!(Solver::parse("none").unwrap(), Solver::None);
        assert_eq!(Solver::parse("gold").unwrap(), Solver::Gold);
        let Solver::Command { script, .. } = Solver::parse("command:echo a:b").unwrap() else { panic!("no command") };
        assert_eq!(script, Bytes::from("echo a:b\n"));
        for bad in ["", "Gold", "command:", "command: ", "command-file:/nonexistent/solver", "oracle"] {
            assert!(Solver::parse(bad).is_err(), "{bad}");
        }
    }
}
