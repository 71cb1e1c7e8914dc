//! Fetching data set files from a Hugging Face hub, by plain HTTPS.
//!
//! Promises: a file appears whole and checked, or not at all; an interrupted download goes on where it stopped; every
//! wait has a limit and all of them together a deadline; the token goes to the hub's own origin and nowhere else.
//!
//! Source: the hub's HTTP interface as documented (`/datasets/{id}/resolve/{revision}/{path}`,
//! `/api/datasets/{id}/tree/{revision}`) and as its own client uses it (`X-Linked-Etag`, `X-Linked-Size`).

mod download;
mod error;
mod hub;

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

pub use error::FetchError;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use hub::Hub;
use reqwest::Url;
use sandbox_bench_core::Digest;
use secrecy::SecretString;
use tokio::time::Instant;

/// The hub that is asked if no other is named.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// What to fetch, and how.
#[derive(Debug, Clone)]
pub struct FetchSpec {
    /// `owner/name` of the data set.
    pub dataset: String,
    /// Branch, tag or commit.
    pub revision: String,
    /// Files to fetch; `*`, `**`, `?` and `[…]` match as in file globs, `*` not across `/`.
    pub paths: Vec<String>,
    /// Directory that the files go to, with their paths in the data set.
    pub out: PathBuf,
    /// The hub.
    pub endpoint: String,
    /// Token for the hub.
    pub token: Option<SecretString>,
    /// Limit for everything together.
    pub deadline: Duration,
    /// Wait before the first repetition; doubled for each further one that brings nothing.
    pub backoff: Duration,
}

impl FetchSpec {
    /// All Parquet and JSONL files of the main branch, from the hub in `HF_ENDPOINT` with the token in `HF_TOKEN`, if
    /// these variables are set; at most 6 hours.
    #[must_use]
    pub fn new(dataset: impl Into<String>, out: impl Into<PathBuf>) -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            dataset: dataset.into(),
            revision: "main".to_owned(),
            paths: vec!["**/*.parquet".to_owned(), "**/*.jsonl".to_owned()],
            out: out.into(),
            endpoint: variable("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned()),
            token: variable("HF_TOKEN").map(SecretString::from),
            deadline: Duration::from_secs(6 * 3600),
            backoff: Duration::from_secs(1),
        }
    }
}

/// How far a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Its path in the data set.
    pub path: String,
    /// Bytes here.
    pub bytes: u64,
    /// Bytes in all, if known.
    pub total: Option<u64>,
}

/// A fetched file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Its path in the data set.
    pub path: String,
    /// Where it is now.
    pub file: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its digest.
    pub digest: Digest,
    /// True if the hub named a SHA-256 and it is this one; else only the size was checked.
    pub verified: bool,
    /// True if it was there already.
    pub already_there: bool,
    /// The commit that the hub says it is from.
    pub commit: Option<String>,
}

/// Fetches the files of a data set, one after the other. It may be dropped at any time; calling it again goes on.
///
/// # Errors
/// The first file that cannot be fetched ends it; files fetched before stay.
pub async fn fetch(spec: &FetchSpec, mut progress: impl FnMut(Progress)) -> Result<Vec<Fetched>, FetchError> {
    let deadline = Instant::now() + spec.deadline;
    let hub = Hub::new(spec, deadline)?;
    let mut fetched = Vec::new();
    for path in paths(spec, &hub).await? {
        let place = spec.out.join(checked(&path)?);
        fetched.push(download::file(&hub, &path, &place, spec.backoff, &mut progress).await?);
    }
    Ok(fetched)
}

/// The paths asked for, with globs resolved by the hub's listing.
async fn paths(spec: &FetchSpec, hub: &Hub) -> Result<Vec<String>, FetchError> {
    let is_glob = |path: &String| path.contains(['*', '?', '[']);
    if !spec.paths.iter().any(is_glob) {
        return Ok(spec.paths.clone());
    }
    let wanted = globs(&spec.paths)?;
    let mut available = hub.list(spec.backoff).await?;
    available.sort();
    let found: Vec<String> = available.iter().filter(|path| wanted.is_match(path.as_str())).cloned().collect();
    if found.is_empty() {
        available.truncate(5);
        return Err(FetchError::NoMatch { patterns: spec.paths.join(", "), available: available.join(", ") });
    }
    Ok(found)
}

fn globs(patterns: &[String]) -> Result<GlobSet, FetchError> {
    let invalid = |error: globset::Error| FetchError::InvalidSpec(format!("the pattern is no glob: {error}"));
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(GlobBuilder::new(pattern).literal_separator(true).build().map_err(invalid)?);
    }
    set.build().map_err(invalid)
}

/// A path from the user or the hub, if it stays inside the output directory.
fn checked(path: &str) -> Result<&Path, FetchError> {
    let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if inside && !path.is_empty() && !path.chars().any(char::is_control) {
        Ok(Path::new(path))
    } else {
        Err(FetchError::InvalidSpec(format!("the path {path:?} is not inside the data set")))
    }
}

/// The endpoint as an address. A token goes over https only, or to this machine.
fn endpoint(text: &str, with_token: bool) -> Result<Url, FetchError> {
    let invalid = |why: &str| FetchError::InvalidSpec(format!("the endpoint {text:?} {why}"));
    let url = Url::parse(text).map_err(|_| invalid("is no address"))?;
    let local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    match url.scheme() {
        "https" => Ok(url),
        "http" if local || !with_token => Ok(url),
        "http" => Err(invalid("is not https, and a token would be readable on the way")),
        _ => Err(invalid("is not https")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn paths_stay_inside() {
        for bad in ["", "/etc/passwd", "../x", "a/../../x", "a\nb", "."] {
            assert!(checked(bad).is_err(), "{bad:?}");
        }
        assert_eq!(checked("data/train-0.parquet").unwrap(), Path::new("data/train-0.parquet"));
    }

    #[test]
    fn no_token_goes_over_plain_http() {
        assert!(endpoint("https://example.com", true).is_ok());
        assert!(endpoint("http://127.0.0.1:1234", true).is_ok());
        assert!(endpoint("http://example.com", true).is_err());
        assert!(endpoint("http://example.com", false).is_ok());
        for bad in ["ftp://example.com", "example.com", ""] {
            assert!(endpoint(bad, false).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn stars_do_not_cross_directories() {
        let set = globs(&["data/*.parquet".to_owned()]).unwrap();
        assert!(set.is_match("data/a.parquet") && !set.is_match("data/x/a.parquet"));
        assert!(globs(&["[".to_owned()]).is_err());
    }
}
