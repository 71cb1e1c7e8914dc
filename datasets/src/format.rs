//! The forms of tasks by name, for users who want to say what they have.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A form of tasks. Given explicitly, only tasks of this form are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Harbor task directories.
    Harbor,
    /// terminal-bench 1 task directories.
    TerminalBench1,
    /// Rows with an archive of one task each.
    TaskRows,
    /// SWE-smith rows.
    SweSmith,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Harbor, Self::TerminalBench1, Self::TaskRows, Self::SweSmith];

    /// The name used on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Harbor => "harbor",
            Self::TerminalBench1 => "terminal-bench-1",
            Self::TaskRows => "task-rows",
            Self::SweSmith => "swe-smith",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is no name of a format.
#[derive(Debug, thiserror::Error)]
#[error("unknown format {0:?} (known: harbor, terminal-bench-1, task-rows, swe-smith)")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| UnknownFormat(text.chars().take(40).collect()))
    }
}
