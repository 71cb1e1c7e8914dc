//! Text that is followed while it grows: of a build, of a command.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio::sync::watch;

/// Bytes kept by default.
const CAPACITY: usize = 16 << 20;

/// A log that grows until it is closed. What does not fit is left out, and the log says so.
pub struct Log {
    text: watch::Sender<Text>,
    capacity: usize,
}

#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    closed: bool,
}

impl Default for Log {
    /// Keeps 16 MiB.
    fn default() -> Log {
        Log::new(CAPACITY)
    }
}

impl Log {
    /// Keeps so many bytes.
    pub fn new(capacity: usize) -> Log {
        Log { text: watch::Sender::new(Text::default()), capacity }
    }

    /// Adds bytes.
    pub fn write(&self, bytes: &[u8]) {
        self.text.send_modify(|text| {
            let left = self.capacity.saturating_sub(text.bytes.len());
            if left > 0 && bytes.len() > left {
                text.bytes.extend_from_slice(bytes.get(..left).unwrap_or_default());
                text.bytes.extend_from_slice(b"\n[log truncated]\n");
            } else if left > 0 {
                text.bytes.extend_from_slice(bytes);
            }
        });
    }

    /// Adds a line.
    pub fn line(&self, line: &str) {
        self.write(format!("{line}\n").as_bytes());
    }

    /// No more will come.
    pub fn close(&self) {
        self.text.send_modify(|text| text.closed = true);
    }

    /// Everything so far.
    pub fn text(&self) -> Vec<u8> {
        self.text.borrow().bytes.clone()
    }

    /// What was added after the first `from` bytes. Waits for the first byte of it, or for the end of the log.
    pub async fn after(&self, from: usize) -> Vec<u8> {
        let mut text = self.text.subscribe();
        // The sender lives as long as `self`.
        let Ok(text) = text.wait_for(|text| text.bytes.len() > from || text.closed).await else { return Vec::new() };
        text.bytes.get(from..).unwrap_or_default().to_vec()
    }

    /// Everything so far and then what comes, until it is closed.
    pub fn follow(self: &Arc<Self>) -> impl Stream<Item = Bytes> + Send + use<> {
        stream::unfold((self.text.subscribe(), 0), |(mut text, sent)| async move {
            let part = {
                let ready = text.wait_for(|text| text.bytes.len() > sent || text.closed).await.ok()?;
                Bytes::copy_from_slice(ready.bytes.get(sent..)?)
            };
            let sent = sent + part.len();
            (!part.is_empty()).then_some((part, (text, sent)))
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[tokio::test]
    async fn a_follower_sees_all_of_it_and_then_the_end() {
        let log = Arc::new(Log::default());
        log.line("one");
        let mut parts = Box::pin(log.follow());
        assert_eq!(parts.next().await, Some(Bytes::from("one\n")));
        log.line("two");
        log.close();
        assert_eq!(parts.next().await, Some(Bytes::from("two\n")));
        assert_eq!(parts.next().await, None);
        assert_eq!(log.text(), b"one\ntwo\n");
    }
}
