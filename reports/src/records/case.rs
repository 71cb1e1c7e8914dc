//! What a case came to, and why.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandbox_bench_core::evidence::{Attempt, Cleanup, Manifest, Variant};
use sandbox_bench_core::{Completion, Decision, Digest, SandboxRef, Stage, Tag, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One line of `cases.jsonl`: one attempt at one trial, from what was expected to what was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaseReport {
    /// Version of the evidence schemas.
    pub schema_version: String,
    /// The run.
    pub run: String,
    /// Its id, unique in the run.
    pub case: String,
    /// The backend.
    pub backend: String,
    /// How its sandbox had to come to be: a condition of `run`, a mode of `fixture`.
    pub condition: String,
    /// The data set, where there is one.
    pub dataset: Option<String>,
    /// The task.
    pub task: String,
    /// Replicate or repetition, from 1; 0 for one that only warms up.
    pub replicate: u32,
    /// Further dimensions of the plan.
    pub variant: Variant,
    /// The model that did the task, if one did.
    pub model: Option<String>,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// When it began.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// From its beginning to its end, clean-up included, in microseconds.
    pub total_us: u64,
    /// Its correlation tag.
    pub tag: Tag,
    /// The sandbox that it ran in, if it came to have one.
    pub sandbox: Option<SandboxRef>,
    /// Who compared expectation and observation.
    pub evaluator: Evaluator,
    /// How the command that did the work ended. It decides nothing.
    pub completion: Option<Completion>,
    /// What had to be observed for acceptance, by name. Empty if nothing was evaluated.
    pub expected: BTreeMap<String, Value>,
    /// What was observed, by name.
    pub observed: BTreeMap<String, Value>,
    /// The decision; none if it did not come to be evaluated.
    pub decision: Option<Decision>,
    /// The fact that decided, such as `reward`.
    pub decided_by: Option<String>,
    /// Facts that speak against the decision, in words.
    pub doubts: Vec<String>,
    /// Why it was not accepted.
    pub failure: Option<CaseFailure>,
    /// What became of the sandbox. It changes nothing of the decision.
    pub cleanup: Cleanup,
}

/// Who decided: what was run to look at the work, and the program that read its word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evaluator {
    /// `verifier` of the task, or `fixture`.
    pub name: String,
    /// Its revision: digests of what it is made of, by name.
    pub material: BTreeMap<String, Digest>,
    /// Version of sandbox-bench.
    pub version: String,
    /// Source revision of sandbox-bench, when it was built from a checkout.
    pub revision: Option<String>,
}

/// Why a case was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseFailure {
    /// The class.
    pub class: String,
    /// What happened, in words.
    pub message: String,
}

impl CaseReport {
    /// Of an attempt at a task.
    #[must_use]
    pub fn of(manifest: &Manifest, attempt: &Attempt) -> Self {
        let verdict = attempt.verdict.as_ref();
        let own = attempt.inputs.iter().filter(|input| input.stage == Stage::Verify);
        let mut material: BTreeMap<String, Digest> =
            own.map(|input| (input.name.clone(), input.digest.clone())).collect();
        material.insert("task".to_owned(), attempt.task_digest.clone());
        Self {
            schema_version: attempt.schema_version.clone(),
            run: attempt.run.clone(),
            case: attempt.tag.to_string(),
            backend: attempt.trial.backend.clone(),
            condition: attempt.trial.condition.to_string(),
            dataset: Some(attempt.trial.dataset.clone()),
            task: attempt.trial.task.clone(),
            replicate: attempt.trial.replicate,
            variant: attempt.trial.variant.clone(),
            model: attempt.trial.model.clone(),
            attempt: attempt.attempt,
            started_at: attempt.started_at,
            total_us: attempt.total_us,
            tag: attempt.tag.clone(),
            sandbox: attempt.sandbox.clone(),
            evaluator: Evaluator {
                name: "verifier".to_owned(),
                material,
                version: manifest.binary_version.clone(),
                revision: manifest.binary_revision.clone(),
            },
            completion: attempt.solver.clone(),
            expected: verdict.map(expected).unwrap_or_default(),
            observed: verdict.map(observed).unwrap_or_default(),
            decision: verdict.map(|verdict| verdict.decision),
            decided_by: verdict.map(|verdict| verdict.decided_by.clone()),
            doubts: verdict.map(|verdict| verdict.disagreements.clone()).unwrap_or_default(),
            failure: attempt.failure.as_ref().map(|failure| CaseFailure {
                class: failure.class.name().to_owned(),
                message: failure.message.clone(),
            }),
            cleanup: attempt.cleanup.clone(),
        }
    }
}

/// What the rule that decided asks for.
fn expected(verdict: &Verdict) -> BTreeMap<String, Value> {
    let rule: &[(&str, u64)] = match verdict.decided_by.as_str() {
        "reward" => &[("rewards_at_least", 1)],
        "tests" => &[("tests_failed", 0), ("tests_at_least", 1)],
        "exit_code" => &[("exit_code", 0)],
        _ => &[],
    };
    rule.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

fn observed(verdict: &Verdict) -> BTreeMap<String, Value> {
    let mut observed = BTreeMap::new();
    let mut add = |name: &str, value: Value| observed.insert(name.to_owned(), value);
    if !verdict.rewards.is_empty() {
        add("rewards", json!(verdict.rewards));
    }
    if let Some(code) = verdict.exit_code {
        add("exit_code", json!(code));
    }
    if let Some(tests) = &verdict.tests {
        add("tests", json!(tests.total()));
        add("tests_passed", json!(tests.passed));
        add("tests_failed", json!(tests.failed));
        add("tests_skipped", json!(tests.skipped));
    }
    observed
}
