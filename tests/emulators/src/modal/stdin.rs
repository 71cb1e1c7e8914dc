//! Standard input of a process: written at offsets, so that what is sent again is not written twice.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::Result;
use crate::machine::Input;

/// Who takes the bytes.
pub(super) enum Sink {
    /// A command in the machine.
    Command(Input),
    /// The emulator itself. `None` after the end.
    Tool(Option<mpsc::Sender<Bytes>>),
}

/// The input of one process.
pub(super) struct Stdin {
    state: tokio::sync::Mutex<State>,
    /// Cancelled when the stream that writes is to stop.
    turn: Mutex<CancellationToken>,
}

struct State {
    sink: Sink,
    written: u64,
    closed: bool,
}

impl Stdin {
    pub(super) fn new(sink: Sink) -> Stdin {
        let state = State { sink, written: 0, closed: false };
        Stdin { state: tokio::sync::Mutex::new(state), turn: Mutex::default() }
    }

    /// Ends the stream that writes, if there is one; the answer is the new one's turn.
    pub(super) fn take_turn(&self) -> CancellationToken {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        turn.cancel();
        *turn = CancellationToken::new();
        turn.clone()
    }

    /// Bytes written so far, and whether it is closed.
    pub(super) async fn status(&self) -> (u64, bool) {
        let state = self.state.lock().await;
        (state.written, state.closed)
    }

    /// Refuses an offset at which nothing can be written next.
    pub(super) async fn expect(&self, offset: u64) -> Result<()> {
        let state = self.state.lock().await;
        if offset == state.written { Ok(()) } else { Err(wrong_offset(offset, state.written)) }
    }

    /// Writes bytes at an offset. What was written before is left out; a gap is refused.
    pub(super) async fn write(&self, offset: u64, mut data: Bytes) -> Result<()> {
        let mut state = self.state.lock().await;
        let known = state.written.checked_sub(offset).ok_or_else(|| wrong_offset(offset, state.written))?;
        let _ = data.split_to(data.len().min(usize::try_from(known).unwrap_or(usize::MAX)));
        if data.is_empty() {
            return Ok(());
        }
        if state.closed {
            return Err(Status::failed_precondition("stdin is closed"));
        }
        let count = data.len() as u64;
        let taken = match &state.sink {
            Sink::Command(input) => input.send(&data).await,
            Sink::Tool(Some(sender)) => sender.send(data).await.is_ok(),
            Sink::Tool(None) => false,
        };
        if !taken {
            return Err(Status::failed_precondition("the process does not take input any more"));
        }
        state.written += count;
        Ok(())
    }

    /// The end of the input.
    pub(super) async fn close(&self) {
        let mut state = self.state.lock().await;
        state.closed = true;
        match &mut state.sink {
            Sink::Command(input) => input.end(),
            Sink::Tool(sender) => drop(sender.take()),
        }
    }
}

fn wrong_offset(offset: u64, written: u64) -> Status {
    Status::failed_precondition(format!("offset {offset}, but {written} bytes were written"))
}
