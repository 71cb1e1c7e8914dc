//! How the end of a running command is learnt: from an event stream, which tells it at once, or, for long commands, by
//! asking about a command in the background, which outlives every connection.

use std::future::pending;
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use reqwest::Method;
use reqwest::header::ACCEPT;
use sandbox_bench_core::{Call, Error, ErrorKind, Result};
use sandbox_bench_kit::http::{Effect, lines};

use crate::api::{accepted, ask};
use crate::gateway::Gateway;
use crate::wire::{Background, Backgrounds, EventText, ExecRequest, ExecResult, Logs};

/// Longest line of an event stream: the command's own output does not come this way.
const LINE_LIMIT: usize = 1 << 20;
/// Most bytes kept of what is said instead of a command's output.
const WORDS: usize = 4 << 10;
/// Limit for one question about a command in the background.
const ASK_LIMIT: Duration = Duration::from_secs(10);

/// A running command.
pub(crate) struct Handle<'a> {
    gateway: &'a Gateway,
    way: Way,
    /// What the daemon, or our script in place of the command, said.
    pub(crate) words: String,
}

enum Way {
    Stream(BoxStream<'static, Result<Event>>),
    Background(String),
}

impl<'a> Handle<'a> {
    /// Starts a command whose end will be told by its event stream.
    ///
    /// # Errors
    /// `Transport` if it cannot be known whether it was started; else it was not.
    pub(crate) async fn stream(gateway: &'a Gateway, call: &Call, request: &ExecRequest) -> Result<Self> {
        let what = gateway.what("command");
        let request =
            gateway.request(Method::POST, &["exec", "stream"]).header(ACCEPT, "text/event-stream").json(request);
        let answer = accepted(call, &what, Effect::Once, request).await?;
        let way = Way::Stream(events(lines(answer, what, LINE_LIMIT)).boxed());
        Ok(Self { gateway, way, words: String::new() })
    }

    /// Starts a command in the background. Its tag finds it again when the answer is lost.
    ///
    /// # Errors
    /// As [`Handle::stream`].
    pub(crate) async fn background(gateway: &'a Gateway, call: &Call, request: &ExecRequest) -> Result<Self> {
        let what = gateway.what("command in the background");
        let sent = gateway.request(Method::POST, &["exec", "bg"]).json(request);
        let started = match ask::<Background>(call, &what, Effect::Once, sent).await {
            Err(error) if *error.kind() == ErrorKind::Transport => {
                let tag = request.tag.as_deref().unwrap_or_default();
                let list = gateway.request(Method::GET, &["exec", "bg"]).query(&[("tag", tag)]);
                let listed = ask::<Backgrounds>(&call.within(ASK_LIMIT), &what, Effect::Idempotent, list).await;
                listed.ok().and_then(|listed| listed.execs.into_iter().next()).ok_or(error)?
            }
            started => started?,
        };
        Ok(Self { gateway, way: Way::Background(started.exec_id), words: String::new() })
    }

    /// Waits for the end where it is told; otherwise for ever.
    ///
    /// # Errors
    /// The stream broke before the end of the command.
    pub(crate) async fn told(&mut self) -> Result<ExecResult> {
        let Way::Stream(events) = &mut self.way else { return pending().await };
        loop {
            let Some(event) = events.next().await else {
                let message = self.gateway.what("the event stream ended before the command");
                return Err(Error::new(ErrorKind::Transport, message));
            };
            let event = event?;
            let text = || serde_json::from_str::<EventText>(&event.data).unwrap_or_default();
            match event.name.as_str() {
                "execution_complete" => {
                    return serde_json::from_str(&event.data).map_err(|e| {
                        let message = self.gateway.what("the command's end cannot be read");
                        Error::new(ErrorKind::Transport, message).because(e)
                    });
                }
                "stdout" | "stderr" => keep(&mut self.words, &text().text.unwrap_or_default()),
                "error" => keep(&mut self.words, &text().message.unwrap_or_default()),
                _ => {}
            }
        }
    }

