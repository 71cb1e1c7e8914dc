//! The log of a session command: two streams in one, over a WebSocket.

use std::pin::Pin;

use base64::Engine as _;
use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::header::{CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use reqwest::{RequestBuilder, Upgraded};
use sandbox_bench_core::{Call, Error, ErrorKind, Result, Stream};
use sandbox_bench_kit::http::{Effect, send};
use sandbox_bench_kit::wait::bounded;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::client::accepted;

/// Largest message that is taken; the daemon sends 1 KiB.
const MESSAGE_LIMIT: usize = 4 << 20;

/// A log that is being followed, from its beginning.
pub(crate) struct Follow(Pin<Box<WebSocketStream<Upgraded>>>);

impl Follow {
    /// Asks for the log and turns the connection into a WebSocket.
    ///
    /// # Errors
    /// What the request fails with; `Failed` if the connection stays what it was.
    pub(crate) async fn open(call: &Call, what: &str, request: RequestBuilder) -> Result<Self> {
        let key = base64::engine::general_purpose::STANDARD.encode(uuid::Uuid::now_v7().as_bytes());
        // The daemon compares the value of `Upgrade` as it is.
        let request = request
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, key);
        let answer = accepted(call, what, send(call, what, Effect::Idempotent, request).await?).await?;
        let answer = answer.map_err(|no| no.error(what, Effect::Idempotent))?;
        let failed = |e: reqwest::Error| {
            Error::new(ErrorKind::Failed, format!("{what}: the log cannot be followed")).because(e.without_url())
        };
        let upgraded = bounded(call, what, answer.upgrade()).await?.map_err(failed)?;
        let config =
            WebSocketConfig::default().max_message_size(Some(MESSAGE_LIMIT)).max_frame_size(Some(MESSAGE_LIMIT));
        Ok(Self(Box::pin(WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await)))
    }

    /// The next piece; none when the stream is over, in whatever way.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.0.next().await? {
                Ok(Message::Binary(bytes)) => return Some(bytes),
                Ok(Message::Text(text)) => return Some(text.into()),
                // Pings are answered by the library.
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                Ok(Message::Close(_)) | Err(_) => return None,
            }
        }
    }
}

const STDOUT: [u8; 3] = [1; 3];
const STDERR: [u8; 3] = [2; 3];

/// Takes the two streams of a log apart. Each line begins with the mark of its stream; marks may be cut anywhere. It
/// holds back at most two bytes.
#[derive(Debug, Default)]
pub(crate) struct Demux {
    stream: Option<Stream>,
    held: Vec<u8>,
}

impl Demux {
    /// Takes a piece of the log; what comes before the first mark belongs to nobody.
    pub(crate) fn push(&mut self, piece: &[u8], mut deliver: impl FnMut(Stream, &[u8])) {
        let joined;
        let mut rest = if self.held.is_empty() {
            piece
        } else {
            joined = [std::mem::take(&mut self.held).as_slice(), piece].concat();
            joined.as_slice()
        };
        while let Some((at, stream)) = find(rest) {
            let (before, after) = rest.split_at(at);
            self.pass(before, &mut deliver);
            self.stream = Some(stream);
            rest = after.get(STDOUT.len()..).unwrap_or_default();
        }
        let kept = rest.iter().rev().take(2).take_while(|b| rest.last() == Some(b) && matches!(b, 1 | 2)).count();
        let (now, later) = rest.split_at(rest.len() - kept);
        self.pass(now, &mut deliver);
        self.held = later.to_vec();
    }

    /// The log is over: what was held back is delivered.
    pub(crate) fn finish(&mut self, mut deliver: impl FnMut(Stream, &[u8])) {
        let held = std::mem::take(&mut self.held);
        self.pass(&held, &mut deliver);
    }

    fn pass(&self, bytes: &[u8], deliver: &mut impl FnMut(Stream, &[u8])) {
        if let Some(stream) = self.stream
            && !bytes.is_empty()
        {
            deliver(stream, bytes);
        }
    }
}

fn find(bytes: &[u8]) -> Option<(usize, Stream)> {
    let mut from = 0;
    loop {
        let at = from + bytes.get(from..)?.iter().position(|b| matches!(b, 1 | 2))?;
        match bytes.get(at..at + 3) {
            Some(mark) if *mark == STDOUT => return Some((at, Stream::Stdout)),
            Some(mark) if *mark == STDERR => return Some((at, Stream::Stderr)),
            _ => from = at + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn demux(log: &[u8], pieces: &[usize]) -> (Vec<u8>, Vec<u8>) {
        let (mut demux, mut out) = (Demux::default(), (Vec::new(), Vec::new()));
        let mut rest = log;
        for piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at((*piece).min(rest.len()));
            demux.push(now, |stream, bytes| match stream {
                Stream::Stdout => out.0.extend_from_slice(bytes),
                Stream::Stderr => out.1.extend_from_slice(bytes),
            });
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        demux.finish(|stream, bytes| match stream {
            Stream::Stdout => out.0.extend_from_slice(bytes),
            Stream::Stderr => out.1.extend_from_slice(bytes),
        });
        out
    }

    /// Lines without anything that could be part of a mark, or ending with what could begin one.
    fn lines() -> impl Strategy<Value = Vec<(bool, Vec<u8>)>> {
        let text = prop::collection::vec(3u8..=255, 0..20);
        let end = prop_oneof![Just(vec![]), Just(vec![1]), Just(vec![2, 2]), Just(vec![1, 2])];
        let line = (any::<bool>(), text, end).prop_map(|(error, text, end)| {
            let text: Vec<u8> = text.into_iter().filter(|b| *b != b'\n').chain(end).chain([b'\n']).collect();
            (error, text)
        });
        prop::collection::vec(line, 0..8)
    }

    proptest! {
        #[test]
        fn lines_come_apart_however_the_log_is_cut(lines in lines(), pieces in prop::collection::vec(1usize..9, 1..9)) {
            let mark = |error: bool| if error { STDERR } else { STDOUT };
            let log: Vec<u8> = lines.iter().flat_map(|(error, text)| [&mark(*error)[..], text].concat()).collect();
            let of = |which: bool| lines.iter().filter(|(e, _)| *e == which).flat_map(|(_, t)| t.clone()).collect::<Vec<u8>>();
            prop_assert_eq!(demux(&log, &pieces), (of(false), of(true)));
        }

        #[test]
        fn any_log_is_taken(log in prop::collection::vec(prop_oneof![Just(1u8), Just(2), any::<u8>()], 0..200), pieces in prop::collection::vec(1usize..50, 1..9)) {
            demux(&log, &pieces);
        }
    }

    #[test]
    fn what_comes_before_the_first_mark_is_nobodys() {
        assert_eq!(demux(b"noise\x01\x01\x01out\n\x02\x02\x02err\n", &[1]), (b"out\n".to_vec(), b"err\n".to_vec()));
    }
}
