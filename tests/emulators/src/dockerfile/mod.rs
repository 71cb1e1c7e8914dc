//! Image builds: the instructions of a Dockerfile, really executed in a machine.

mod build;
mod parse;
mod words;

pub use crate::log::Log as BuildLog;

pub use self::build::{Build, BuildError, build};
pub use self::parse::{Dockerfile, Instruction, ParseError, Run, Step};
