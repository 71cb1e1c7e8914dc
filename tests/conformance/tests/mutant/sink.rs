//! Output with one fault.

use std::sync::{Mutex, PoisonError};

use sandbox_bench_core::*;

use super::Fault;

/// Passes output on as the fault has it.
pub struct MutantSink<'a> {
    inner: &'a dyn OutputSink,
    fault: Fault,
    held: Mutex<Vec<(Stream, Vec<u8>)>>,
}

impl<'a> MutantSink<'a> {
    pub fn new(inner: &'a dyn OutputSink, fault: Fault) -> Self {
        Self { inner, fault, held: Mutex::default() }
    }

    /// Delivers what was held back, and makes the counts agree with what was delivered.
    pub fn finish(&self, report: &mut ExecReport, out_of_time: bool) {
        let mut held = std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner));
        match self.fault {
            Fault::StreamsAreSwapped => std::mem::swap(&mut report.stdout, &mut report.stderr),
            Fault::ChunksAreReversed => held.reverse(),
            Fault::LastByteIsLost => {
                if let Some((Stream::Stdout, last)) = held.last_mut() {
                    last.pop();
                }
            }
            Fault::PartialOutputIsLost if out_of_time => held.clear(),
            Fault::OutputComesAtTheEnd | Fault::PartialOutputIsLost => {}
            Fault::OutputIsText => {
                for (_, chunk) in &mut held {
                    *chunk = String::from_utf8_lossy(chunk).into_owned().into_bytes();
                }
            }
            _ => return,
        }
        if self.fault != Fault::StreamsAreSwapped {
            let of = |stream| held.iter().filter(|(s, _)| *s == stream).map(|(_, chunk)| chunk.len() as u64).sum();
            report.stdout = StreamReport { delivered_bytes: of(Stream::Stdout), ..StreamReport::default() };
            report.stderr = StreamReport { delivered_bytes: of(Stream::Stderr), ..StreamReport::default() };
        }
        held.iter().for_each(|(stream, chunk)| self.inner.write(*stream, chunk));
    }
}

impl OutputSink for MutantSink<'_> {
    fn write(&self, stream: Stream, chunk: &[u8]) {
        match (self.fault, stream) {
            (Fault::StreamsAreSwapped, Stream::Stdout) => self.inner.write(Stream::Stderr, chunk),
            (Fault::StreamsAreSwapped, Stream::Stderr) => self.inner.write(Stream::Stdout, chunk),
            (
                Fault::ChunksAreReversed
                | Fault::LastByteIsLost
                | Fault::PartialOutputIsLost
                | Fault::OutputComesAtTheEnd
                | Fault::OutputIsText,
                _,
            ) => self.held.lock().unwrap_or_else(PoisonError::into_inner).push((stream, chunk.to_vec())),
            _ => self.inner.write(stream, chunk),
        }
    }
}

/// The report as the fault has it.
pub fn twist_report(fault: Fault, report: &mut ExecReport) {
    match (fault, &report.completion) {
        (Fault::EveryExitIsZero, Completion::Exited { .. }) => report.completion = Completion::Exited { code: 0 },
        (Fault::SignalsAreExits, Completion::Signalled { signal }) => {
            report.completion = Completion::Exited { code: 128 + signal };
        }
        (Fault::LossIsAnExit, Completion::SandboxLost) => report.completion = Completion::Exited { code: 137 },
        (Fault::GuestTimeIsWrong, _) => report.guest_time = Some(std::time::Duration::from_millis(1)),
        (Fault::GapsAreHidden, _) => {
            report.stdout.total_bytes = None;
            report.stdout.gap_at = None;
        }
        (Fault::GapsAreInvented, _) => report.stdout.gap_at = Some(0),
        _ => {}
    }
}
