//! Answers, streamed in small pieces as real ones are, and faults.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Response, StatusCode};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::Asked;

/// Length of the pieces that texts come in.
const PIECE: usize = 7;

/// What the server does.
#[derive(Debug, Clone)]
pub enum Reply {
    /// The model says something.
    Says(String),
    /// The model calls tools: names with arguments.
    Calls(Vec<(String, String)>),
    /// The model refuses.
    Refuses(String),
    /// An error, with headers.
    Error {
        /// HTTP status.
        status: u16,
        /// Error code.
        code: String,
        /// What it says.
        message: String,
        /// Headers.
        headers: Vec<(&'static str, String)>,
    },
    /// The stream breaks off in the middle of an answer.
    Cut,
    /// The stream holds something that is no JSON.
    Garbage,
    /// An error in the middle of a stream.
    ErrorInStream(String),
    /// An answer of so many bytes.
    Flood(usize),
    /// No answer at all, and no end.
    Silence,
    /// The model says something without ever coming to an end.
    Babbles,
    /// No price and no token counts with this answer.
    Uncounted(Box<Reply>),
    /// The answer has a price.
    Priced(Box<Reply>, f64),
}

/// A call of a tool.
#[must_use]
pub fn call(name: &str, arguments: Value) -> (String, String) {
    (name.to_owned(), arguments.to_string())
}

/// An answer that is an error.
pub fn error(status: u16, message: &str, code: &str, headers: &[(&'static str, String)]) -> Response<Body> {
    let body = json!({ "error": { "message": message, "type": "error", "param": null, "code": code } });
    let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
    response = response.header("content-type", "application/json");
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    response.body(Body::from(body.to_string())).unwrap()
}

impl Reply {
    /// One call.
    #[must_use]
    pub fn call(name: &str, arguments: Value) -> Self {
        Self::Calls(vec![call(name, arguments)])
    }

    /// The shell runs `command`.
    #[must_use]
    pub fn run(command: &str) -> Self {
        Self::call("run_command", json!({ "command": command }))
    }

    /// The work is done.
    #[must_use]
    pub fn finish() -> Self {
        Self::call("finish", json!({ "summary": "done" }))
    }

    /// An error without headers.
    #[must_use]
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        Self::Error { status, code: code.into(), message: message.into(), headers: Vec::new() }
    }

    /// As HTTP.
    pub fn respond(&self, asked: &Asked, streamed: bool) -> Response<Body> {
        match self {
            Self::Error { status, code, message, headers } => error(*status, message, code, headers),
            Self::Silence => body(streamed, Body::from_stream(stream::pending::<Result<Bytes, Infallible>>())),
            Self::Flood(bytes) => {
                let piece = Bytes::from(vec![b'x'; 64 << 10]);
                let pieces = stream::iter(vec![Ok::<_, Infallible>(piece); bytes / (64 << 10)]);
                let start = stream::iter([Ok(Bytes::from("data: {\"choices\":[{\"delta\":{\"content\":\""))]);
                body(true, Body::from_stream(start.chain(pieces)))
            }
            Self::Babbles => {
                let piece = event(&chunk(asked, json!({ "content": "and so on " }), None));
                let pieces = stream::repeat(piece).then(|piece| async {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    Ok::<_, Infallible>(piece)
                });
                body(true, Body::from_stream(pieces))
            }
            Self::Cut => {
                let parts = vec![
                    Ok(event(&chunk(asked, json!({ "role": "assistant", "content": "I will" }), None))),
                    Err(io::Error::other("cut")),
                ];
                body(true, Body::from_stream(stream::iter(parts)))
            }
            Self::Garbage => body(true, Body::from("data: {\"choices\": [{\"delta\": <html>oops\n\n")),
            Self::ErrorInStream(message) => {
                let error = json!({ "error": { "message": message, "code": 502 }, "choices": [] });
                body(true, Body::from_iter_events([chunk(asked, json!({ "content": "I" }), None), error]))
            }
            told if streamed => {
                let mut chunks: Vec<Value> = vec![chunk(asked, json!({ "role": "assistant" }), None)];
                chunks.extend(told.deltas(asked).into_iter().map(|delta| chunk(asked, delta, None)));
                chunks.push(chunk(asked, json!({}), Some(told.finish_reason())));
                if let Some(usage) = told.usage(asked) {
                    let mut last = chunk(asked, json!({}), None);
                    last["choices"] = json!([]);
                    last["usage"] = usage;
                    chunks.push(last);
                }
                body(true, Body::from_iter_events(chunks))
            }
            told => {
                let mut whole = chunk(asked, json!({}), None);
                whole["object"] = "chat.completion".into();
                whole["usage"] = told.usage(asked).unwrap_or_default();
                whole["choices"] = json!([{
                    "index": 0, "message": told.message(asked), "finish_reason": told.finish_reason(), "logprobs": null,
                }]);
                body(false, Body::from(whole.to_string()))
            }
        }
    }

    fn inner(&self) -> &Self {
        match self {
            Self::Uncounted(inner) | Self::Priced(inner, _) => inner.inner(),
            other => other,
        }
    }

    fn finish_reason(&self) -> &'static str {
        if matches!(self.inner(), Self::Calls(_)) { "tool_calls" } else { "stop" }
    }

    /// One for ten tokens of what it was asked, and one for each piece that it says.
    fn usage(&self, asked: &Asked) -> Option<Value> {
        let input = asked.body["messages"].to_string().len() / 10;
        let output = self.deltas(asked).len() + 1;
        let mut usage = json!({
            "prompt_tokens": input,
            "completion_tokens": output,
            "total_tokens": input + output,
            "prompt_tokens_details": { "cached_tokens": input / 2 },
        });
        match self {
            Self::Uncounted(_) => None,
            Self::Priced(_, usd) => {
                usage["cost"] = json!(usd);
                Some(usage)
            }
            _ => Some(usage),
        }
    }

    fn message(&self, asked: &Asked) -> Value {
        match self.inner() {
            Self::Calls(calls) => {
                let calls = calls.iter().enumerate().map(|(number, (name, arguments))| {
                    let function = json!({ "name": name, "arguments": arguments });
                    json!({ "id": id(asked, number), "type": "function", "function": function })
                });
                json!({ "role": "assistant", "content": null, "tool_calls": calls.collect::<Vec<_>>() })
            }
            Self::Refuses(text) => json!({ "role": "assistant", "content": null, "refusal": text }),
            Self::Says(text) => json!({ "role": "assistant", "content": text }),
            other => unreachable!("{other:?} is no message"),
        }
    }

    /// The pieces of an answer.
    fn deltas(&self, asked: &Asked) -> Vec<Value> {
        let pieces = |text: &str| -> Vec<String> {
            text.chars().collect::<Vec<_>>().chunks(PIECE).map(|piece| piece.iter().collect()).collect()
        };
        match self.inner() {
            Self::Says(text) => pieces(text).into_iter().map(|piece| json!({ "content": piece })).collect(),
            Self::Refuses(text) => pieces(text).into_iter().map(|piece| json!({ "refusal": piece })).collect(),
            Self::Calls(calls) => {
                let mut deltas = Vec::new();
                for (index, (name, arguments)) in calls.iter().enumerate() {
                    let function = json!({ "name": name, "arguments": "" });
                    let first =
                        json!({ "index": index, "id": id(asked, index), "type": "function", "function": function });
                    deltas.push(json!({ "tool_calls": [first] }));
                    let rest = pieces(arguments).into_iter();
                    deltas.extend(rest.map(
                        |piece| json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] }),
                    ));
                }
                deltas
            }
            other => unreachable!("{other:?} has no pieces"),
        }
    }
}

