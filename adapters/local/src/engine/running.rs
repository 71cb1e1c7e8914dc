//! [`Running`]: a job that was started.

use std::collections::VecDeque;
use std::sync::Arc;

use super::connection::{self, Channel};
use super::error::{EngineError, Result};
use super::job::{End, Outcome};
use super::sandbox::Sandbox;
use super::wire::{Frame, Kind};

/// SIGKILL, the signal of the out-of-memory killer, and the shell's word for it.
const KILLED: [End; 2] = [End::Signalled(9), End::Exited(137)];

/// One of the two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a running command says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes of a stream, in order.
    Output(Stream, Vec<u8>),
    /// So many bytes of the stream are left out here, because of the command's output cap.
    Omitted(Stream, u64),
}

/// A running job. Read its events to the end, then take its outcome. Dropping it kills the job with its whole tree.
pub struct Running {
    sandbox: Arc<Sandbox>,
    channel: Channel,
    oom_kills: Option<u64>,
    queued: VecDeque<Event>,
    outcome: Option<Outcome>,
}

/// Standard input of a running command. May be used while events are read.
#[derive(Clone)]
pub struct Input(connection::Input);

impl Input {
    /// Sends bytes as the command takes them. False if there is nobody to take more.
    pub async fn send(&self, bytes: &[u8]) -> bool {
        self.0.send(bytes).await
    }

    /// No more bytes: the command sees the end of its input after those sent.
    pub fn end(&self) {
        self.0.end();
    }
}

impl Running {
    pub(super) fn new(sandbox: Arc<Sandbox>, channel: Channel, oom_kills: Option<u64>) -> Running {
        Running { sandbox, channel, oom_kills, queued: VecDeque::new(), outcome: None }
    }

    /// Its standard input, if the command was started with one.
    pub fn input(&self) -> Input {
        Input(self.channel.input())
    }

    /// Kills it with its whole tree. Events and the outcome still follow.
    pub fn kill(&self) {
        self.channel.kill();
    }

    /// The next output; `None` after the last. The command is held up while nobody reads. Cancel-safe.
    ///
    /// # Errors
    /// [`EngineError::Lost`] if the sandbox ended under the job.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        if let Some(event) = self.queued.pop_front() {
            return Ok(Some(event));
        }
        while self.outcome.is_none() {
            let frame = self.channel.next().await.ok_or_else(|| self.sandbox.lost())?;
            let event = self.take(frame).map_err(|error| EngineError::io("answer of the sandbox")(error))?;
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    fn take(&mut self, frame: Frame) -> std::io::Result<Option<Event>> {
        let event = match frame.kind {
            Kind::Stdout | Kind::Stderr => {
                self.channel.credit(frame.payload.len());
                let stream = if frame.kind == Kind::Stdout { Stream::Stdout } else { Stream::Stderr };
                Event::Output(stream, frame.payload)
            }
            Kind::StdoutGap => Event::Omitted(Stream::Stdout, frame.number()?),
            Kind::StderrGap => Event::Omitted(Stream::Stderr, frame.number()?),
            Kind::Done => {
                self.outcome = Some(frame.parse()?);
                return Ok(None);
            }
            _ => return Ok(None),
        };
        Ok(Some(event))
    }

    /// Waits for the end, dropping output that was not read.
    ///
    /// # Errors
    /// [`EngineError::Lost`] if the sandbox ended under the job.
    pub async fn outcome(mut self) -> Result<Outcome> {
        while self.next().await?.is_some() {}
        let mut outcome = self.outcome.take().ok_or_else(|| self.sandbox.lost())?;
        if KILLED.contains(&outcome.end) && outcome.stopped.is_none() {
            let now = self.sandbox.oom_kills();
            outcome.out_of_memory = now.zip(self.oom_kills).is_some_and(|(now, before)| now > before);
        }
        Ok(outcome)
    }

    /// Everything it writes, and its outcome. For small outputs: it is all kept in memory.
    ///
    /// # Errors
    /// [`EngineError::Lost`] if the sandbox ended under the job.
    pub async fn output(mut self) -> Result<(Outcome, Vec<u8>, Vec<u8>)> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        while let Some(event) = self.next().await? {
            match event {
                Event::Output(Stream::Stdout, bytes) => stdout.extend(bytes),
                Event::Output(Stream::Stderr, bytes) => stderr.extend(bytes),
                Event::Omitted(..) => {}
            }
        }
        Ok((self.outcome().await?, stdout, stderr))
    }
}
