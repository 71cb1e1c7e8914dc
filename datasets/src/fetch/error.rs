//! Why a file could not be fetched.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use sandbox_bench_core::Digest;

/// Why fetching ended. No message holds a token or a signed address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The request makes no sense.
    #[error("{0}")]
    InvalidSpec(String),
    /// The hub wants to know who asks, or says no.
    #[error(
        "{path}: the hub refuses access ({status}); set HF_TOKEN to a token that may read the data set, and accept its terms on its page"
    )]
    Refused {
        /// What was asked for.
        path: String,
        /// The HTTP status.
        status: u16,
    },
    /// The hub does not have it.
    #[error("{path}: not found on the hub; check data set, revision and path (private ones need HF_TOKEN)")]
    NotFound {
        /// What was asked for.
        path: String,
    },
    /// No file matches.
    #[error("no file matches {patterns}; there are, among others: {available}")]
    NoMatch {
        /// The patterns.
        patterns: String,
        /// Up to five files that exist.
        available: String,
    },
    /// The content is not what the hub says it is. What was fetched is thrown away.
    #[error("{path}: the checksum is {found}, but the hub says {expected}; fetch it again")]
    Checksum {
        /// The file.
        path: String,
        /// What the hub says.
        expected: Digest,
        /// What came.
        found: Digest,
    },
    /// The hub answers with something that cannot be followed.
    #[error("{path}: {what}")]
    Protocol {
        /// What was asked for.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// The hub could not be reached, or failed, or asked to wait, too often.
    #[error("{path}: {what} ({tries} tries without progress); what is here stays, so call it again later")]
    Unavailable {
        /// What was asked for.
        path: String,
        /// What happened last.
        what: String,
        /// How often it was tried.
        tries: u32,
    },
    /// The deadline passed.
    #[error("{path}: the time is up; what is here stays, so call it again")]
    Deadline {
        /// What was being fetched.
        path: String,
    },
    /// The output cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// What one try ended with.
pub(super) enum Failure {
    /// It makes no sense to try again.
    Final(FetchError),
    /// It may go better next time, after this wait if the hub named one.
    Passing { what: String, wait: Option<Duration> },
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        Self::Final(error)
    }
}
