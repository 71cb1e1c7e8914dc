//! What else than chance may explain a difference: everything in which two sides are not alike.

use std::collections::BTreeSet;

use sandbox_bench_core::BackendInfo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::side::{Side, TaskFacts, TaskKey};

/// One way in which the two sides differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// What differs: `image`, `adapter`, `host`, …
    pub what: String,
    /// What it is on side A.
    pub a: String,
    /// What it is on side B.
    pub b: String,
    /// Number of compared tasks that it concerns; none if it concerns all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
}

/// A task that only one side has, or that was changed between them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// The task's id.
    pub task: String,
    /// Why it is not compared.
    pub why: String,
}

/// The tasks that are compared, and those that are not.
pub(super) fn tasks<'a>(a: &'a Side, b: &'a Side) -> (Vec<&'a TaskKey>, Vec<LeftOut>) {
    let (mut both, mut left_out) = (Vec::new(), Vec::new());
    let keys: BTreeSet<&TaskKey> = a.tasks.keys().chain(b.tasks.keys()).collect();
    for key in keys {
        let has = |side: &Side| side.tasks.get(key).map(|facts| facts.trials().next().is_some());
        let changed = |side: &Side| side.tasks.keys().any(|other| other.id == key.id);
        let why = match (has(a), has(b)) {
            (Some(true), Some(true)) => {
                both.push(key);
                continue;
            }
            (Some(false), Some(false)) => "unavailable on both sides",
            (Some(false), _) => "unavailable in A",
            (_, Some(false)) => "unavailable in B",
            // Said once, of A's version.
            (None, _) if changed(a) => continue,
            (_, None) if changed(b) => "its content differs",
            (_, None) => "not in B",
            (None, _) => "not in A",
        };
        left_out.push(LeftOut { task: key.id.clone(), why: why.to_owned() });
    }
    (both, left_out)
}

/// Every difference between the two sides, over the tasks that are compared.
pub(super) fn differences(a: &Side, b: &Side, tasks: &[&TaskKey]) -> Vec<Difference> {
    let whole = facts(a).into_iter().zip(facts(b)).filter(|(a, b)| a != b);
    let mut found: Vec<Difference> =
        whole.map(|((what, a), (_, b))| Difference { what: what.to_owned(), a, b, tasks: None }).collect();
    for task in tasks {
        let (Some(a), Some(b)) = (a.tasks.get(*task), b.tasks.get(*task)) else { continue };
        for ((what, a), (_, b)) in task_facts(a).into_iter().zip(task_facts(b)).filter(|(a, b)| a != b) {
            match found.iter_mut().find(|difference| difference.what == what) {
                // The first task serves as the example.
                Some(difference) => difference.tasks = difference.tasks.map(|tasks| tasks + 1),
                None => found.push(Difference { what: what.to_owned(), a, b, tasks: Some(1) }),
            }
        }
    }
    found
}

/// What holds for a whole side.
fn facts(side: &Side) -> Vec<(&'static str, String)> {
    let manifest = &side.manifest;
    let host = manifest.host.as_ref();
    let host = host.map(|h| format!("{} {}, {} CPUs, {} MiB", h.os, h.kernel, h.cpus, h.memory_mb));
    let info = manifest.backends.iter().find(|info| info.name == side.cell.backend);
    let told = |get: fn(&BackendInfo) -> Option<String>| info.and_then(get).unwrap_or_else(|| "not told".to_owned());
    let revision = manifest.binary_revision.as_deref().unwrap_or_default();
    vec![
        ("backend", side.cell.backend.clone()),
        ("condition", side.cell.condition.to_string()),
        ("variant", side.cell.variant.to_string()),
        ("backend version", told(|info| info.backend_version.clone())),
        ("API version", told(|info| info.api_version.clone())),
        ("endpoint", told(|info| Some(info.endpoint.clone()))),
        ("region", told(|info| info.region.clone())),
        ("architecture", told(|info| Some(info.architecture.clone()))),
        ("program", format!("{} {revision}", manifest.binary_version).trim_end().to_owned()),
        ("host", host.unwrap_or_else(|| "not told".to_owned())),
        ("solver", manifest.solver.clone()),
        ("concurrency", manifest.plan.concurrency.to_string()),
        ("order", manifest.plan.order.clone()),
    ]
}

/// What holds for one task on a side.
fn task_facts(task: &TaskFacts) -> [(&'static str, String); 3] {
    let text = |facts: &BTreeSet<String>| facts.iter().cloned().collect::<Vec<String>>().join(", ");
    [("adapter", text(&task.adapters)), ("image", text(&task.environments)), ("resources", text(&task.resources))]
}
