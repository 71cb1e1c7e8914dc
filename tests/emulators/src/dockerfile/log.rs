//! The text of a build, followed while it grows.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio::sync::watch;

/// Bytes kept; what comes after is left out, and the log says so.
const CAPACITY: usize = 16 << 20;

/// A log that grows until it is closed.
pub struct BuildLog(watch::Sender<Text>);

#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    closed: bool,
}

impl Default for BuildLog {
    fn default() -> BuildLog {
        BuildLog(watch::Sender::new(Text::default()))
    }
}

impl BuildLog {
    /// Adds bytes.
    pub fn write(&self, bytes: &[u8]) {
        self.0.send_modify(|text| {
            let left = CAPACITY.saturating_sub(text.bytes.len());
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
        self.0.send_modify(|text| text.closed = true);
    }

    /// Everything so far.
    pub fn text(&self) -> Vec<u8> {
        self.0.borrow().bytes.clone()
    }

    /// Everything so far and then what comes, until it is closed.
    pub fn follow(self: &Arc<Self>) -> impl Stream<Item = Bytes> + Send + use<> {
        stream::unfold((self.0.subscribe(), 0), |(mut text, sent)| async move {
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
        let log = Arc::new(BuildLog::default());
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
