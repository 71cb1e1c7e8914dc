//! The chat-completions messages, as far as the loop needs them. Unknown fields of answers are ignored: every gateway
//! has its own.
//!
//! Requests carry only what all servers know: `model`, `messages`, `tools`, `stream`, `stream_options.include_usage`.
//! In answers, counts are in `usage`; OpenRouter and the Vercel AI Gateway add `usage.cost` in US dollars, in the last
//! chunk of a stream. OpenRouter and vLLM stream reasoning as `reasoning` and `reasoning_content`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "role")]
pub enum Message {
    /// What the harness says.
    System {
        /// Text.
        content: String,
    },
    /// The task, and reminders.
    User {
        /// Text.
        content: String,
    },
    /// What the model said.
    Assistant {
        /// Text; null beside tool calls without words.
        content: Option<String>,
        /// What it wants to do.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall>,
    },
    /// What a tool call came to.
    Tool {
        /// The call.
        tool_call_id: String,
        /// Text.
        content: String,
    },
}

/// A tool call in a message of ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WireCall {
    /// Its id.
    pub id: String,
    /// Always `function`.
    pub r#type: &'static str,
    /// What is called.
    pub function: WireFunction,
}

/// The function of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WireFunction {
    /// Its name.
    pub name: String,
    /// Its arguments: a JSON object, as text.
    pub arguments: String,
}

/// A request.
#[derive(Debug, Serialize)]
pub struct Request<'a> {
    /// The model.
    pub model: &'a str,
    /// The conversation so far.
    pub messages: &'a [Message],
    /// The tools.
    pub tools: &'a [Value],
    /// Always true.
    pub stream: bool,
    /// Asks for token counts at the end of the stream.
    pub stream_options: StreamOptions,
}

/// Options of a stream.
#[derive(Debug, Serialize)]
pub struct StreamOptions {
    /// Always true.
    pub include_usage: bool,
}

/// A chunk of a stream, or a whole answer: the latter has `message` where the former has `delta`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Chunk {
    /// The model that answers.
    pub model: Option<String>,
    /// One choice, or none in a chunk that only counts.
    pub choices: Option<Vec<Choice>>,
    /// Counts.
    pub usage: Option<Usage>,
    /// An error in the middle of a stream.
    pub error: Option<WireError>,
}

/// One choice.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Choice {
    /// What was added.
    #[serde(alias = "message")]
    pub delta: Option<Delta>,
    /// Why the answer ended.
    pub finish_reason: Option<String>,
}

/// What a chunk adds to the answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Delta {
    /// Text.
    pub content: Option<String>,
    /// The model's refusal.
    pub refusal: Option<String>,
    /// Reasoning (OpenRouter's name).
    pub reasoning: Option<String>,
    /// Reasoning (vLLM's name).
    pub reasoning_content: Option<String>,
    /// Parts of tool calls.
    pub tool_calls: Option<Vec<CallDelta>>,
}

/// A part of a tool call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CallDelta {
    /// Which call; some servers leave it out.
    pub index: Option<usize>,
    /// Its id, in its first part.
    pub id: Option<String>,
    /// What is called.
    pub function: Option<FunctionDelta>,
}

/// A part of a function call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct FunctionDelta {
    /// Its name, in its first part.
    pub name: Option<String>,
    /// More of its arguments.
    pub arguments: Option<String>,
}

/// Counts of one answer.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens of the request, cached ones included.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer, reasoning included.
    pub completion_tokens: Option<u64>,
    /// Details of the former.
    pub prompt_tokens_details: Option<PromptDetails>,
    /// Details of the latter.
    pub completion_tokens_details: Option<CompletionDetails>,
    /// US dollars.
    pub cost: Option<f64>,
}

/// Details of a request's tokens.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct PromptDetails {
    /// Tokens from a cache.
    pub cached_tokens: Option<u64>,
}

/// Details of an answer's tokens.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct CompletionDetails {
    /// Tokens of reasoning.
    pub reasoning_tokens: Option<u64>,
}

/// An error, in a body of its own or in a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WireError {
    /// What happened.
    pub message: Option<String>,
    /// A word or a number, such as `context_length_exceeded` or 429.
    pub code: Option<Value>,
    /// A word, such as `invalid_request_error`.
    pub r#type: Option<String>,
}

/// The body of an answer that is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ErrorBody {
    /// The error.
    pub error: Option<WireError>,
    /// What servers send that do not nest it.
    pub message: Option<String>,
}