    /// Asks for the end where it is not told; none while the command runs or nothing can be learnt.
    ///
    /// # Errors
    /// The daemon does not know the command any more.
    pub(crate) async fn asked(&mut self, call: &Call) -> Result<Option<ExecResult>> {
        let Way::Background(id) = &self.way else { return Ok(None) };
        let what = self.gateway.what("command in the background");
        let request = self.gateway.request(Method::GET, &["exec", "bg", id]);
        let status: Background = match ask(&call.within(ASK_LIMIT), &what, Effect::Idempotent, request).await {
            Err(e) if matches!(e.kind(), ErrorKind::Unavailable | ErrorKind::DeadlineExceeded) => return Ok(None),
            status => status?,
        };
        if status.state == "running" {
            return Ok(None);
        }
        if !matches!(status.state.as_str(), "exited" | "signaled" | "timed_out" | "failed_to_start" | "orphaned") {
            let message = format!("{what}: it is in the unknown state {:?}", status.state);
            return Err(Error::new(ErrorKind::Failed, message));
        }
        let lost = status.state == "orphaned";
        Ok(Some(ExecResult {
            exit_code: status.exit_code.filter(|_| !lost),
            signal: status.signal.filter(|_| !lost),
            timed_out: Some(status.state == "timed_out"),
            ..ExecResult::default()
        }))
    }

    /// Gets what was said in place of the command's output, where that has not come already.
    pub(crate) async fn fetch_words(&mut self, call: &Call) {
        let Way::Background(id) = &self.way else { return };
        for stream in ["stdout", "stderr"] {
            let request = self.gateway.request(Method::GET, &["exec", "bg", id, "logs"]);
            let request = request.query(&[("stream", stream), ("offset", "0"), ("max_bytes", &WORDS.to_string())]);
            let what = self.gateway.what("what a command's start said");
            // Best effort: it only explains.
            if let Ok(logs) = ask::<Logs>(&call.within(ASK_LIMIT), &what, Effect::Idempotent, request).await {
                keep(&mut self.words, &logs.data.unwrap_or_default());
            }
        }
    }

    /// Lets the daemon forget a command in the background.
    pub(crate) async fn forget(&mut self, call: &Call) {
        let Way::Background(id) = &self.way else { return };
        let what = self.gateway.what("record of a command");
        let request = self.gateway.request(Method::DELETE, &["exec", "bg", id]);
        if let Err(error) = accepted(call, &what, Effect::Idempotent, request).await {
            tracing::debug!(%error, "a command's record stays with the daemon");
        }
    }
}

fn keep(words: &mut String, more: &str) {
    let room = WORDS.saturating_sub(words.len());
    words.extend(more.chars().take(room));
}

/// One event of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    name: String,
    data: String,
}

/// The events that lines make: fields until an empty line. Comments, pings and events without data are left out.
fn events(
    lines: impl futures_util::Stream<Item = Result<bytes::Bytes>> + Send + 'static,
) -> impl futures_util::Stream<Item = Result<Event>> + Send + 'static {
    stream::unfold((Box::pin(lines), Event::default()), |(mut lines, mut event)| async move {
        loop {
            let line = match lines.next().await? {
                Ok(line) => line,
                Err(error) => return Some((Err(error), (lines, Event::default()))),
            };
            if line.is_empty() {
                let whole = std::mem::take(&mut event);
                if !whole.data.is_empty() && whole.name != "ping" {
                    return Some((Ok(whole), (lines, event)));
                }
                continue;
            }
            let line = String::from_utf8_lossy(&line);
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => event.name = value.to_owned(),
                "data" => {
                    let joint = if event.data.is_empty() { "" } else { "\n" };
                    if event.data.len() + value.len() <= LINE_LIMIT {
                        event.data += joint;
                        event.data += value;
                    }
                }
                _ => {}
            }
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    async fn read(text: &str) -> Vec<Event> {
        let lines: Vec<_> = text.split('\n').map(|line| Ok(Bytes::copy_from_slice(line.as_bytes()))).collect();
        events(stream::iter(lines)).map(|event| event.unwrap()).collect().await
    }

    #[tokio::test]
    async fn events_are_read_as_the_official_client_reads_them() {
        let text = "event: start\ndata: {\"exec_id\":\"e1\",\ndata: \"pid\":7}\n\n: comment\nevent: ping\ndata: {}\n\n\
                    event: nothing\n\ndata:x\n\nevent: cut\ndata: y";
        let event = |name: &str, data: &str| Event { name: name.into(), data: data.into() };
        assert_eq!(read(text).await, [event("start", "{\"exec_id\":\"e1\",\n\"pid\":7}"), event("", "x")]);
    }

    proptest! {
        #[test]
        fn any_stream_is_read_without_a_panic(text in "[a-z:\\n {}\"]{0,200}") {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(read(&text));
        }
    }
}
