//! Runs behaviours and sees to it that nothing stays behind.

use std::sync::Arc;

use sandbox_bench_core::{Call, Destruction, TagQuery};

use crate::adapter::Adapter;
use crate::check::{Check, Stop};
use crate::cli::{Case, run_cases};
use crate::harness::Harness;
use crate::table::{BEHAVIOURS, Behaviour};

/// How a behaviour came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The promise holds.
    Ok,
    /// It cannot be tested here, and why.
    Skipped(String),
    /// It is broken, and how.
    Failed(String),
}

/// The `main` of a test target: runs all behaviours against one adapter, or those that the arguments select.
///
/// Returns the exit code: 0 if nothing failed.
#[must_use]
pub fn run_adapter(adapter: Arc<dyn Adapter>) -> std::process::ExitCode {
    let case = |behaviour: &'static Behaviour| {
        let adapter = adapter.clone();
        Case::new(behaviour.name, behaviour.promise, move || async move { run_behaviour(behaviour, adapter).await })
    };
    run_cases(BEHAVIOURS.iter().map(case).collect())
}

/// Runs one behaviour against one adapter, then ends all that it made.
pub async fn run_behaviour(behaviour: &'static Behaviour, adapter: Arc<dyn Adapter>) -> Outcome {
    if let Some((_, why)) = adapter.not_shown().iter().find(|(name, _)| *name == behaviour.name) {
        return Outcome::Skipped((*why).to_owned());
    }
    let harness = match Harness::new(adapter).await {
        Ok(harness) => Arc::new(harness),
        Err(stop) => return outcome(Err(stop)),
    };
    if let Some(reason) = (behaviour.unavailable)(harness.can()) {
        return Outcome::Skipped(reason.to_owned());
    }
    // A task of its own, so that a panic in a behaviour is one failure and not the end of the suite.
    let task = tokio::spawn((behaviour.run)(harness.clone()));
    let abort = task.abort_handle();
    let result = match tokio::time::timeout(harness.pace.behaviour, task).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(Stop::Failed(format!("the behaviour itself broke: {panic}"))),
        Err(_) => Err(Stop::Failed(format!("it did not end within {:?}", harness.pace.behaviour))),
    };
    abort.abort();
    let cleaned = clean(&harness).await;
    match (outcome(result), cleaned) {
        (Outcome::Failed(why), Err(Stop::Failed(also))) => Outcome::Failed(format!("{why}\n{also}")),
        (Outcome::Failed(why), _) => Outcome::Failed(why),
        (_, Err(Stop::Failed(why))) => Outcome::Failed(why),
        (outcome, _) => outcome,
    }
}

fn outcome(result: Check) -> Outcome {
    match result {
        Ok(()) => Outcome::Ok,
        Err(Stop::Skipped(reason)) => Outcome::Skipped(reason),
        Err(Stop::Failed(why)) => Outcome::Failed(why),
    }
}

/// Destroys every sandbox and artifact of the run. Fails if that is not confirmed or something can still be found.
async fn clean(harness: &Harness) -> Check {
    let call: Call = harness.call();
    let query = TagQuery::Run(harness.run.clone());
    let mut left = Vec::new();
    for found in harness.backend.find(&call, &query).await? {
        match harness.backend.destroy(&call, &found.reference).await? {
            Destruction::Confirmed => {}
            Destruction::Unconfirmed { why } => left.push(format!("sandbox {}: {why}", found.reference.id)),
        }
    }
    left.extend(harness.found(query.clone()).await?.into_iter().map(|id| format!("sandbox {id}")));
    if harness.can().snapshot || harness.can().build_artifact {
        for artifact in harness.backend.artifacts(&call, &query).await? {
            if let Destruction::Unconfirmed { why } = harness.backend.delete_artifact(&call, &artifact.id).await? {
                left.push(format!("artifact {}: {why}", artifact.id));
            }
        }
        let artifacts = harness.backend.artifacts(&call, &query).await?;
        left.extend(artifacts.into_iter().map(|artifact| format!("artifact {}", artifact.id)));
    }
    harness.forget_environments().await;
    left.extend(harness.residue().await);
    crate::ensure!(left.is_empty(), "left behind after everything was destroyed: {}", left.join(", "));
    Ok(())
}
