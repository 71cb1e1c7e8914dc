//! Reads one answer, streamed or whole, within bounds.

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use sandbox_bench_core::TokenCounts;
use sse_stream::SseByteStream;

use super::gateway::GatewayError;
use super::wire::{CallDelta, Chunk, Delta, Usage, WireError};

/// Most bytes of one answer. Far more than any model writes: what is longer is not an answer.
pub const MAX_BYTES: u64 = 8 << 20;
/// Most tool calls of one answer.
const MAX_CALLS: usize = 64;

/// A complete answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// What the model said.
    pub content: String,
    /// What it thought, where the gateway shows it.
    pub reasoning: String,
    /// Its refusal, if it gave one.
    pub refusal: String,
    /// What it wants to do.
    pub calls: Vec<RawCall>,
    /// Why the answer ended, as the gateway says.
    pub finish: Option<String>,
    /// The model, as the gateway names it.
    pub model: Option<String>,
    /// Tokens, if the gateway counted them.
    pub tokens: Option<TokenCounts>,
    /// US dollars, if the gateway says.
    pub usd: Option<f64>,
}

/// A tool call as the model wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawCall {
    /// Its id; empty if the server gave none.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments, which should be a JSON object.
    pub arguments: String,
}

impl Answer {
    fn take(&mut self, chunk: Chunk) -> Result<(), GatewayError> {
        if let Some(error) = chunk.error {
            return Err(mid_stream(error));
        }
        if let Some(model) = chunk.model.filter(|model| !model.is_empty()) {
            self.model = Some(model);
        }
        if let Some(usage) = chunk.usage {
            self.count(usage);
        }
        // Only one choice is asked for.
        let Some(choice) = chunk.choices.into_iter().flatten().next() else { return Ok(()) };
        if let Some(delta) = choice.delta {
            self.add(delta)?;
        }
        if choice.finish_reason.is_some() {
            self.finish = choice.finish_reason;
        }
        Ok(())
    }

    fn add(&mut self, delta: Delta) -> Result<(), GatewayError> {
        self.content += &delta.content.unwrap_or_default();
        self.refusal += &delta.refusal.unwrap_or_default();
        // A server that sends both names sends the same text twice.
        self.reasoning += &delta.reasoning.or(delta.reasoning_content).unwrap_or_default();
        for part in delta.tool_calls.into_iter().flatten() {
            self.add_call(part)?;
        }
        Ok(())
    }

    /// Parts of a call come with its index, or one after the other, a new id beginning a new call.
    fn add_call(&mut self, part: CallDelta) -> Result<(), GatewayError> {
        let begins = |call: &RawCall| part.id.as_ref().is_some_and(|id| !id.is_empty() && *id != call.id);
        let index = part.index.unwrap_or_else(|| match self.calls.last() {
            Some(last) if !begins(last) => self.calls.len() - 1,
            _ => self.calls.len(),
        });
        if index >= MAX_CALLS {
            return Err(GatewayError::Garbage(format!("an answer with more than {MAX_CALLS} tool calls")));
        }
        if self.calls.len() <= index {
            self.calls.resize(index + 1, RawCall::default());
        }
        let Some(call) = self.calls.get_mut(index) else { return Ok(()) };
        if let Some(id) = part.id.filter(|id| !id.is_empty()) {
            call.id = id;
        }
        let function = part.function.unwrap_or_default();
        if let Some(name) = function.name.filter(|name| !name.is_empty()) {
            call.name = name;
        }
        call.arguments += &function.arguments.unwrap_or_default();
        Ok(())
    }

    fn count(&mut self, usage: Usage) {
        if let (Some(input), Some(output)) = (usage.prompt_tokens, usage.completion_tokens) {
            let cached_input = usage.prompt_tokens_details.and_then(|d| d.cached_tokens).unwrap_or(0);
            let reasoning = usage.completion_tokens_details.and_then(|d| d.reasoning_tokens).unwrap_or(0);
            self.tokens = Some(TokenCounts { input, cached_input, output, reasoning });
        }
        self.usd = usage.cost.filter(|usd| usd.is_finite() && *usd >= 0.0).or(self.usd);
    }
}

fn mid_stream(error: WireError) -> GatewayError {
    let status = error.code.as_ref().and_then(serde_json::Value::as_u64).and_then(|code| u16::try_from(code).ok());
    GatewayError::of(status.unwrap_or(500), &error, None)
}

/// Reads a stream of server-sent events to its end. One that ends before the model's answer does was cut.
pub async fn events<S, E>(body: S) -> Result<Answer, GatewayError>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::fmt::Display,
{
    let mut events = SseByteStream::new(bounded(body));
    let mut answer = Answer::default();
    loop {
        let data = match events.next().await {
            Some(Ok(event)) => event.data.unwrap_or_default(),
            Some(Err(error)) => return Err(parse_error(error)),
            None if answer.finish.is_some() => return Ok(answer),
            None => return Err(GatewayError::Cut("it ended before the answer did".into())),
        };
        match data.trim() {
            "" => {}
            "[DONE]" if answer.finish.is_some() || !answer.calls.is_empty() => return Ok(answer),
            "[DONE]" if !answer.content.is_empty() || answer.tokens.is_some() => return Ok(answer),
            "[DONE]" => return Err(GatewayError::Garbage("a stream without an answer in it".into())),
            data => answer.take(json(data.as_bytes())?)?,
        }
    }
}

