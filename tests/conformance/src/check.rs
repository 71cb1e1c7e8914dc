//! How a behaviour says that a promise holds, is broken, or cannot be tested here.

use std::fmt::Debug;

use sandbox_bench_core::{Error, Result};

/// Why a behaviour stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The promise is broken: what was observed, and what was expected.
    Failed(String),
    /// It cannot be tested here, and why.
    Skipped(String),
}

/// The result of a behaviour, or of a step in one.
pub type Check<T = ()> = Result<T, Stop>;

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(format!("unexpected error ({}): {error}", error.kind().name()))
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(format!("on the host: {error}"))
    }
}

/// Stops the behaviour as failed with a formatted message unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Stop::Failed(format!($($message)+)));
        }
    };
}

/// Fails unless `actual` is `expected`.
///
/// # Errors
/// Both values, shortened.
pub fn same<T: PartialEq + Debug>(what: &str, actual: T, expected: T) -> Check {
    ensure!(actual == expected, "{what}: expected {}, got {}", brief(&expected), brief(&actual));
    Ok(())
}

/// Fails unless `result` is an error of one of these kinds (see [`sandbox_bench_core::ErrorKind::name`]).
///
/// # Errors
/// What came instead.
pub fn refused<T>(what: &str, result: Result<T>, kinds: &[&str]) -> Check<Error> {
    match result {
        Err(error) if kinds.contains(&error.kind().name()) => Ok(error),
        Err(error) => {
            Err(Stop::Failed(format!("{what}: expected an error of {kinds:?}, got {}: {error}", error.kind().name())))
        }
        Ok(_) => Err(Stop::Failed(format!("{what}: expected an error of {kinds:?}, but it succeeded"))),
    }
}

/// `value` for a message: its debug form, cut in the middle.
pub fn brief(value: &impl Debug) -> String {
    let text: Vec<char> = format!("{value:?}").chars().collect();
    match text.len() {
        0..400 => text.into_iter().collect(),
        len => {
            let (head, tail) = (&text[..200], &text[len - 150..]);
            format!("{} … {}", String::from_iter(head), String::from_iter(tail))
        }
    }
}
