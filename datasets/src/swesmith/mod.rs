//! SWE-smith rows: a repository with a bug put in by a patch, and the tests that notice.
//!
//! Sources: swesmith 0.0.9 (names, profiles), the published data sets (columns).

mod environment;
mod recipe;

use std::time::Duration;

use sandbox_bench_core::Requirement;
use serde_json::{Map, Value};

use crate::fingerprint::Parts;
use crate::patch;
use crate::problem::{Fault, excerpt};
use crate::row::Context;
use crate::task::{Family, NetworkPlan, Solution, SweSmith, Task, Timeouts, Users, Verifier};

/// Where the repository lies in the published images.
pub(crate) const WORKDIR: &str = "/testbed";

/// Limit of a test run. The official limit is 90 s on the authors' machines; sandboxes are slower.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// The official command for Python repositories; the activation is skipped where there is no conda.
const TEST_COMMAND: &str = "if [ -f /opt/miniconda3/bin/activate ]; then \
     . /opt/miniconda3/bin/activate && conda activate testbed; fi; \
     pytest --disable-warnings --color=no --tb=no --verbose";

/// The task in a row.
pub(crate) fn load(row: &Map<String, Value>, context: &Context<'_>) -> Result<Task, Fault> {
    let key = repository_key(context.id)?;
    let patch = text(row, "patch")?;
    if patch.trim().is_empty() {
        return Err(Fault::new("patch is missing or empty", "give the patch that introduces the bug"));
    }
    patch::files_touched(&patch).map_err(|error| {
        Fault::new(error.to_string(), "fetch the row again; only text changes inside the repository can be applied")
    })?;
    let fail_to_pass = tests(row, "FAIL_TO_PASS")?;
    let pass_to_pass = tests(row, "PASS_TO_PASS")?;
    if fail_to_pass.is_empty() {
        return Err(Fault::new("FAIL_TO_PASS is empty: nothing shows that the bug is fixed", "remove the row"));
    }
    let statement = text(row, "problem_statement")?;
    let image_name = text(row, "image_name")?;
    let found = environment::find(key, &image_name, context)?;

    let mut warnings = Vec::new();
    let mut requires = Vec::new();
    let instruction = if statement.trim().is_empty() {
        warnings.push("there is no problem statement: the instruction names the failing tests".to_owned());
        generic_instruction(&fail_to_pass)
    } else {
        statement.clone()
    };
    if pass_to_pass.is_empty() {
        warnings.push("PASS_TO_PASS is empty: what the fix breaks is not seen".to_owned());
    }
    let blanks = fail_to_pass.iter().chain(&pass_to_pass).filter(|test| test.contains(char::is_whitespace)).count();
    if blanks > 0 {
        warnings.push(format!("{blanks} test ids contain blanks, which the official parser never finds"));
    }
    if found.test_command.is_none() && !fail_to_pass.iter().any(|test| is_python(test)) {
        requires.push(Requirement::Other(format!(
            "a test command for {key} (only Python repositories have a known one; environment.toml can give it)"
        )));
    }
    let mut parts = Parts::default();
    for part in ["swe-smith-1", context.id, &patch, &statement, &image_name] {
        parts.text(part);
    }
    for list in [&fail_to_pass, &pass_to_pass] {
        parts.text(&list.len().to_string());
        list.iter().for_each(|test| parts.text(test));
    }
    Ok(Task {
        id: context.id.to_owned(),
        family: Family::SweSmith,
        digest: parts.0.finish(),
        instruction,
        metadata: metadata(row, key),
        environment: found.environment,
        default_workdir: WORKDIR.to_owned(),
        resources: found.resources,
        network: NetworkPlan::default(),
        timeouts: Timeouts { solve: None, verify: Some(found.timeout.unwrap_or(TEST_TIMEOUT)) },
        users: Users::default(),
        solution: Some(Solution::ReversePatch),
        verifier: Verifier::SweSmith(SweSmith {
            bug_patch: patch,
            fail_to_pass,
            pass_to_pass,
            test_command: found.test_command.unwrap_or_else(|| TEST_COMMAND.to_owned()),
        }),
        requires,
        warnings,
    })
}

/// `owner__repo.12345678` of `owner__repo.12345678.kind__hash`.
fn repository_key(id: &str) -> Result<&str, Fault> {
    id.rsplit_once('.')
        .map(|(key, _)| key)
        .filter(|key| key.contains("__") && key.contains('.') && !key.contains('/') && !key.starts_with('.'))
        .ok_or_else(|| {
            Fault::new(
                format!("the instance_id {} is not owner__repo.commit.kind", excerpt(id)),
                "correct it: image and environment are found by it",
            )
        })
}

fn text(row: &Map<String, Value>, key: &str) -> Result<String, Fault> {
    match row.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(Fault::new(format!("{key} is no text"), format!("make {key} a string"))),
    }
}

/// A list of test ids, also as JSON text.
pub(crate) fn tests(row: &Map<String, Value>, key: &str) -> Result<Vec<String>, Fault> {
    let wrong = || Fault::new(format!("{key} is no list of test ids"), format!("make {key} a list of strings"));
    let list = match row.get(key) {
        Some(Value::String(json)) => serde_json::from_str(json).map_err(|_| wrong())?,
        Some(other) => other.clone(),
        None => return Err(Fault::new(format!("{key} is missing"), "the row cannot be graded without it")),
    };
    serde_json::from_value(list).map_err(|_| wrong())
}

fn is_python(test: &str) -> bool {
    test.split("::").next().is_some_and(|file| file.ends_with(".py"))
}

fn generic_instruction(failing: &[String]) -> String {
    let shown: Vec<&str> = failing.iter().take(10).map(String::as_str).collect();
    let more = failing.len().saturating_sub(shown.len());
    let rest = if more > 0 { format!("\n(and {more} more)") } else { String::new() };
    format!(
        "The repository in {WORKDIR} has a bug: the tests below fail. Find the bug in the code and fix it, so that they \
         pass and all other tests go on passing. Do not change the tests.\n\n{}{rest}\n",
        shown.join("\n")
    )
}

fn metadata(row: &Map<String, Value>, key: &str) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("repository_key".to_owned(), key.into());
    for name in ["repo", "base_commit", "created_at"] {
        if let Some(value) = row.get(name) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    metadata
}