/// Reads an answer that is one JSON document.
pub async fn whole<S, E>(body: S) -> Result<Answer, GatewayError>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::fmt::Display,
{
    let mut body = bounded(body);
    let mut bytes = Vec::new();
    while let Some(chunk) = body.try_next().await.map_err(|BodyError(error)| error)? {
        bytes.extend_from_slice(&chunk);
    }
    let mut answer = Answer::default();
    let chunk: Chunk = json(&bytes)?;
    if chunk.error.is_none() && chunk.choices.as_ref().is_none_or(Vec::is_empty) {
        return Err(GatewayError::Garbage("an answer without choices".into()));
    }
    answer.take(chunk)?;
    Ok(answer)
}

fn json(bytes: &[u8]) -> Result<Chunk, GatewayError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let start: String = String::from_utf8_lossy(bytes).chars().take(80).collect();
        GatewayError::Garbage(format!("no JSON of the expected form ({error}): {start:?}"))
    })
}

/// Carries our error through the parser of events.
#[derive(Debug)]
struct BodyError(GatewayError);

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for BodyError {}

fn parse_error(error: sse_stream::Error) -> GatewayError {
    match error {
        sse_stream::Error::Body(source) => match source.downcast::<BodyError>() {
            Ok(body) => body.0,
            Err(other) => GatewayError::Cut(other.to_string()),
        },
        other => GatewayError::Garbage(other.to_string()),
    }
}

/// The body, which ends in an error where it grows too long.
fn bounded<S, E>(body: S) -> impl Stream<Item = Result<Bytes, BodyError>> + Unpin
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::fmt::Display,
{
    let mut total = 0;
    body.map(move |chunk| match chunk {
        Ok(chunk) => {
            total += chunk.len() as u64;
            if total > MAX_BYTES { Err(BodyError(GatewayError::TooLong)) } else { Ok(chunk) }
        }
        Err(error) => Err(BodyError(GatewayError::Cut(error.to_string()))),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures_util::stream;
    use proptest::prelude::*;

    /// What the Vercel AI Gateway streams, shortened: price and counts come in the chunk that holds the end.
    const VERCEL: &str = r#"data: {"model":"anthropic/claude","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}

data: {"model":"anthropic/claude","choices":[{"index":0,"delta":{"content":"I'll ädd "}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"add","arguments":""}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\": 2"}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"t2","function":{"name":"mul","arguments":"{}"}}]}}]}

data: {"choices":[{"index":0,"delta":{"provider_metadata":{"gateway":{"cost":"0.003561"}}},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":502,"completion_tokens":137,"cost":0.003561,"is_byok":false,"prompt_tokens_details":{"cached_tokens":7}}}

data: [DONE]

"#;

    fn read(pieces: Vec<Bytes>) -> Result<Answer, GatewayError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(events(stream::iter(pieces.into_iter().map(Ok::<_, String>))))
    }

    fn expected() -> Answer {
        let call = |id: &str, name: &str, arguments: &str| RawCall {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        };
        Answer {
            content: "I'll ädd ".into(),
            calls: vec![call("t1", "add", "{\"a\": 2}"), call("t2", "mul", "{}")],
            finish: Some("tool_calls".into()),
            model: Some("anthropic/claude".into()),
            tokens: Some(TokenCounts { input: 502, cached_input: 7, output: 137, reasoning: 0 }),
            usd: Some(0.003561),
            ..Answer::default()
        }
    }

    proptest! {
        #[test]
        fn an_answer_is_the_same_however_the_network_cuts_it(size in 1usize..200) {
            let pieces = VERCEL.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
            prop_assert_eq!(read(pieces).unwrap(), expected());
        }

        #[test]
        fn nothing_that_a_server_sends_panics(bytes in any::<Vec<u8>>(), text in "(data: |[{}\\[\\]:,\"\\n]|choices|delta){0,40}") {
            let _ = read(vec![Bytes::from(bytes)]);
            let _ = read(vec![Bytes::from(text)]);
        }
    }

    #[test]
    fn an_answer_that_breaks_off_is_no_answer() {
        let (half, _) = VERCEL.split_at(VERCEL.find("t2").unwrap());
        assert!(matches!(read(vec![Bytes::from(half)]), Err(GatewayError::Cut(_))));
        let done = VERCEL.replace("data: [DONE]\n\n", "");
        assert_eq!(read(vec![Bytes::from(done)]).unwrap(), expected(), "the mark at the end may be missing");
        assert!(matches!(read(vec![Bytes::from("data: [DONE]\n\n")]), Err(GatewayError::Garbage(_))));
    }

    #[test]
    fn calls_without_index_are_told_apart_by_their_ids() {
        let part = |text: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{text}]}}}}]}}\n\n");
        let text = part(r#"{"id":"a","function":{"name":"x","arguments":"{"}}"#)
            + &part(r#"{"function":{"arguments":"}"}}"#)
            + &part(r#"{"id":"b","function":{"name":"y","arguments":"{}"}}"#)
            + "data: [DONE]\n\n";
        let calls = read(vec![Bytes::from(text)]).unwrap().calls;
        let told: Vec<(&str, &str)> = calls.iter().map(|c| (c.name.as_str(), c.arguments.as_str())).collect();
        assert_eq!(told, [("x", "{}"), ("y", "{}")]);
    }
}
