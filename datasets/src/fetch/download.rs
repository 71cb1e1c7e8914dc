//! One file: begun or gone on with, checked, and put in its place.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::CONTENT_RANGE;
use sandbox_bench_core::Digest;
use sandbox_bench_core::digest::Hasher;
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::error::{Failure, FetchError};
use super::hub::{FileFacts, Hub, passing};
use super::{Fetched, Progress};

/// Fetches `path` to `place`.
pub(super) async fn file(
    hub: &Hub,
    path: &str,
    place: &Path,
    backoff: Duration,
    progress: &mut impl FnMut(Progress),
) -> Result<Fetched, FetchError> {
    let facts = hub.persistently(path, backoff, || hub.facts(path)).await?;
    if let Some(expected) = facts.digest()
        && let Ok((digest, bytes)) = digest(place).await
        && digest == expected
    {
        let (path, file) = (path.to_owned(), place.to_owned());
        return Ok(Fetched { path, file, bytes, digest, verified: true, already_there: true, commit: facts.commit });
    }
    let mut part = Part::open(place, &facts).await?;
    let resumed = part.bytes > 0;
    part.complete(hub, path, &facts, backoff, progress).await?;
    let mut found = part.digest().await?;
    if let Some(expected) = facts.digest().filter(|expected| *expected != found) {
        part.restart().await?;
        if !resumed {
            part.remove().await;
            return Err(FetchError::Checksum { path: path.to_owned(), expected, found });
        }
        // The beginning, from an earlier call, may be what is wrong.
        part.complete(hub, path, &facts, backoff, progress).await?;
        found = part.digest().await?;
        if expected != found {
            part.remove().await;
            return Err(FetchError::Checksum { path: path.to_owned(), expected, found });
        }
    }
    let bytes = part.bytes;
    part.finish(place).await?;
    Ok(Fetched {
        path: path.to_owned(),
        file: place.to_owned(),
        bytes,
        digest: found,
        verified: facts.digest().is_some(),
        already_there: false,
        commit: facts.commit,
    })
}

async fn digest(place: &Path) -> io::Result<(Digest, u64)> {
    let mut file = File::open(place).await?;
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 1 << 18];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer).await?;
        if read == 0 {
            return Ok((hasher.finish(), bytes));
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
        bytes += read as u64;
    }
}

/// A file that is not whole yet. Its name has the hub's tag in it, so that another version never continues it.
struct Part {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Part {
    async fn open(place: &Path, facts: &FileFacts) -> Result<Self, FetchError> {
        let name = place.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let path = place.with_file_name(format!(".{name}.{}.part", Digest::of(facts.etag.as_bytes()).short(16)));
        let failed = |source| FetchError::Io { path: path.clone(), source };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).await.map_err(failed)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&path).await.map_err(failed)?;
        let mut part = Self { bytes: file.metadata().await.map_err(failed)?.len(), path, file };
        let too_long = facts.size.is_some_and(|size| part.bytes > size);
        // Without a tag nobody knows what the beginning belongs to.
        if too_long || facts.etag.is_empty() {
            part.restart().await?;
        }
        Ok(part)
    }

    fn failed(&self, source: io::Error) -> FetchError {
        FetchError::Io { path: self.path.clone(), source }
    }

    async fn restart(&mut self) -> Result<(), FetchError> {
        self.file.set_len(0).await.map_err(|error| self.failed(error))?;
        self.bytes = 0;
        Ok(())
    }

    /// Fetches what is missing, with as many tries as bring something, and a few that do not.
    async fn complete(
        &mut self,
        hub: &Hub,
        path: &str,
        facts: &FileFacts,
        backoff: Duration,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), FetchError> {
        let mut tries = 0;
        loop {
            let before = self.bytes;
            let Err(failure) = self.try_once(hub, path, facts, progress).await else { return Ok(()) };
            tries = if self.bytes > before { 1 } else { tries + 1 };
            hub.wait(path, failure, tries, backoff).await?;
        }
    }

    async fn try_once(
        &mut self,
        hub: &Hub,
        path: &str,
        facts: &FileFacts,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), Failure> {
        if facts.size == Some(self.bytes) {
            return Ok(());
        }
        let mut response = hub.file(path, self.bytes).await?;
        let range = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
        let continues = range.is_some_and(|range| range.starts_with(&format!("bytes {}-", self.bytes)));
        if self.bytes > 0 && !(response.status() == StatusCode::PARTIAL_CONTENT && continues) {
            let whole = response.status() == StatusCode::OK;
            self.restart().await?;
            if !whole {
                return Err(Failure::Passing { what: "the hub cannot go on with the file".to_owned(), wait: None });
            }
        }
        while let Some(chunk) = hub.within(path, response.chunk()).await?.map_err(passing)? {
            self.file.write_all(&chunk).await.map_err(|error| self.failed(error))?;
            self.bytes += chunk.len() as u64;
            if facts.size.is_some_and(|size| self.bytes > size) {
                self.restart().await?;
                let what = "the hub sends more than it says".to_owned();
                return Err(FetchError::Protocol { path: path.to_owned(), what }.into());
            }
            progress(Progress { path: path.to_owned(), bytes: self.bytes, total: facts.size });
        }
        self.file.flush().await.map_err(|error| self.failed(error))?;
        match facts.size {
            Some(size) if size != self.bytes => {
                Err(Failure::Passing { what: format!("only {} of {size} bytes came", self.bytes), wait: None })
            }
            _ => Ok(()),
        }
    }

    async fn digest(&self) -> Result<Digest, FetchError> {
        digest(&self.path).await.map(|(digest, _)| digest).map_err(|error| self.failed(error))
    }

    async fn finish(self, place: &Path) -> Result<(), FetchError> {
        self.file.sync_all().await.map_err(|error| self.failed(error))?;
        fs::rename(&self.path, place).await.map_err(|source| FetchError::Io { path: place.to_owned(), source })
    }

    async fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path).await {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove what is left of a download");
        }
    }
}
