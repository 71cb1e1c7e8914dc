//! The columns of `trials.parquet` and of CSV: the fields of a row that people ask for, flat. A missing value is null.
//! Durations are microseconds, names and words are those of the JSON evidence.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::{DataType, Field, TimeUnit};
use jiff::Timestamp;
use sandbox_bench_core::Phase;
use sandbox_bench_core::evidence::{Attempt, Cleanup, EnvironmentRecord, Failure};
use sandbox_bench_core::{ConditionProof, Observation, SandboxRef, TestCounts, Verdict};
use serde::Serialize;

use super::TrialRow;

/// One column: its name, and how its value is read from a row.
pub(super) struct Column {
    name: String,
    value: Value,
}

type Get<T> = Box<dyn Fn(&TrialRow) -> Option<T>>;

/// The type of a column.
enum Value {
    Text(Get<String>),
    Count(Get<u64>),
    Integer(Get<i64>),
    Number(Get<f64>),
    Flag(Get<bool>),
    /// Microseconds since the epoch, UTC.
    Instant(Get<i64>),
}

impl Column {
    /// The column in the schema.
    pub(super) fn field(&self) -> Field {
        let kind = match self.value {
            Value::Text(_) => DataType::Utf8,
            Value::Count(_) => DataType::UInt64,
            Value::Integer(_) => DataType::Int64,
            Value::Number(_) => DataType::Float64,
            Value::Flag(_) => DataType::Boolean,
            Value::Instant(_) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        };
        Field::new(&self.name, kind, true)
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its value as text; empty if there is none. Instants are RFC 3339.
    pub(super) fn text(&self, row: &TrialRow) -> String {
        let words = match &self.value {
            Value::Text(get) => get(row),
            Value::Count(get) => get(row).map(|value| value.to_string()),
            Value::Integer(get) => get(row).map(|value| value.to_string()),
            Value::Number(get) => get(row).map(|value| value.to_string()),
            Value::Flag(get) => get(row).map(|value| value.to_string()),
            Value::Instant(get) => {
                get(row).and_then(|us| Timestamp::from_microsecond(us).ok()).map(|at| at.to_string())
            }
        };
        words.unwrap_or_default()
    }

    /// The column's values for these rows.
    pub(super) fn array(&self, rows: &[TrialRow]) -> ArrayRef {
        match &self.value {
            Value::Text(get) => Arc::new(rows.iter().map(get).collect::<StringArray>()),
            Value::Count(get) => Arc::new(rows.iter().map(get).collect::<UInt64Array>()),
            Value::Integer(get) => Arc::new(rows.iter().map(get).collect::<Int64Array>()),
            Value::Number(get) => Arc::new(rows.iter().map(get).collect::<Float64Array>()),
            Value::Flag(get) => Arc::new(rows.iter().map(get).collect::<BooleanArray>()),
            Value::Instant(get) => {
                Arc::new(rows.iter().map(get).collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
            }
        }
    }
}

/// All columns, in their order.
pub(super) fn all() -> Vec<Column> {
    let mut columns = vec![
        text("run", |a| Some(a.run.clone())),
        text("backend", |a| Some(a.trial.backend.clone())),
        text("condition", |a| Some(a.trial.condition.name().to_owned())),
        text("dataset", |a| Some(a.trial.dataset.clone())),
        text("task", |a| Some(a.trial.task.clone())),
        count("replicate", |a| Some(a.trial.replicate.into())),
        text("model", |a| a.trial.model.clone()),
        text("profile", |a| a.trial.variant.profile.clone()),
        count("input_bytes", |a| a.trial.variant.input_bytes),
        count("concurrency", |a| a.trial.variant.concurrency.map(u64::from)),
        count("attempt", |a| Some(a.attempt.into())),
        flag("last", |a| Some(a.last)),
        text("tag", |a| Some(a.tag.to_string())),
        text("adapter_version", |a| Some(a.adapter_version.clone())),
        text("task_digest", |a| Some(a.task_digest.to_string())),
        column("started_at", Value::Instant(Box::new(|row| Some(row.attempt.started_at.as_microsecond())))),
        text("sandbox_id", |a| sandbox(a).map(|s| s.id.clone())),
        flag("accepted", |a| Some(a.accepted())),
        text("decision", |a| verdict(a).and_then(|v| word(&v.decision))),
        text("decided_by", |a| verdict(a).map(|v| v.decided_by.clone())),
        count("tests_passed", |a| tests(a).map(|t| t.passed)),
        count("tests_failed", |a| tests(a).map(|t| t.failed)),
        count("tests_skipped", |a| tests(a).map(|t| t.skipped)),
        text("failure_class", |a| failure(a).map(|f| f.class.name().to_owned())),
        text("failure_phase", |a| failure(a).map(|f| f.phase.name().to_owned())),
        text("failure_message", |a| failure(a).map(|f| f.message.clone())),
        text("error_kind", |a| failure(a).and_then(|f| f.error_kind.clone())),
        text("cleanup", |a| word(&a.cleanup)),
        text("cleanup_why", |a| match &a.cleanup {
            Cleanup::Unconfirmed { why } => Some(why.clone()),
            _ => None,
        }),
        text("proof", |a| a.proof.as_ref().and_then(word)),
        text("proof_why", |a| a.proof.as_ref().map(why)),
        text("environment_way", |a| environment(a).and_then(|e| word(&e.way))),
        text("environment_fingerprint", |a| environment(a).map(|e| e.fingerprint.to_string())),
        text("environment_asked", |a| environment(a).map(|e| e.asked.clone())),
        text("environment_resolved", |a| environment(a).map(|e| e.resolved.clone())),
        text("environment_cache", |a| environment(a).and_then(|e| e.cache.as_ref()).and_then(word)),
        count("total_us", |a| Some(a.total_us)),
    ];
    columns.extend(Phase::ALL.map(|phase| count(&format!("{phase}_us"), move |a| a.phase_us(phase))));
    columns.extend([
        count("resolution_us", |a| a.resolution_us),
        text("solver_completion", |a| a.solver.as_ref().and_then(word)),
        integer("solver_exit_code", |a| a.solver.as_ref()?.exit_code().map(i64::from)),
        text("agent_end", |a| Some(a.agent.as_ref()?.end.name().to_owned())),
        count("agent_turns", |a| Some(a.agent.as_ref()?.turns.into())),
        count("input_tokens", |a| Some(a.agent.as_ref()?.tokens?.input)),
        count("cached_input_tokens", |a| Some(a.agent.as_ref()?.tokens?.cached_input)),
        count("output_tokens", |a| Some(a.agent.as_ref()?.tokens?.output)),
        number("model_usd", |a| a.agent.as_ref()?.spend.usd()),
        text("model_usd_basis", |a| word(&a.agent.as_ref()?.spend)),
        count("model_us", |a| Some(a.agent.as_ref()?.model_us)),
        count("model_waiting_us", |a| Some(a.agent.as_ref()?.waiting_us)),
        count("tool_us", |a| Some(a.agent.as_ref()?.tool_us)),
        count("replayed_steps", |a| Some(a.replay.as_ref()?.ran.into())),
        count("diverged_steps", |a| Some(a.replay.as_ref()?.diverged.into())),
        text("verifier_completion", |a| a.verifier.as_ref().and_then(word)),
        integer("verifier_exit_code", |a| a.verifier.as_ref()?.exit_code().map(i64::from)),
        count("api_calls", |a| Some(a.meter.api_calls)),
        count("bytes_up", |a| Some(a.meter.bytes_up)),
        count("bytes_down", |a| Some(a.meter.bytes_down)),
        count("retried_operations", |a| Some(a.meter.retries)),
        number("requested_cpus", |a| a.requested.cpus),
        count("requested_memory_mb", |a| a.requested.memory_mb),
        text("network", |a| word(&a.network)),
        number("granted_cpus", |a| observation(a).and_then(|o| o.granted.cpus)),
        count("granted_memory_mb", |a| observation(a).and_then(|o| o.granted.memory_mb)),
        count("cpu_us", |a| observation(a).and_then(|o| o.cpu_us)),
        count("peak_memory_bytes", |a| observation(a).and_then(|o| o.peak_memory_bytes)),
        count("warnings", |a| Some(a.warnings.len() as u64)),
        column("cost_usd", Value::Number(Box::new(|row| row.cost.as_ref()?.usd()))),
        column("cost_basis", Value::Text(Box::new(|row| word(row.cost.as_ref()?)))),
    ]);
    columns
}

fn column(name: &str, value: Value) -> Column {
    Column { name: name.to_owned(), value }
}

fn text(name: &str, get: impl Fn(&Attempt) -> Option<String> + 'static) -> Column {
    column(name, Value::Text(Box::new(move |row| get(&row.attempt))))
}

fn count(name: &str, get: impl Fn(&Attempt) -> Option<u64> + 'static) -> Column {
    column(name, Value::Count(Box::new(move |row| get(&row.attempt))))
}

fn integer(name: &str, get: impl Fn(&Attempt) -> Option<i64> + 'static) -> Column {
    column(name, Value::Integer(Box::new(move |row| get(&row.attempt))))
}

fn number(name: &str, get: impl Fn(&Attempt) -> Option<f64> + 'static) -> Column {
    column(name, Value::Number(Box::new(move |row| get(&row.attempt))))
}

fn flag(name: &str, get: impl Fn(&Attempt) -> Option<bool> + 'static) -> Column {
    column(name, Value::Flag(Box::new(move |row| get(&row.attempt))))
}

fn sandbox(attempt: &Attempt) -> Option<&SandboxRef> {
    attempt.sandbox.as_ref()
}

fn verdict(attempt: &Attempt) -> Option<&Verdict> {
    attempt.verdict.as_ref()
}

fn tests(attempt: &Attempt) -> Option<&TestCounts> {
    verdict(attempt)?.tests.as_ref()
}

fn failure(attempt: &Attempt) -> Option<&Failure> {
    attempt.failure.as_ref()
}

fn environment(attempt: &Attempt) -> Option<&EnvironmentRecord> {
    attempt.environment.as_ref()
}

fn observation(attempt: &Attempt) -> Option<&Observation> {
    attempt.observation.as_ref()
}

fn why(proof: &ConditionProof) -> String {
    match proof {
        ConditionProof::Proven { why } | ConditionProof::Unproven { why } | ConditionProof::Violated { why } => {
            why.clone()
        }
    }
}

/// The word that stands for a value in the JSON evidence: itself, or the tag that tells its variants apart.
fn word(value: &impl Serialize) -> Option<String> {
    let json = serde_json::to_value(value).ok()?;
    let word =
        json.as_str().or_else(|| ["state", "kind", "mode", "basis"].iter().find_map(|tag| json.get(tag)?.as_str()))?;
    Some(word.to_owned())
}
