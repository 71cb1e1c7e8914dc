//! What the program says. A reader that has gone must not end a run: a pipe to `head`, a terminal that was closed.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

use anyhow::Context as _;

use crate::exit::Fault;

/// Writes a line of the result to stdout. A reader that has gone has seen enough.
///
/// # Errors
/// The result is lost for another reason, such as a full disk.
pub fn result(text: impl Display) -> Result<(), Fault> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the result to stdout").map_err(Fault::evidence),
    }
}

/// Writes a line to stderr, for a person who may be there.
pub fn aside(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
