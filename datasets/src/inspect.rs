//! One task in short, for people and machines.

use std::collections::BTreeMap;

use sandbox_bench_core::{Digest, NetworkPolicy, Requirement, Resources};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::dataset::{Dataset, TaskEntry};
use crate::problem::Problem;
use crate::task::{Family, ImageSpec, Solution, Task, Verifier};

/// What is known of a task. Times are seconds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Inspection {
    /// Its id.
    pub id: String,
    /// The file or directory that it is in.
    pub file: String,
    /// The form it was written in.
    pub family: Family,
    /// Digest of its content.
    pub digest: Digest,
    /// Fingerprint of its environment.
    pub environment: Digest,
    /// What it starts from, in words.
    pub image: String,
    /// Steps of the recipe, if there is a Dockerfile.
    pub recipe_steps: Option<usize>,
    /// Why the Dockerfile cannot be replayed without a builder.
    pub recipe_unsupported: Option<String>,
    /// Working directory as far as the task says it.
    pub workdir: String,
    /// Names of its environment variables.
    pub variables: Vec<String>,
    /// Resources asked for.
    pub resources: Resources,
    /// Network by phase: `baseline`, `solve`, `verify`.
    pub network: BTreeMap<String, NetworkPolicy>,
    /// Limit of the solver.
    pub solve_seconds: Option<f64>,
    /// Limit of the verifier.
    pub verify_seconds: Option<f64>,
    /// Users of solver and verifier, where it asks for them.
    pub users: BTreeMap<String, String>,
    /// Its gold solution, in words.
    pub solution: Option<String>,
    /// Its verifier, in words.
    pub verifier: String,
    /// What it needs that no field says.
    pub requires: Vec<String>,
    /// What the loader noticed.
    pub warnings: Vec<String>,
    /// What its author said.
    pub metadata: Map<String, Value>,
    /// The instruction.
    pub instruction: String,
}

/// Loads a task and describes it.
///
/// # Errors
/// What is wrong with the task.
pub fn inspect(dataset: &Dataset, entry: &TaskEntry) -> Result<Inspection, Problem> {
    let task = dataset.load(entry)?;
    let recipe = match &task.environment.image {
        ImageSpec::Dockerfile { recipe, .. } => Some(recipe),
        _ => None,
    };
    let network =
        [("baseline", &task.network.baseline), ("solve", &task.network.solve), ("verify", &task.network.verify)];
    let users = [("solver", &task.users.solver), ("verifier", &task.users.verifier)];
    Ok(Inspection {
        file: entry.file().display().to_string(),
        image: image(&task),
        recipe_steps: recipe.map(|recipe| recipe.steps.len()),
        recipe_unsupported: recipe.and_then(|recipe| recipe.unsupported.as_ref().map(ToString::to_string)),
        workdir: workdir(&task),
        variables: task.environment.env.keys().cloned().collect(),
        network: network.into_iter().map(|(phase, policy)| (phase.to_owned(), policy.clone())).collect(),
        solve_seconds: task.timeouts.solve.map(|limit| limit.as_secs_f64()),
        verify_seconds: task.timeouts.verify.map(|limit| limit.as_secs_f64()),
        users: users.into_iter().filter_map(|(who, user)| user.clone().map(|user| (who.to_owned(), user))).collect(),
        solution: task.solution.as_ref().map(|solution| match solution {
            Solution::Script { destination, entry, .. } => format!("{destination}/{entry}"),
            Solution::ReversePatch => "the reverse of the bug patch".to_owned(),
        }),
        verifier: verifier(&task.verifier),
        requires: task.requires.iter().map(requirement).collect(),
        id: task.id,
        family: task.family,
        digest: task.digest,
        environment: task.environment.fingerprint,
        resources: task.resources,
        warnings: task.warnings,
        metadata: task.metadata,
        instruction: task.instruction,
    })
}

fn image(task: &Task) -> String {
    match &task.environment.image {
        ImageSpec::Image(name) => name.clone(),
        ImageSpec::Dockerfile { manifest: Some(key), recipe, .. } => format!("manifest of {key} on {}", recipe.from),
        ImageSpec::Dockerfile { recipe, .. } => format!("Dockerfile from {}", recipe.from),
        ImageSpec::Base => "any base".to_owned(),
    }
}

fn workdir(task: &Task) -> String {
    let image = match &task.environment.image {
        ImageSpec::Dockerfile { recipe, .. } => recipe.workdir.clone(),
        _ => None,
    };
    task.environment.workdir.clone().or(image).unwrap_or_else(|| task.default_workdir.clone())
}

fn verifier(verifier: &Verifier) -> String {
    match verifier {
        Verifier::Harbor { script, .. } => format!("/tests/{script}, reward file"),
        Verifier::TerminalBench1 { .. } => "/tests/run-tests.sh, parsed output".to_owned(),
        Verifier::SweSmith(row) => format!(
            "{} tests to repair and {} to keep: {}",
            row.fail_to_pass.len(),
            row.pass_to_pass.len(),
            row.test_command
        ),
    }
}

fn requirement(requirement: &Requirement) -> String {
    match requirement {
        Requirement::Other(what) => what.clone(),
        other => format!("{other:?}"),
    }
}
