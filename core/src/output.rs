//! Output of commands and files that leave a sandbox: bounded on the way, content-addressed at rest.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::completion::StreamReport;
use crate::digest::Digest;

/// Which stream of a command a chunk belongs to. Backends that cannot tell them apart deliver everything as `Stdout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Takes output as it arrives.
///
/// Called from the adapter's task, in order within a stream. It must not block for long, and must bound what it keeps.
pub trait OutputSink: Send + Sync {
    /// One chunk of one stream. Chunks may split characters anywhere.
    fn write(&self, stream: Stream, chunk: &[u8]);
}

/// A sink that keeps the last bytes of each stream and forgets the rest.
#[derive(Debug)]
pub struct TailSink {
    keep: usize,
    tails: Mutex<[VecDeque<u8>; 2]>,
}

impl TailSink {
    /// Keeps the last `keep` bytes of each stream.
    #[must_use]
    pub fn new(keep: usize) -> Self {
        Self { keep, tails: Mutex::default() }
    }

    /// The tail of a stream. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self, stream: Stream) -> String {
        String::from_utf8_lossy(&self.bytes(stream)).into_owned()
    }

    /// The tail of a stream as bytes.
    #[must_use]
    pub fn bytes(&self, stream: Stream) -> Vec<u8> {
        self.lock()[index(stream)].iter().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, [VecDeque<u8>; 2]> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputSink for TailSink {
    fn write(&self, stream: Stream, chunk: &[u8]) {
        push_bounded(&mut self.lock()[index(stream)], chunk, self.keep);
    }
}

fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// Appends `chunk`, then drops from the front what exceeds `keep`.
fn push_bounded(tail: &mut VecDeque<u8>, chunk: &[u8], keep: usize) {
    let chunk = &chunk[chunk.len().saturating_sub(keep)..];
    let excess = (tail.len() + chunk.len()).saturating_sub(keep);
    tail.drain(..excess.min(tail.len()));
    tail.extend(chunk);
}

/// Longest end of a stream that is held back, in bytes.
const MAX_TAIL: u64 = 1 << 20;

/// Bounds one stream to a limit: its beginning passes at once, its end (half of the limit, at most 1 MiB) is held back
/// and delivered last, and what lies between is counted. So the summary at the end of a flood survives.
#[derive(Debug)]
pub struct HeadTail {
    head: u64,
    keep: usize,
    total: u64,
    tail: VecDeque<u8>,
}

impl HeadTail {
    /// A bound of `limit` bytes. Memory use is at most 1 MiB.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        let keep = (limit / 2).min(MAX_TAIL);
        Self { head: limit - keep, keep: usize::try_from(keep).unwrap_or(usize::MAX), total: 0, tail: VecDeque::new() }
    }

    /// Takes a chunk; `deliver` gets the part that may pass now.
    pub fn push(&mut self, chunk: &[u8], mut deliver: impl FnMut(&[u8])) {
        let room = usize::try_from(self.head.saturating_sub(self.total)).unwrap_or(usize::MAX);
        let (now, later) = chunk.split_at(room.min(chunk.len()));
        self.total += chunk.len() as u64;
        if !now.is_empty() {
            deliver(now);
        }
        if !later.is_empty() {
            push_bounded(&mut self.tail, later, self.keep);
        }
    }

    /// Delivers the held-back tail and reports what passed.
    pub fn finish(self, mut deliver: impl FnMut(&[u8])) -> StreamReport {
        let (a, b) = self.tail.as_slices();
        for part in [a, b] {
            if !part.is_empty() {
                deliver(part);
            }
        }
        let delivered = self.total.min(self.head) + self.tail.len() as u64;
        StreamReport {
            total_bytes: Some(self.total),
            delivered_bytes: delivered,
            gap_at: (delivered < self.total).then_some(self.head),
        }
    }
}

/// A content-addressed object that left a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputRef {
    /// What it is to the trial: `solver.stdout`, `verifier.logs`, `environment.build-log`, …
    pub name: String,
    /// Path in the sandbox, or none for a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Digest of the stored bytes.
    pub digest: Digest,
    /// Size of the stored bytes.
    pub size: u64,
    /// Media type, such as `text/plain` or `application/x-tar`.
    pub media_type: String,
    /// Where it is stored, relative to the run directory.
    pub stored: String,
    /// True when the stored bytes are not all there was; the receipt has the counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn head_and_tail_survive_and_the_gap_is_counted(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20), limit in 0u64..200,
        ) {
            let all: Vec<u8> = chunks.concat();
            let mut out = Vec::new();
            let mut bound = HeadTail::new(limit);
            for chunk in &chunks {
                bound.push(chunk, |part| out.extend_from_slice(part));
            }
            let report = bound.finish(|part| out.extend_from_slice(part));
            prop_assert_eq!(report.total_bytes, Some(all.len() as u64));
            prop_assert_eq!(report.delivered_bytes, out.len() as u64);
            prop_assert!(out.len() as u64 <= limit.max(all.len() as u64).min(limit));
            match report.gap_at {
                None => prop_assert_eq!(out, all),
                Some(at) => {
                    let at = usize::try_from(at).unwrap();
                    prop_assert_eq!(&out[..at], &all[..at]);
                    let rest = out.len() - at;
                    prop_assert_eq!(&out[at..], &all[all.len() - rest..]);
                }
            }
        }

        #[test]
        fn a_tail_sink_keeps_exactly_the_last_bytes(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20), keep in 0usize..60,
        ) {
            let sink = TailSink::new(keep);
            for chunk in &chunks {
                sink.write(Stream::Stderr, chunk);
            }
            let all: Vec<u8> = chunks.concat();
            prop_assert_eq!(sink.bytes(Stream::Stderr), &all[all.len().saturating_sub(keep)..]);
            prop_assert!(sink.bytes(Stream::Stdout).is_empty());
        }
    }
}
