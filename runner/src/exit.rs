//! Exit codes: what a script may conclude from the end of the process.

use std::fmt;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Every trial was accepted, and everything is cleaned up.
    Accepted = 0,
    /// Some trials were rejected by their verifier, or tasks of a data set are invalid; nothing else went wrong.
    Rejected = 1,
    /// The command line, a configuration file or a data set is wrong; nothing was run.
    Usage = 2,
    /// Some trials failed for another reason than the verifier's word, or nothing could be run.
    Infrastructure = 3,
    /// Something that the run created is not confirmed gone: `sandbox-bench reap`.
    Cleanup = 4,
    /// The evidence could not be written.
    Evidence = 5,
    /// The user interrupted the run.
    Interrupted = 130,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error that ends the process, with the code that it ends with.
#[derive(Debug)]
pub struct Fault {
    /// The code.
    pub exit: Exit,
    /// What happened, and what to do.
    pub error: anyhow::Error,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = self.error.to_string();
        f.write_str(&told)?;
        // Many errors have their cause in their own words already; what was said is not said again.
        for cause in self.error.chain().skip(1).map(ToString::to_string) {
            if !told.contains(&cause) {
                write!(f, ": {cause}")?;
                told.push_str(&cause);
            }
        }
        Ok(())
    }
}

impl Fault {
    /// The request is wrong.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Usage, error: error.into() }
    }

    /// A backend or the machine does not do its part.
    pub fn infrastructure(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Infrastructure, error: error.into() }
    }

    /// The evidence cannot be written or read.
    pub fn evidence(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Evidence, error: error.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_told_once() {
        let disk = std::io::Error::other("disk full");
        assert_eq!(Fault::evidence(anyhow::Error::new(disk).context("journal")).to_string(), "journal: disk full");
        let wrapped = sandbox_bench_core::Error::invalid("no such image").because(std::io::Error::other("404"));
        assert_eq!(Fault::usage(wrapped).to_string(), "no such image: 404");
    }
}
