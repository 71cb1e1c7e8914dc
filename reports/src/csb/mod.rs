//! The result files of code-sandbox-bench, an older harness: their form, and writing them from evidence.
//!
//! * [`TaskResult`] is one result as those files have it, [`PHASES`] the phases that they know;
//! * [`phases`] says which of ours they are, so that figures of both harnesses stand side by side;
//! * [`write()`] turns a run into such files; a run that was imported from them comes out as it went in;
//! * [`Rollup`] has the figures of that harness's report, by its own methods.
//!
//! Source of the form: GymPod/code-sandbox-bench on GitHub, its result files and report of May 2026.

mod export;
mod result;
mod rollup;

#[cfg(test)]
mod tests;

pub use export::{Exported, write};
pub use result::{PHASES, TaskResult, phase_of, phases};
pub use rollup::{Figures, Rollup, rollup};

/// Name under which an imported attempt keeps its result as it was, byte for byte.
pub const ORIGINAL: &str = "csb.result";

/// Characters that a tail of output has at most.
pub const TAIL_CHARACTERS: usize = 2000;

/// The exit code that says "time limit" in these files.
pub const TIMED_OUT: i64 = 124;
