//! The transcript of an attempt in the Agent Trajectory Interchange Format (ATIF), version 1.7, as Harbor 0.26.0 reads and
//! writes it: one JSON document, `steps` numbered from 1, the results of an answer's tool calls in the same step. What the
//! format has no place for is in `extra`: the numbers of the receipts that belong to a result, times, and what the
//! arguments of a malformed call were.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::stream::{Answer, RawCall};
use super::tools;

/// Version of the format.
const VERSION: &str = "ATIF-v1.7";

/// A whole attempt.
#[derive(Debug, Clone, Serialize)]
pub struct Trajectory {
    schema_version: &'static str,
    session_id: String,
    trajectory_id: String,
    agent: Value,
    steps: Vec<Step>,
    #[serde(skip_serializing_if = "Option::is_none")]
    final_metrics: Option<Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    extra: Map<String, Value>,
}

#[derive(Debug, Clone, Serialize)]
struct Step {
    step_id: u32,
    timestamp: String,
    source: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_name: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observation: Option<Observation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    llm_call_count: Option<u32>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    extra: Map<String, Value>,
}

#[derive(Debug, Clone, Default, Serialize)]
struct Observation {
    results: Vec<Value>,
}

impl Trajectory {
    /// An empty one, of the attempt `tag` in `run`, done by `model`.
    #[must_use]
    pub fn new(run: &str, tag: &str, model: &str) -> Self {
        Self {
            schema_version: VERSION,
            session_id: run.to_owned(),
            trajectory_id: tag.to_owned(),
            agent: json!({
                "name": "sandbox-bench",
                "version": env!("CARGO_PKG_VERSION"),
                "model_name": model,
                "tool_definitions": tools::definitions(),
            }),
            steps: Vec::new(),
            final_metrics: None,
            extra: Map::new(),
        }
    }

    fn push(&mut self, source: &'static str, message: &str) -> &mut Step {
        let step_id = u32::try_from(self.steps.len() + 1).unwrap_or(u32::MAX);
        self.steps.push(Step {
            step_id,
            timestamp: Timestamp::now().to_string(),
            source,
            message: message.to_owned(),
            model_name: None,
            reasoning_content: String::new(),
            tool_calls: Vec::new(),
            observation: None,
            metrics: None,
            llm_call_count: None,
            extra: Map::new(),
        });
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    /// The harness or the user says something.
    pub fn say(&mut self, source: &'static str, message: &str) {
        self.push(source, message);
    }

    /// The model answered, after `model_us` microseconds.
    pub fn answer(&mut self, answer: &Answer, model_us: u64) {
        let said = if answer.content.is_empty() { &answer.refusal } else { &answer.content };
        let calls = answer.calls.iter().map(tool_call).collect();
        let step = self.push("agent", said);
        step.model_name.clone_from(&answer.model);
        step.reasoning_content.clone_from(&answer.reasoning);
        step.tool_calls = calls;
        step.llm_call_count = Some(1);
        step.extra.insert("model_us".into(), model_us.into());
        if let Some(finish) = &answer.finish {
            step.extra.insert("finish_reason".into(), finish.as_str().into());
        }
        let mut metrics = Map::new();
        if let Some(tokens) = &answer.tokens {
            metrics.insert("prompt_tokens".into(), tokens.input.into());
            metrics.insert("completion_tokens".into(), tokens.output.into());
            metrics.insert("cached_tokens".into(), tokens.cached_input.into());
        }
        if let Some(usd) = answer.usd {
            metrics.insert("cost_usd".into(), usd.into());
        }
        step.metrics = (!metrics.is_empty()).then_some(Value::Object(metrics));
    }

    /// A call of the last answer came to `content`, by the operations with these `receipts`.
    pub fn result(&mut self, call: &RawCall, content: &str, receipts: &[u32]) {
        let Some(step) = self.steps.last_mut() else { return };
        let mut result = json!({ "source_call_id": call.id, "content": content });
        if !receipts.is_empty() {
            result["extra"] = json!({ "receipts": receipts });
        }
        step.observation.get_or_insert_default().results.push(result);
    }

    /// Ends it.
    pub fn end(&mut self, record: &sandbox_bench_core::AgentRecord, message: Option<&str>) {
        let mut totals = Map::new();
        if let Some(tokens) = &record.tokens {
            totals.insert("total_prompt_tokens".into(), tokens.input.into());
            totals.insert("total_completion_tokens".into(), tokens.output.into());
            totals.insert("total_cached_tokens".into(), tokens.cached_input.into());
        }
        if let Some(usd) = record.spend.usd() {
            totals.insert("total_cost_usd".into(), usd.into());
        }
        totals.insert("total_steps".into(), self.steps.len().into());
        self.final_metrics = Some(Value::Object(totals));
        self.extra.insert("end".into(), record.end.name().into());
        if let Some(message) = message {
            self.extra.insert("error".into(), message.into());
        }
    }
}

fn tool_call(call: &RawCall) -> Value {
    let mut value = json!({ "tool_call_id": call.id, "function_name": call.name });
    match tools::arguments(call) {
        Ok(arguments) => value["arguments"] = Value::Object(arguments),
        Err(_) => {
            value["arguments"] = json!({});
            value["extra"] = json!({ "malformed_arguments": call.arguments });
        }
    }
    value
}
