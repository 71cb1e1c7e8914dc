//! The output of one command, as the router streams it.
//!
//! The router keeps what a command writes and sends each stream from any byte on. So a connection that breaks costs nothing:
//! the stream is asked for again from where it ended. A clean end is the end of the stream; the exit code is asked for beside.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, future};
use sandbox_bench_core::{Call, ErrorKind, Stream};
use tonic::{Code, Status, Streaming};

use crate::error::passing;
use crate::output::{Event, Over};
use crate::proto::task_command_router::{TaskExecStdioFileDescriptor, TaskExecStdioReadResponse};
use crate::router::{Exit, Gone, Router};

/// Attempts without any progress before a stream is given up: two and a half minutes, for the command goes on meanwhile.
const ATTEMPTS: u32 = 20;
/// Pause before an attempt that follows a failed one; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// From this failure on in a row it is asked whether the sandbox is still there.
const DOUBT: u32 = 3;
/// One question for the end of a command lasts so long at most, as the Python client has it.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// One piece of what is known of a command.
enum Piece {
    Output(Stream, Bytes),
    Exit(Exit),
    Failed(Over),
}

/// A reader of one command's output from its beginning.
pub(crate) struct Live<'a> {
    pieces: BoxStream<'a, Piece>,
    exit: Option<Exit>,
    over: Option<Over>,
}

impl<'a> Live<'a> {
    /// A reader that asks with `call`, whose deadline must lie beyond the command's end.
    pub(crate) fn new(router: &'a Router, call: &Call, exec: &str) -> Self {
        let read = |stream| Reader::new(router, call.clone(), exec.to_owned(), stream).pieces();
        let ended = ended(router, call.clone(), exec.to_owned());
        let output = stream::select(read(Stream::Stdout), read(Stream::Stderr));
        Self { pieces: stream::select(output, ended.into_stream()).boxed(), exit: None, over: None }
    }

    /// The end of a command whose output nobody wants.
    pub(crate) fn end_only(router: &'a Router, call: &Call, exec: &str) -> Self {
        Self { pieces: ended(router, call.clone(), exec.to_owned()).into_stream().boxed(), exit: None, over: None }
    }

    /// True if nothing more comes.
    pub(crate) fn over(&self) -> bool {
        self.over.is_some()
    }

    /// How the command's own process ended, once that is known.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// What comes next; at the end, the end for ever. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Event {
        if let Some(over) = &self.over {
            return Event::Over(over.clone());
        }
        match self.pieces.next().await {
            Some(Piece::Output(stream, bytes)) => Event::Output(stream, bytes),
            Some(Piece::Exit(exit)) => {
                self.exit = Some(exit);
                Event::Exited
            }
            Some(Piece::Failed(over)) => Event::Over(self.over.insert(over).clone()),
            None => {
                let over = self.exit.map_or(Over::TransportLost, Over::Complete);
                Event::Over(self.over.insert(over).clone())
            }
        }
    }
}

/// One stream of one command.
struct Reader<'a> {
    router: &'a Router,
    call: Call,
    exec: String,
    stream: Stream,
    /// Bytes delivered: where to read on.
    offset: u64,
    answer: Option<Streaming<TaskExecStdioReadResponse>>,
    failures: Failures,
    ended: bool,
}

impl<'a> Reader<'a> {
    fn new(router: &'a Router, call: Call, exec: String, stream: Stream) -> Self {
        Self { router, call, exec, stream, offset: 0, answer: None, failures: Failures::default(), ended: false }
    }

    fn pieces(self) -> BoxStream<'a, Piece> {
        stream::unfold(self, |mut reader| async move { Some((reader.next().await?, reader)) }).boxed()
    }

    /// The next piece; none at the stream's end.
    async fn next(&mut self) -> Option<Piece> {
        while !self.ended {
            let Some(answer) = &mut self.answer else {
                if let Err(over) = self.open().await {
                    self.ended = true;
                    return Some(Piece::Failed(over));
                }
                continue;
            };
            match answer.message().await {
                Ok(Some(message)) if message.data.is_empty() => {}
                Ok(Some(message)) => {
                    self.failures.forget();
                    self.offset += message.data.len() as u64;
                    return Some(Piece::Output(self.stream, message.data.into()));
                }
                Ok(None) => self.ended = true,
                Err(status) => {
                    tracing::debug!(sandbox = self.router.sandbox(), %status, "the output of a command broke off");
                    self.answer = None;
                    if let Err(over) = self.failures.note(self.router, &self.call, &status).await {
                        self.ended = true;
                        return Some(Piece::Failed(over));
                    }
                }
            }
        }
        None
    }

    async fn open(&mut self) -> Result<(), Over> {
        let descriptor = match self.stream {
            Stream::Stdout => TaskExecStdioFileDescriptor::Stdout,
            Stream::Stderr => TaskExecStdioFileDescriptor::Stderr,
        };
        match self.router.read(&self.call, (&self.exec, descriptor), self.offset).await {
            Ok(Ok(answer)) => self.answer = Some(answer),
            Ok(Err(status)) => self.failures.note(self.router, &self.call, &status).await?,
            Err(error) => self.failures.other(self.router, &self.call, &error).await?,
        }
        Ok(())
    }
}

