//! What is known of a solver that is a model, and of one that repeats a recording.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// How an agent's work came to its end. Only [`AgentEnd::Finished`] is the agent's own word; after every end but
/// `gateway`, `sandbox` and `interrupted` the verifier looks at the work all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentEnd {
    /// The model called `finish`.
    Finished,
    /// The model answered in words, without a tool call, several times in a row.
    NoAction,
    /// The model answered with nothing, several times in a row.
    Empty,
    /// The model, or a filter in front of it, refused.
    Refused,
    /// Nothing but malformed tool calls came, several turns in a row.
    Malformed,
    /// The same tool calls gave the same results again and again.
    Looping,
    /// The limit of turns was reached.
    TurnLimit,
    /// The limit of tokens was reached.
    TokenLimit,
    /// The limit of money was reached.
    CostLimit,
    /// The time limit of the solver passed.
    TimeLimit,
    /// The conversation does not fit the model's context any more.
    ContextOverflow,
    /// The gateway failed: nothing is known of what the model can do.
    Gateway,
    /// The sandbox failed under a tool.
    Sandbox,
    /// The user ended the run.
    Interrupted,
}

impl AgentEnd {
    /// The name used in evidence and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::NoAction => "no_action",
            Self::Empty => "empty",
            Self::Refused => "refused",
            Self::Malformed => "malformed",
            Self::Looping => "looping",
            Self::TurnLimit => "turn_limit",
            Self::TokenLimit => "token_limit",
            Self::CostLimit => "cost_limit",
            Self::TimeLimit => "time_limit",
            Self::ContextOverflow => "context_overflow",
            Self::Gateway => "gateway",
            Self::Sandbox => "sandbox",
            Self::Interrupted => "interrupted",
        }
    }
}

impl fmt::Display for AgentEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Tokens as the gateway counted them, summed over the answers of an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenCounts {
    /// Tokens of the requests, cached ones included.
    pub input: u64,
    /// The part of `input` that came from a cache, as far as the gateway tells.
    pub cached_input: u64,
    /// Tokens of the answers, reasoning included.
    pub output: u64,
    /// The part of `output` that was reasoning, as far as the gateway tells.
    pub reasoning: u64,
}

impl TokenCounts {
    /// All tokens.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cached_input: self.cached_input.saturating_add(other.cached_input),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}

/// What the model cost, in US dollars, and how that is known. It is no part of the sandbox's cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "basis")]
pub enum Spend {
    /// The gateway said it in every answer.
    Measured {
        /// US dollars.
        usd: f64,
    },
    /// From the gateway's token counts and a dated price table.
    Estimated {
        /// US dollars.
        usd: f64,
        /// The table: its source and date.
        prices: String,
    },
    /// Not known, which is not zero.
    Unknown {
        /// Why.
        why: String,
    },
}

impl Spend {
    /// The amount in US dollars, if it is known.
    #[must_use]
    pub fn usd(&self) -> Option<f64> {
        match self {
            Self::Measured { usd } | Self::Estimated { usd, .. } => Some(*usd),
            Self::Unknown { .. } => None,
        }
    }
}

/// What a model did in one attempt. How long its commands took inside the sandbox is in the phase `solve`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentRecord {
    /// The model, as asked for.
    pub model: String,
    /// The model, as the gateway named it in its last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// The gateway's base URL, without credentials.
    pub gateway: String,
    /// How the work ended.
    pub end: AgentEnd,
    /// Answers of the model that were acted on.
    pub turns: u32,
    /// Tool calls, malformed ones included.
    pub tool_calls: u32,
    /// Requests sent to the gateway, repeated ones included.
    pub requests: u32,
    /// Requests that repeated one which had failed.
    pub repeated_requests: u32,
    /// Tokens; none if an answer came without counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenCounts>,
    /// What the model cost.
    pub spend: Spend,
    /// Time from sending requests to the end of their answers, in microseconds.
    pub model_us: u64,
    /// Time spent waiting before requests were repeated, in microseconds.
    pub waiting_us: u64,
    /// Time spent on tools, as the host sees it, in microseconds.
    pub tool_us: u64,
}

/// How the repetition of a recording went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayRecord {
    /// Digest of the recording file.
    pub recording: Digest,
    /// Steps recorded for the task.
    pub steps: u32,
    /// Steps that were repeated. Fewer than `steps` if the time limit passed.
    pub ran: u32,
    /// Outputs that could not be compared: streams that this backend does not keep apart, or that were cut short.
    pub not_compared: u32,
    /// Every difference from the recording, step by step; the first 100.
    pub divergences: Vec<Divergence>,
    /// Number of steps that differ.
    pub diverged: u32,
}

/// A difference between a step as recorded and as repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Divergence {
    /// Number of the step in the recording, from 1.
    pub step: u32,
    /// Number of the receipt of its repetition.
    pub receipt: u32,
    /// What differs: `exit_code`, `stdout` or `stderr`.
    pub of: String,
    /// As recorded: the code, or the digest of the stream.
    pub recorded: String,
    /// As seen now.
    pub seen: String,
}