fn id(asked: &Asked, number: usize) -> String {
    format!("call_{}_{number}", asked.number)
}

fn chunk(asked: &Asked, delta: Value, finish: Option<&str>) -> Value {
    json!({
        "id": format!("chatcmpl-{}", asked.number),
        "object": "chat.completion.chunk",
        "created": 1_780_000_000,
        "model": asked.body["model"],
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish, "logprobs": null }],
    })
}

fn event(data: &Value) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

/// A body of events, with the comments that gateways send to keep a connection alive, and the mark at the end.
trait Events {
    fn from_iter_events(events: impl IntoIterator<Item = Value>) -> Body;
}

impl Events for Body {
    fn from_iter_events(events: impl IntoIterator<Item = Value>) -> Body {
        let mut parts = vec![Bytes::from(": PROCESSING\n\n")];
        parts.extend(events.into_iter().map(|data| event(&data)));
        parts.push(Bytes::from("data: [DONE]\n\n"));
        Body::from_stream(stream::iter(parts.into_iter().map(Ok::<_, Infallible>)))
    }
}

fn body(streamed: bool, body: Body) -> Response<Body> {
    let kind = if streamed { "text/event-stream; charset=utf-8" } else { "application/json" };
    Response::builder().header("content-type", kind).body(body).unwrap()
}
