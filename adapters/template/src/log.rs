//! The output of one command, from its beginning, whatever happens to the connection.
//!
//! REPLACE [`Log::open`] and what a line means. The example service keeps all output and begins anew on each
//! connection; where a service does not, output that was missed is lost, and the report must say so.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::Method;
use sandbox_bench_core::{Call, ErrorKind, Result, Stream};
use sandbox_bench_kit::http::{Effect, ask, lines};

use crate::error;
use crate::exec::Guest;
use crate::wire::Line;

/// Most bytes of one line.
const LINE_LIMIT: usize = 16 << 20;
/// Attempts without any progress before the output is given up.
const ATTEMPTS: u32 = 12;
/// Pause after the second failed attempt; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What comes next of a command.
pub(crate) enum Event {
    /// A piece of its output.
    Output(Stream, Bytes),
    /// Nothing more.
    Over(Over),
}

/// Why nothing more comes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Over {
    /// The command has ended with this code.
    Exited(i32),
    /// Its sandbox has ended.
    SandboxLost,
    /// The service cannot be asked any more.
    TransportLost,
}

/// Bytes of one stream.
#[derive(Default)]
struct Count {
    /// Delivered so far.
    delivered: usize,
    /// Still to be passed over of this connection.
    repeated: usize,
}

/// A reader of one command's output.
pub(crate) struct Log<'a> {
    guest: Guest<'a>,
    call: Call,
    command: String,
    lines: Option<BoxStream<'static, Result<Bytes>>>,
    stdout: Count,
    stderr: Count,
    failures: u32,
    over: Option<Over>,
}

impl<'a> Log<'a> {
    /// A reader that asks with `call`, whose deadline must lie beyond the command's end.
    pub(crate) fn new(guest: Guest<'a>, call: Call, command: String) -> Self {
        let (stdout, stderr) = (Count::default(), Count::default());
        Self { guest, call, command, lines: None, stdout, stderr, failures: 0, over: None }
    }

    /// True if nothing more comes.
    pub(crate) fn over(&self) -> bool {
        self.over.is_some()
    }

    /// True if the service was not reached when it was last asked.
    pub(crate) fn broken(&self) -> bool {
        self.lines.is_none() && self.failures > 0
    }

    /// What comes next; at the end, the end for ever. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            if let Some(over) = self.over {
                return Event::Over(over);
            }
            let Some(lines) = &mut self.lines else {
                self.open().await;
                continue;
            };
            match lines.next().await.map(|line| line.map(|line| Line::parse(&line))) {
                Some(Ok(Line::Output(stream, bytes))) => {
                    if let Some(fresh) = self.fresh(stream, bytes) {
                        self.failures = 0;
                        return Event::Output(stream, fresh);
                    }
                }
                Some(Ok(Line::Exit(code))) => self.over = Some(Over::Exited(code)),
                Some(Ok(Line::Other)) => {}
                // An end without an exit code is no end.
                Some(Err(_)) | None => self.fail(),
            }
        }
    }

    /// What of a piece was not delivered yet.
    fn fresh(&mut self, stream: Stream, mut bytes: Bytes) -> Option<Bytes> {
        let count = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let known = bytes.len().min(count.repeated);
        count.repeated -= known;
        let fresh = bytes.split_off(known);
        count.delivered += fresh.len();
        (!fresh.is_empty()).then_some(fresh)
    }

    async fn open(&mut self) {
        if let Some(doublings) = self.failures.checked_sub(2) {
            // The first time at once: connections break.
            tokio::time::sleep((PAUSE * 2u32.saturating_pow(doublings)).min(LONGEST_PAUSE)).await;
        }
        let what = self.guest.what("output of a command");
        let request = self.guest.api.of(Method::GET, self.guest.name, &["commands", &self.command, "output"]);
        let error = match ask(&self.call, &what, Effect::Idempotent, request).await {
            Ok(Ok(answer)) => {
                for count in [&mut self.stdout, &mut self.stderr] {
                    count.repeated = count.delivered;
                }
                self.lines = Some(lines(answer, what, LINE_LIMIT).boxed());
                return;
            }
            Ok(Err(refusal)) => error::gone(&what, Effect::Idempotent, &refusal),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::SandboxLost => self.over = Some(Over::SandboxLost),
            ErrorKind::DeadlineExceeded => self.over = Some(Over::TransportLost),
            _ => self.fail(),
        }
    }

    /// An attempt came to nothing.
    fn fail(&mut self) {
        tracing::debug!(sandbox = self.guest.name, "the output of a command broke off");
        self.lines = None;
        self.failures += 1;
        if self.failures >= ATTEMPTS {
            self.over = Some(Over::TransportLost);
        }
    }
}
