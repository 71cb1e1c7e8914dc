//! The steps of publishing a run, in an order in which it may stop anywhere: what was asked, files, series, lineage, what came of it, and
//! last how it ended.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use backon::{ExponentialBuilder, Retryable as _};
use futures_util::{StreamExt as _, stream};
use sandbox_bench_core::{
    Call, Description, Digest, Error, ErrorKind, Evaluation, Grants, Result, Series, Tag, TrackedFile, TrackedRun,
    TrackedStatus, Tracker,
};

use super::content::{self, Asked, Came};
use super::files;
use super::log::{Done, Log, Step};

/// Limit of one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// Limit of opening a tracked run: a few requests, and a search for a lost one.
const OPEN_LIMIT: Duration = Duration::from_secs(20);
/// The slowest connection that an upload may have, in bytes in a second.
const SLOWEST: u64 = 256 << 10;
/// How often a request is sent again that did not come through.
const REPETITIONS: usize = 2;
/// Longest pause before one, whatever the service asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Files that are sent at one time.
const AT_ONCE: usize = 4;
/// Files that fail one after the other before the tracker is given up.
const GIVE_UP: usize = 8;
/// Entries of the lineage, and series, that are sent together.
const TOGETHER: usize = 50;

/// What of a run is published.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Published {
    /// The tracker and its place.
    pub place: String,
    /// Id of the tracked run.
    pub id: String,
    /// Files that were sent now.
    pub sent: usize,
    /// Files that were there already.
    pub kept: usize,
    /// What could not be sent, with the reason.
    pub missing: Vec<(String, String)>,
}

impl Published {
    /// True if everything is there.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.missing.is_empty()
    }
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, id, sent, kept, missing } = self;
        write!(f, "tracked:  {place} run {id} ({sent} files sent, {kept} were there already")?;
        if let Some((what, why)) = missing.first() {
            write!(f, "; {} missing, the first of them {what}: {why}", missing.len())?;
        }
        f.write_str(")")
    }
}

/// Makes the run in `directory` known, and that it goes on.
///
/// # Errors
/// Its manifest or the log cannot be read, or the tracker does not do its part.
pub async fn announce(tracker: &dyn Tracker, directory: &Path) -> anyhow::Result<()> {
    let asked = content::asked(directory)?;
    let mut log = Log::open(directory, (tracker.name(), tracker.place()))?;
    let run = open(tracker, &asked.evaluation, &mut log).await?;
    status(run.as_ref(), &mut log, TrackedStatus::Running, "the run goes on").await?;
    describe(run.as_ref(), &mut log, &described(asked, Default::default())).await
}

/// Publishes the finished run in `directory`, as far as it is not published yet.
///
/// # Errors
/// Its evidence cannot be read, or there is no tracked run to publish to. All that happens later is in the result.
pub async fn publish(tracker: &dyn Tracker, directory: &Path) -> anyhow::Result<Published> {
    let asked = content::asked(directory)?;
    let Came { figures, status: end, why } = content::came(directory)?;
    let (outputs, series) = figures.into_series();
    let mut log = Log::open(directory, (tracker.name(), tracker.place()))?;
    let run = open(tracker, &asked.evaluation, &mut log).await?;
    let mut published = Published { id: run.id().to_owned(), ..Published::default() };
    published.place = format!("{} {}", tracker.name(), tracker.place());

    let rest = async || -> anyhow::Result<()> {
        if log.done().status.is_none() {
            status(run.as_ref(), &mut log, TrackedStatus::Running, "the evidence is published").await?;
        }
        let files = upload(run.as_ref(), &mut log, directory, &mut published).await?;
        send_series(run.as_ref(), &mut log, &series).await?;
        link(run.as_ref(), &mut log, &files::lineage(&files)).await?;
        describe(run.as_ref(), &mut log, &described(asked, outputs)).await?;
        if published.complete() {
            status(run.as_ref(), &mut log, end, why).await?;
        }
        Ok(())
    };
    if let Err(error) = rest().await {
        published.missing.push(("the rest".to_owned(), format!("{error:#}")));
    }
    Ok(published)
}

fn described(asked: Asked, outputs: serde_json::Map<String, serde_json::Value>) -> Description {
    let Asked { evaluation, inputs } = asked;
    Description { inputs, outputs, meta: Default::default(), tags: evaluation.tags }
}

/// The tracked run that was opened earlier, else a new one.
async fn open(tracker: &dyn Tracker, evaluation: &Evaluation, log: &mut Log) -> anyhow::Result<Arc<dyn TrackedRun>> {
    let (limit, run) = (OPEN_LIMIT, &evaluation.run);
    if let Some(Done { id, .. }) = &log.done {
        match repeated(run, limit, |call| async move { tracker.attach(&call, evaluation, id).await }).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            attached => return Ok(attached?),
        }
    }
    // Opening twice finds what the first one made.
    let opened = repeated(run, limit, |call| async move { tracker.open(&call, evaluation).await }).await?;
    log.opened(tracker.name(), tracker.place(), opened.id())?;
    Ok(opened)
}

