//! The conversation between the engine and the process inside a sandbox.
//!
//! Both directions carry frames: payload length (`u32`, little endian), channel (`u32`), kind (`u8`), payload.
//! Channel 0 is the conversation itself; every other channel is one job (a command or a tar transfer).
//! Bulk data is flow-controlled per channel and direction: at most [`WINDOW`] bytes may be unconsumed, and the
//! consumer returns [`Kind::Credit`], so a slow reader on one channel neither blocks the others nor grows a buffer.

use std::io::{self, Read};

use serde::{Serialize, de::DeserializeOwned};

/// The largest payload that either side accepts. Bounds what a corrupted peer can make us allocate.
pub(crate) const MAX_PAYLOAD: usize = 4 << 20;
/// The size into which bulk data is cut.
pub(crate) const CHUNK: usize = 64 << 10;
/// Unconsumed bytes allowed per channel and direction.
pub(crate) const WINDOW: usize = 1 << 20;
/// Frame header: length, channel, kind.
pub(crate) const HEADER: usize = 9;

/// What a frame means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// To the helper: the [`super::boot::Task`].
    Task = 1,
    /// From the helper: the user namespace exists and waits for its id map.
    Unshared,
    /// To the helper: the id map is written.
    Mapped,
    /// From helper or agent: ready to serve, or the task is done. Payload depends on the task.
    Ready,
    /// From the helper: it cannot go on. Payload: [`super::boot::Failure`].
    Failed,
    /// To the agent: start a job on this channel. Payload: [`super::job::Request`].
    Start,
    /// To the agent: bytes for the job's standard input.
    Input,
    /// To the agent: no more input.
    InputEnd,
    /// Either way: this many bytes (`u32`) were consumed.
    Credit,
    /// To the agent: end the job and its process tree now.
    Kill,
    /// From the agent: bytes of standard output.
    Stdout,
    /// From the agent: bytes of standard error.
    Stderr,
    /// From the agent: the next bytes of standard output follow after this many (`u64`) omitted ones.
    StdoutGap,
    /// From the agent: the next bytes of standard error follow after this many (`u64`) omitted ones.
    StderrGap,
    /// From a supervisor to the agent: the command runs, with this pid (`u32`).
    Started,
    /// From supervisor and agent: the job is over. Payload: [`super::job::Outcome`].
    Done,
}

impl Kind {
    const ALL: [Kind; 16] = [
        Kind::Task,
        Kind::Unshared,
        Kind::Mapped,
        Kind::Ready,
        Kind::Failed,
        Kind::Start,
        Kind::Input,
        Kind::InputEnd,
        Kind::Credit,
        Kind::Kill,
        Kind::Stdout,
        Kind::Stderr,
        Kind::StdoutGap,
        Kind::StderrGap,
        Kind::Started,
        Kind::Done,
    ];

    fn from_byte(byte: u8) -> io::Result<Kind> {
        Kind::ALL
            .into_iter()
            .find(|kind| *kind as u8 == byte)
            .ok_or_else(|| invalid(format!("frame of unknown kind {byte}")))
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) channel: u32,
    pub(crate) kind: Kind,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn new(channel: u32, kind: Kind, payload: impl Into<Vec<u8>>) -> Frame {
        Frame { channel, kind, payload: payload.into() }
    }

    /// A frame whose payload is `value` as JSON.
    pub(crate) fn json(channel: u32, kind: Kind, value: &impl Serialize) -> io::Result<Frame> {
        Ok(Frame::new(channel, kind, serde_json::to_vec(value)?))
    }

    pub(crate) fn parse<T: DeserializeOwned>(&self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.payload)?)
    }

    /// The payload as a little-endian number of up to eight bytes.
    pub(crate) fn number(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        bytes
            .get_mut(..self.payload.len())
            .ok_or_else(|| invalid("number of more than eight bytes"))?
            .copy_from_slice(&self.payload);
        Ok(u64::from_le_bytes(bytes))
    }

    /// Appends the encoded frame to `out`. Fails if the payload is larger than [`MAX_PAYLOAD`].
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> io::Result<()> {
        if self.payload.len() > MAX_PAYLOAD {
            return Err(invalid(format!("message of {} bytes is larger than {MAX_PAYLOAD}", self.payload.len())));
        }
        out.extend_from_slice(&(self.payload.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.channel.to_le_bytes());
        out.push(self.kind as u8);
        out.extend_from_slice(&self.payload);
        Ok(())
    }

    pub(crate) fn encoded(&self) -> io::Result<Vec<u8>> {
        let mut out = Vec::with_capacity(HEADER + self.payload.len());
        self.encode(&mut out)?;
        Ok(out)
    }

    /// Reads exactly one frame and not a byte more, so that another process can read on from the same pipe.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Frame> {
        let mut header = [0; HEADER];
        from.read_exact(&mut header)?;
        let (length, channel, kind) = parse_header(&header)?;
        let mut payload = vec![0; length];
        from.read_exact(&mut payload)?;
        Ok(Frame { channel, kind, payload })
    }
}

pub(crate) fn parse_header(header: &[u8; HEADER]) -> io::Result<(usize, u32, Kind)> {
    let [l0, l1, l2, l3, c0, c1, c2, c3, kind] = *header;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length > MAX_PAYLOAD {
        return Err(invalid(format!("frame of {length} bytes announced")));
    }
    Ok((length, u32::from_le_bytes([c0, c1, c2, c3]), Kind::from_byte(kind)?))
}

/// Cuts a byte stream into frames, whatever the sizes in which it arrives.
#[derive(Default)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame, if there is one. An error means that the stream is not ours: stop reading it.
    pub(crate) fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        let rest = self.buffer.get(self.start..).unwrap_or_default();
        let Some(header) = rest.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let (length, channel, kind) = parse_header(header)?;
        let Some(payload) = rest.get(HEADER..HEADER + length) else {
            return Ok(None);
        };
        let payload = payload.to_vec();
        self.start += HEADER + length;
        Ok(Some(Frame { channel, kind, payload }))
    }
}

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_survive_any_fragmentation(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
            cut in 1usize..64,
        ) {
            let frames: Vec<Frame> = payloads
                .into_iter()
                .enumerate()
                .map(|(i, p)| Frame::new(i as u32, Kind::ALL[i % Kind::ALL.len()], p))
                .collect();
            let mut bytes = Vec::new();
            for frame in &frames {
                frame.encode(&mut bytes).unwrap();
            }
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.feed(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    seen.push(frame);
                }
            }
            prop_assert_eq!(&seen, &frames);
            let mut reader = bytes.as_slice();
            for frame in &frames {
                prop_assert_eq!(&Frame::read(&mut reader).unwrap(), frame);
            }
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            while let Ok(Some(frame)) = decoder.next_frame() {
                let _ = frame.number();
            }
        }
    }

    #[test]
    fn an_announced_giant_is_refused_before_it_is_allocated() {
        let mut bytes = u32::MAX.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[0, 0, 0, 0, Kind::Done as u8]);
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        assert!(decoder.next_frame().is_err());
        assert!(Frame::read(&mut bytes.as_slice()).is_err());
    }
}
