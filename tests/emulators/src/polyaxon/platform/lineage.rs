//! The lineage of runs: what is known of their artifacts.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::query::parameters;
use super::store::Store;
use crate::polyaxon::reply::{self, Reply, api};
use crate::polyaxon::world::World;

/// What an artifact can be, and what is said of it.
const KINDS: [&str; 10] = ["metric", "file", "dir", "html", "markdown", "text", "csv", "dataframe", "data", "artifact"];
const FIELDS: [&str; 7] = ["name", "kind", "path", "summary", "is_input", "state", "connection"];
/// Most characters of a name.
const NAME_LIMIT: usize = 128;

/// Enters artifacts, each in place of the one of its name.
pub(super) fn enter(world: &World, store: &Store, (line, uuid): (&str, &str), body: &Value) -> Reply {
    let Some(artifacts) = body["artifacts"].as_array() else {
        world.violation(line, "no artifacts");
        return reply::invalid("artifacts: this field is required");
    };
    for artifact in artifacts {
        if let Some(why) = wrong(artifact) {
            world.violation(line, &why);
            return reply::invalid(why);
        }
    }
    for artifact in artifacts {
        store.enter(uuid, artifact.clone());
    }
    reply::plain(StatusCode::CREATED, "")
}

fn wrong(artifact: &Value) -> Option<String> {
    let fields = artifact.as_object()?;
    if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        return Some(format!("unknown field {unknown:?}"));
    }
    let (name, kind) = (artifact["name"].as_str().unwrap_or_default(), artifact["kind"].as_str().unwrap_or_default());
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let legal = (1..=NAME_LIMIT).contains(&name.chars().count()) && name.chars().all(word);
    match legal {
        false => Some(format!("{name:?} cannot be the name of an artifact")),
        true if !KINDS.contains(&kind) => Some(format!("{kind:?} is no kind of artifact")),
        true => None,
    }
}

/// Those of a run; the query may ask for a name.
pub(super) fn list(store: &Store, uuid: &str, query: &str) -> Reply {
    let asked = parameters(query);
    let of = |name: &str| asked.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let name = of("query").and_then(|query| query.strip_prefix("name:"));
    let limit = of("limit").and_then(|limit| limit.parse().ok()).unwrap_or(100);
    let all = store.lineage(uuid);
    let found: Vec<&Value> = all.iter().filter(|one| name.is_none_or(|name| one["name"] == name)).collect();
    let page: Vec<&&Value> = found.iter().take(limit).collect();
    api(StatusCode::OK, &json!({ "count": found.len(), "next": null, "previous": null, "results": page }))
}
