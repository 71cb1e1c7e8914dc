//! Image builds: the instructions of a Dockerfile, really executed in a machine.

mod build;
mod log;
mod parse;
mod words;

pub use self::build::{BuildError, build};
pub use self::log::BuildLog;
pub use self::parse::{Dockerfile, Instruction, ParseError, Run, Step};
