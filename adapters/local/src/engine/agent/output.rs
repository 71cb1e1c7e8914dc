//! One output stream of a job, capped: the head is streamed, the tail is kept and sent at the end.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::engine::job::StreamTotals;
use crate::engine::wire::{CHUNK, Frame, Kind};

/// Longest tail that is kept, whatever the cap: memory of the agent is memory of the sandbox.
const MAX_TAIL: usize = 1 << 20;

/// Reads one pipe of a job and turns it into frames.
pub(super) struct Capture {
    pipe: Option<OwnedFd>,
    data: Kind,
    gap: Kind,
    /// Bytes that may still be streamed; `None` for no limit.
    head_left: Option<usize>,
    tail: VecDeque<u8>,
    tail_cap: usize,
    total: u64,
    sent: u64,
}

impl Capture {
    /// A stream of which `cap` bytes are kept, or all.
    pub(super) fn new(pipe: OwnedFd, data: Kind, gap: Kind, cap: Option<usize>) -> Capture {
        let tail_cap = cap.map_or(0, |cap| (cap / 2).min(MAX_TAIL));
        Capture {
            pipe: Some(pipe),
            data,
            gap,
            head_left: cap.map(|cap| cap - tail_cap),
            tail: VecDeque::new(),
            tail_cap,
            total: 0,
            sent: 0,
        }
    }

    /// The pipe, if it should be polled. Bytes of the head wait in the pipe until there is `credit` to send them.
    pub(super) fn readable(&self, credit: usize) -> Option<BorrowedFd<'_>> {
        let streaming = self.head_left != Some(0);
        self.pipe.as_ref().filter(|_| !streaming || credit > 0).map(AsFd::as_fd)
    }

    pub(super) fn closed(&self) -> bool {
        self.pipe.is_none()
    }

    /// Reads once. Appends frames to `out` and takes their size off `credit`.
    pub(super) fn read(&mut self, channel: u32, credit: &mut usize, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(pipe) = &self.pipe else {
            return Ok(());
        };
        let mut buffer = [0; CHUNK];
        let room = match self.head_left {
            Some(0) => CHUNK,
            Some(left) => left.min(*credit).min(CHUNK),
            None => (*credit).min(CHUNK),
        };
        let Some(window) = buffer.get_mut(..room).filter(|window| !window.is_empty()) else {
            return Ok(());
        };
        let read = match rustix::io::read(pipe, &mut *window) {
            Ok(read) => read,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            // A broken pipe of ours ends like one that was closed.
            Err(_) => 0,
        };
        if read == 0 {
            self.pipe = None;
            return Ok(());
        }
        let bytes = window.get(..read).unwrap_or_default();
        self.total += read as u64;
        if self.head_left == Some(0) {
            self.keep(bytes);
            return Ok(());
        }
        if let Some(left) = &mut self.head_left {
            *left -= read;
        }
        *credit -= read;
        self.sent += read as u64;
        Frame::new(channel, self.data, bytes).encode(out)
    }

    fn keep(&mut self, bytes: &[u8]) {
        let last = bytes.get(bytes.len().saturating_sub(self.tail_cap)..).unwrap_or_default();
        let excess = (self.tail.len() + last.len()).saturating_sub(self.tail_cap);
        self.tail.drain(..excess);
        self.tail.extend(last);
    }

    /// Sends the tail, and before it the size of the gap if there is one. Closes the pipe.
    pub(super) fn finish(&mut self, channel: u32, out: &mut Vec<u8>) -> io::Result<StreamTotals> {
        self.pipe = None;
        let omitted = self.total - self.sent - self.tail.len() as u64;
        if omitted > 0 {
            Frame::new(channel, self.gap, omitted.to_le_bytes()).encode(out)?;
        }
        for chunk in self.tail.make_contiguous().chunks(CHUNK) {
            Frame::new(channel, self.data, chunk).encode(out)?;
        }
        self.tail = VecDeque::new();
        Ok(StreamTotals { total: self.total, omitted })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;
    use crate::engine::wire::Decoder;

    /// Writes `text` through a capped capture and returns what arrives, the reported gap, and the totals.
    fn capture(text: &[u8], cap: usize) -> (Vec<u8>, u64, StreamTotals) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut capture = Capture::new(reader.into(), Kind::Stdout, Kind::StdoutGap, Some(cap));
        let mut out = Vec::new();
        let mut credit = usize::MAX;
        for piece in text.chunks(1000) {
            writer.write_all(piece).unwrap();
            let seen = capture.total;
            while capture.total < seen + piece.len() as u64 {
                capture.read(1, &mut credit, &mut out).unwrap();
            }
        }
        let totals = capture.finish(1, &mut out).unwrap();
        let mut decoder = Decoder::default();
        decoder.feed(&out);
        let (mut bytes, mut gap) = (Vec::new(), 0);
        while let Some(frame) = decoder.next_frame().unwrap() {
            match frame.kind {
                Kind::StdoutGap => gap = frame.number().unwrap(),
                _ => bytes.extend(frame.payload),
            }
        }
        (bytes, gap, totals)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn head_and_tail_are_exact_and_the_gap_is_counted(
            text in prop::collection::vec(any::<u8>(), 0..20_000),
            cap in 0usize..12_000,
        ) {
            let (bytes, gap, totals) = capture(&text, cap);
            let kept = text.len().min(cap);
            prop_assert_eq!(totals.total, text.len() as u64);
            prop_assert_eq!(totals.omitted, gap);
            prop_assert_eq!(bytes.len(), kept);
            prop_assert_eq!(gap, (text.len() - kept) as u64);
            let head = kept.min(cap - cap / 2);
            prop_assert_eq!(&bytes[..head], &text[..head]);
            prop_assert_eq!(&bytes[head..], &text[text.len() - (kept - head)..]);
        }
    }

    #[test]
    fn without_credit_nothing_is_read() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"hello").unwrap();
        let mut capture = Capture::new(reader.into(), Kind::Stdout, Kind::StdoutGap, Some(100));
        assert!(capture.readable(0).is_none());
        let (mut credit, mut out) = (2, Vec::new());
        capture.read(1, &mut credit, &mut out).unwrap();
        assert_eq!((credit, capture.total), (0, 2));
    }
}
