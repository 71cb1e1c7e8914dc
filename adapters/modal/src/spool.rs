//! The output of one command, as it stands in two files in the sandbox, which are read piece by piece.
//!
//! For commands of more than half an hour: streams that are open for so long are known to fail at the service while the
//! command goes on.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sandbox_bench_core::{Call, Error, ErrorKind, Result, Stream};
use sandbox_bench_kit::wait::winding_up;

use crate::guest::{Done, as_root, script};
use crate::live::{Failures, Live};
use crate::output::{Event, Over};
use crate::router::{Exit, Router};

const SPOOL: &str = include_str!("guest/spool.sh");
const SLICE: &str = include_str!("guest/slice.sh");
/// Most bytes that are read of each file at a time.
const PIECE: usize = 1 << 20;
/// Pause between two looks; it grows while nothing comes.
const FIRST: Duration = Duration::from_millis(200);
const LAST: Duration = Duration::from_secs(5);
/// Limit for one look.
const LOOK_LIMIT: Duration = Duration::from_secs(60);
/// Limit for removing the files. Best effort: they are in nobody's way, and go with the sandbox.
const TIDY_LIMIT: Duration = Duration::from_secs(5);

/// A command that writes to files in the directory `dir`.
pub(crate) fn spooled(dir: &str, argv: Vec<String>) -> Vec<String> {
    script(SPOOL, &[dir]).into_iter().chain(argv).collect()
}

/// A directory for the files of one command.
pub(crate) fn directory() -> String {
    format!("/tmp/.sandbox-bench-{}", uuid::Uuid::new_v4().simple())
}

/// Removes the files of a command that has ended.
pub(crate) async fn tidy(router: &Router, call: &Call, dir: &str) {
    let argv = as_root(script("rm -rf -- \"$1\"", &[dir]));
    if let Err(error) = router.run(&winding_up(call, TIDY_LIMIT), "tidying up", argv, 0).await {
        tracing::debug!(sandbox = router.sandbox(), %error, "files of a command stay in the sandbox");
    }
}

/// A reader of one command's output from its beginning.
pub(crate) struct Spool<'a> {
    router: &'a Router,
    call: Call,
    dir: String,
    /// The end of the command's own process.
    end: Live<'a>,
    /// Bytes read of stdout and of stderr.
    read: (u64, u64),
    waiting: VecDeque<(Stream, Bytes)>,
    look: BoxFuture<'a, Result<Done>>,
    /// Whether the look at hand was begun after the end.
    after_end: bool,
    pause: Duration,
    failures: Failures,
    over: Option<Over>,
}

impl<'a> Spool<'a> {
    /// A reader that asks with `call`, whose deadline must lie beyond the command's end.
    pub(crate) fn new(router: &'a Router, call: &Call, exec: &str, dir: &str) -> Self {
        let end = Live::end_only(router, call, exec);
        let look = look(router, call.clone(), (dir.to_owned(), (0, 0)), FIRST);
        Self {
            router,
            call: call.clone(),
            dir: dir.to_owned(),
            end,
            read: (0, 0),
            waiting: VecDeque::new(),
            look,
            after_end: false,
            pause: FIRST,
            failures: Failures::default(),
            over: None,
        }
    }

    /// True if nothing more comes.
    pub(crate) fn over(&self) -> bool {
        self.over.is_some() && self.waiting.is_empty()
    }

    /// How the command's own process ended, once that is known.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.end.exit()
    }

    /// What comes next; at the end, the end for ever. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            if let Some((stream, bytes)) = self.waiting.pop_front() {
                return Event::Output(stream, bytes);
            }
            if let Some(over) = &self.over {
                return Event::Over(over.clone());
            }
            tokio::select! {
                event = self.end.next(), if self.end.exit().is_none() => match event {
                    Event::Exited => {
                        self.look_after(Duration::ZERO);
                        return Event::Exited;
                    }
                    Event::Over(over) => self.over = Some(over),
                    Event::Output(..) => {}
                },
                seen = &mut self.look => self.seen(seen).await,
            }
        }
    }

    /// Takes what a look brought.
    async fn seen(&mut self, seen: Result<Done>) {
        let unread =
            |done: &Done| Error::new(ErrorKind::Unavailable, format!("the files cannot be read: {}", done.complaint()));
        match seen.and_then(|done| if done.code == 0 { Ok(done) } else { Err(unread(&done)) }) {
            Ok(done) => {
                self.failures.forget();
                let arrived = self.take(done);
                match arrived {
                    0 if self.after_end => {
                        self.over = Some(self.end.exit().map_or(Over::TransportLost, Over::Complete))
                    }
                    0 => self.pause = (self.pause * 3 / 2).min(LAST),
                    // There may be more at once.
                    n if n >= PIECE => self.pause = Duration::ZERO,
                    _ => self.pause = FIRST,
                }
            }
            Err(error) => {
                let doubtful = !matches!(error.kind(), ErrorKind::DeadlineExceeded) || self.call.remaining().is_zero();
                let failed = if doubtful { self.failures.other(self.router, &self.call, &error).await } else { Ok(()) };
                if let Err(over) = failed {
                    self.over = Some(over);
                }
            }
        }
        if self.over.is_none() {
            self.look_after(if self.after_end { Duration::ZERO } else { self.pause });
        }
    }

    /// Keeps what was read for delivery; returns the length of the longer part.
    fn take(&mut self, done: Done) -> usize {
        let longer = done.stdout.len().max(done.stderr.len());
        self.read.0 += done.stdout.len() as u64;
        self.read.1 += done.stderr.len() as u64;
        for (stream, bytes) in [(Stream::Stdout, done.stdout), (Stream::Stderr, done.stderr)] {
            if !bytes.is_empty() {
                self.waiting.push_back((stream, bytes.into()));
            }
        }
        longer
    }

    fn look_after(&mut self, pause: Duration) {
        self.after_end = self.end.exit().is_some();
        self.look = look(self.router, self.call.clone(), (self.dir.clone(), self.read), pause);
    }
}

/// Reads the files from these bytes on, after a pause.
fn look(
    router: &Router,
    call: Call,
    (dir, read): (String, (u64, u64)),
    pause: Duration,
) -> BoxFuture<'_, Result<Done>> {
    async move {
        tokio::time::sleep(pause).await;
        let (out, err, most) = (read.0.to_string(), read.1.to_string(), PIECE.to_string());
        let argv = as_root(script(SLICE, &[&dir, &out, &err, &most]));
        router.run(&call.within(LOOK_LIMIT), "output of a command", argv, PIECE).await
    }
    .boxed()
}
