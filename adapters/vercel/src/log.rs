//! The output of one command, as the service keeps it.
//!
//! The service sends it from the beginning each time it is asked, then as it grows, and closes when the command has ended. So
//! a connection that breaks costs nothing: what was delivered is passed over.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::Method;
use sandbox_bench_core::{Call, ErrorKind, Result, Stream};
use sandbox_bench_kit::http::{Effect, ask, lines};

use crate::client::{gone, session_answer};
use crate::helper::{LINE_LIMIT, Vm};
use crate::wire::{Line, OfCommand};

/// Attempts without any progress before the output is given up: two and a half minutes, for the command goes on meanwhile.
const ATTEMPTS: u32 = 20;
/// Pause before an attempt that follows a failed one; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What comes next of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A piece of its output.
    Output(Stream, String),
    /// Nothing more.
    Over(Over),
}

/// Why nothing more comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// The command has ended with this code.
    Exited(i32),
    /// Its sandbox has ended.
    SandboxLost,
    /// The service cannot be asked any more.
    TransportLost,
}

/// Bytes of one stream.
#[derive(Debug, Default)]
struct Count {
    /// Delivered so far.
    delivered: usize,
    /// Still to be passed over of this connection.
    repeated: usize,
}

/// A reader of one command's output from its beginning.
pub(crate) struct Log<'a> {
    vm: Vm<'a>,
    call: Call,
    command: String,
    lines: Option<BoxStream<'static, Result<Bytes>>>,
    stdout: Count,
    stderr: Count,
    failures: u32,
    /// How the command ended, once that is known.
    ended: Option<i32>,
    over: Option<Over>,
}

impl<'a> Log<'a> {
    /// A reader that asks with `call`, whose deadline must lie beyond the command's end.
    pub(crate) fn new(vm: Vm<'a>, call: Call, command: String) -> Self {
        Self {
            vm,
            call,
            command,
            lines: None,
            stdout: Count::default(),
            stderr: Count::default(),
            failures: 0,
            ended: None,
            over: None,
        }
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
                Some(Ok(Line::Output(stream, text))) => {
                    if let Some(text) = self.fresh(stream, text) {
                        self.failures = 0;
                        return Event::Output(stream, text);
                    }
                }
                Some(Ok(Line::Command { .. } | Line::Other)) => {}
                Some(Ok(Line::Broken(code))) => {
                    tracing::debug!(sandbox = self.vm.name, code, "the output of a command broke off");
                    self.fail();
                }
                Some(Err(error)) => {
                    tracing::debug!(sandbox = self.vm.name, %error, "the output of a command broke off");
                    self.fail();
                }
                None => self.closed().await,
            }
        }
    }

    /// What of a piece was not delivered yet.
    fn fresh(&mut self, stream: Stream, text: String) -> Option<String> {
        let Count { delivered, repeated } = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let skip = text.len().min(*repeated);
        *repeated -= skip;
        // Where the service cuts a character now is not where it was cut before.
        let at = (skip..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        let fresh = text.get(at..).unwrap_or_default();
        *delivered += fresh.len();
        (!fresh.is_empty()).then(|| fresh.to_owned())
    }

    /// The service says that this is all. It is, once the command has ended.
    async fn closed(&mut self) {
        self.lines = None;
        match self.ask().await {
            Ok(Some(code)) if self.ended == Some(code) => self.over = Some(Over::Exited(code)),
            // The output's last piece may have come later than the end: one more look.
            Ok(Some(code)) => self.ended = Some(code),
            Ok(None) => self.fail(),
            Err(kind) => self.failed_with(&kind),
        }
    }

    async fn ask(&mut self) -> Result<Option<i32>, ErrorKind> {
        let request = self.vm.api.of_session(Method::GET, self.vm.session, &["cmd", &self.command]);
        let what = format!("sandbox {}: end of a command", self.vm.name);
        let asked = session_answer::<OfCommand>(&self.call, &what, Effect::Idempotent, request).await;
        asked.map(|of| of.command.exit_code).map_err(|error| error.kind().clone())
    }

    async fn open(&mut self) {
        if let Some(doublings) = self.failures.checked_sub(2) {
            // The first time at once: connections break.
            tokio::time::sleep((PAUSE * 2u32.saturating_pow(doublings)).min(LONGEST_PAUSE)).await;
        }
        let what = format!("sandbox {}: output of a command", self.vm.name);
        let request = self.vm.api.of_session(Method::GET, self.vm.session, &["cmd", &self.command, "logs"]);
        match ask(&self.call, &what, Effect::Idempotent, request).await {
            Ok(Ok(answer)) => {
                for count in [&mut self.stdout, &mut self.stderr] {
                    count.repeated = count.delivered;
                }
                self.lines = Some(lines(answer, what, LINE_LIMIT).boxed());
            }
            Ok(Err(refusal)) => self.failed_with(&gone(&what, Effect::Idempotent, &refusal).kind().clone()),
            Err(error) => self.failed_with(&error.kind().clone()),
        }
    }

    fn failed_with(&mut self, kind: &ErrorKind) {
        match kind {
            ErrorKind::SandboxLost => self.over = Some(Over::SandboxLost),
            ErrorKind::DeadlineExceeded => self.over = Some(Over::TransportLost),
            _ => self.fail(),
        }
    }

    /// An attempt came to nothing.
    fn fail(&mut self) {
        self.lines = None;
        self.failures += 1;
        if self.failures >= ATTEMPTS {
            self.over = Some(Over::TransportLost);
        }
    }
}