/// Asks for the end of a command's own process until it is known.
fn ended(router: &Router, call: Call, exec: String) -> future::BoxFuture<'_, Piece> {
    async move {
        let mut failures = Failures::default();
        loop {
            let failed = match router.wait(&call.within(WAIT_LIMIT), &exec).await {
                Ok(Ok(Some(exit))) => return Piece::Exit(exit),
                // It has not ended within the time of one question.
                Err(error) if *error.kind() == ErrorKind::DeadlineExceeded && !call.remaining().is_zero() => Ok(()),
                Ok(Err(status)) if status.code() == Code::DeadlineExceeded => failures.pause().await,
                Ok(Ok(None)) => failures.note(router, &call, &Status::internal("no exit status")).await,
                Ok(Err(status)) => failures.note(router, &call, &status).await,
                Err(error) => failures.other(router, &call, &error).await,
            };
            if let Err(over) = failed {
                return Piece::Failed(over);
            }
        }
    }
    .boxed()
}

/// Attempts in a row that came to nothing.
#[derive(Debug, Default)]
pub(crate) struct Failures(u32);

impl Failures {
    /// Something went well.
    pub(crate) fn forget(&mut self) {
        self.0 = 0;
    }

    /// An attempt was refused with `status`. Returns after a pause, or with the end if there is no point in another.
    pub(crate) async fn note(&mut self, router: &Router, call: &Call, status: &Status) -> Result<(), Over> {
        if status.code() == Code::Unauthenticated {
            // A token that ended while the stream was open. One that is refused when it is new counts as any failure.
            return match router.token_ended(call).await {
                Ok(()) => self.more(router, call).await,
                Err(error) => self.other(router, call, &error).await,
            };
        }
        if !passing(status) {
            return Err(router.gone(call).await.map_or(Over::TransportLost, Over::Gone));
        }
        self.more(router, call).await
    }

    /// An attempt failed before it got to the router.
    pub(crate) async fn other(
        &mut self,
        router: &Router,
        call: &Call,
        error: &sandbox_bench_core::Error,
    ) -> Result<(), Over> {
        match error.kind() {
            ErrorKind::SandboxLost => {
                let ended = || Gone::Ended("it gives no access any more".to_owned());
                Err(Over::Gone(router.gone(call).await.unwrap_or_else(ended)))
            }
            ErrorKind::DeadlineExceeded | ErrorKind::Cancelled => Err(Over::TransportLost),
            _ => self.more(router, call).await,
        }
    }

    async fn more(&mut self, router: &Router, call: &Call) -> Result<(), Over> {
        call.meter.retried();
        self.0 += 1;
        if self.0 >= DOUBT
            && let Some(gone) = router.gone(call).await
        {
            return Err(Over::Gone(gone));
        }
        if self.0 >= ATTEMPTS {
            return Err(Over::TransportLost);
        }
        self.pause().await
    }

    async fn pause(&self) -> Result<(), Over> {
        tokio::time::sleep(pause(self.0)).await;
        Ok(())
    }
}

/// How long to wait before the next attempt, after so many failures.
pub(crate) fn pause(failures: u32) -> Duration {
    (PAUSE * 2u32.saturating_pow(failures.saturating_sub(1).min(16))).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_go_on_for_minutes_and_no_longer() {
        assert_eq!((pause(0), pause(1), pause(2), pause(3)), (PAUSE, PAUSE, PAUSE * 2, PAUSE * 4));
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
        let all: Duration = (1..ATTEMPTS).map(pause).sum();
        assert!(all > Duration::from_secs(60) && all < Duration::from_secs(180), "{all:?}");
    }
}