/// Sends what is not there yet; returns all files that are there now.
async fn upload(
    run: &dyn TrackedRun,
    log: &mut Log,
    directory: &Path,
    published: &mut Published,
) -> anyhow::Result<Vec<TrackedFile>> {
    let known = log.done().files.clone();
    let paths = files::list(directory).with_context(|| directory.display().to_string())?;
    let mut sending = stream::iter(paths.into_iter().map(|path| {
        let known = &known;
        async move {
            let (from, named) = (directory.join(&path), path.clone());
            let describing = {
                let directory = directory.to_owned();
                move || files::describe(&directory, path)
            };
            let file = tokio::task::spawn_blocking(describing).await.map_err(std::io::Error::other).flatten();
            let file = file.map_err(|error| (named, error.to_string()))?;
            if known.get(&file.path) == file.digest.as_ref() {
                return Ok((file, false));
            }
            let limit = REQUEST_LIMIT + Duration::from_secs(file.size / SLOWEST);
            let (sent, from) = (&file, &from);
            let sending = repeated(run.id(), limit, |call| async move { run.upload(&call, sent, from).await });
            sending.await.map_err(|error| (file.path.clone(), error.to_string()))?;
            Ok::<_, (String, String)>((file, true))
        }
    }))
    .buffered(AT_ONCE);
    let (mut there, mut failures) = (Vec::new(), 0);
    while let Some(result) = sending.next().await {
        match result {
            Ok((file, new)) => {
                failures = 0;
                if let Some(digest) = file.digest.clone().filter(|_| new) {
                    log.note(Step::Uploaded { path: file.path.clone(), digest })?;
                    published.sent += 1;
                } else {
                    published.kept += 1;
                }
                there.push(file);
            }
            Err(missing) => {
                failures += 1;
                published.missing.push(missing);
                if failures >= GIVE_UP {
                    anyhow::bail!("{failures} files in a row could not be sent, and no more were tried");
                }
            }
        }
    }
    Ok(there)
}

async fn send_series(run: &dyn TrackedRun, log: &mut Log, series: &[Series]) -> anyhow::Result<()> {
    let known = log.done().series.clone();
    let new: Vec<(&Series, Digest)> = series
        .iter()
        .map(|one| (one, series_digest(one)))
        .filter(|(one, digest)| known.get(&one.name) != Some(digest))
        .collect();
    for some in new.chunks(TOGETHER) {
        let all: Vec<Series> = some.iter().map(|(one, _)| (*one).clone()).collect();
        let (all, limit) = (&all, REQUEST_LIMIT * 4);
        repeated(run.id(), limit, |call| async move { run.series(&call, all).await }).await?;
        for (one, digest) in some {
            log.note(Step::Series { name: one.name.clone(), digest: digest.clone() })?;
        }
    }
    Ok(())
}

fn series_digest(series: &Series) -> Digest {
    let mut hasher = sandbox_bench_core::digest::Hasher::default();
    for point in &series.points {
        hasher.update(&point.step.to_le_bytes());
        hasher.update(&point.at.as_nanosecond().to_le_bytes());
        hasher.update(&point.value.to_le_bytes());
    }
    hasher.finish()
}

async fn link(run: &dyn TrackedRun, log: &mut Log, entries: &[TrackedFile]) -> anyhow::Result<()> {
    let known = log.done().links.clone();
    let digest = |entry: &TrackedFile| Digest::of(format!("{entry:?}").as_bytes());
    let new = entries.iter().filter(|entry| known.get(&entry.path) != Some(&digest(entry)));
    let new: Vec<TrackedFile> = new.cloned().collect();
    for some in new.chunks(TOGETHER) {
        repeated(run.id(), REQUEST_LIMIT, |call| async move { run.link(&call, some).await }).await?;
        for entry in some {
            log.note(Step::Linked { path: entry.path.clone(), digest: digest(entry) })?;
        }
    }
    Ok(())
}

async fn describe(run: &dyn TrackedRun, log: &mut Log, description: &Description) -> anyhow::Result<()> {
    let Description { inputs, outputs, meta, tags } = description;
    let digest = Digest::of(&serde_json::to_vec(&(inputs, outputs, meta, tags))?);
    if log.done().described.as_ref() != Some(&digest) {
        repeated(run.id(), REQUEST_LIMIT, |call| async move { run.describe(&call, description).await }).await?;
        log.note(Step::Described { digest })?;
    }
    Ok(())
}

async fn status(run: &dyn TrackedRun, log: &mut Log, status: TrackedStatus, why: &str) -> anyhow::Result<()> {
    let name = format!("{status:?}").to_lowercase();
    if log.done().status.as_ref() != Some(&name) {
        repeated(run.id(), REQUEST_LIMIT, |call| async move { run.status(&call, status, why).await }).await?;
        log.note(Step::Status { status: name })?;
    }
    Ok(())
}

/// Does something that is the same done once or twice, again if it did not come through.
async fn repeated<T, F>(what: &str, limit: Duration, act: impl Fn(Call) -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let tag = Tag::new(what, "track");
    let attempt = || act(Call::new(tag.clone(), limit, Arc::new(Grants::default())));
    let patience = ExponentialBuilder::default().with_jitter().with_max_times(REPETITIONS);
    let passing = |error: &Error| {
        use ErrorKind::{DeadlineExceeded, RateLimited, Transport, Unavailable};
        matches!(error.kind(), DeadlineExceeded | RateLimited { .. } | Transport | Unavailable)
    };
    attempt
        .retry(patience)
        .sleep(tokio::time::sleep)
        .when(passing)
        .adjust(|error, wait| match error.kind() {
            ErrorKind::RateLimited { retry_after: Some(asked) } => wait.map(|wait| wait.max(*asked).min(LONGEST_PAUSE)),
            _ => wait,
        })
        .await
}
