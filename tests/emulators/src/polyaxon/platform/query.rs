//! Lists: filter, order, pages.

use serde_json::{Map, Value, json};

/// Fields that a list leaves out.
const LEFT_OUT: [&str; 7] = ["content", "raw_content", "owner", "project", "description", "live_state", "readme"];
/// Texts that can be asked for and sorted by.
const FIELDS: [&str; 11] = [
    "uuid",
    "name",
    "description",
    "status",
    "kind",
    "runtime",
    "managed_by",
    "pending",
    "created_at",
    "updated_at",
    "live_state",
];
const PARAMETERS: [&str; 7] = ["query", "sort", "limit", "offset", "no_page", "bookmarks", "mode"];

/// A page of `runs`, which come in the order of their creation.
pub(super) fn list(mut runs: Vec<Value>, query: &str) -> Result<Value, String> {
    let mut asked = Map::new();
    for (name, value) in parameters(query) {
        if !PARAMETERS.contains(&name.as_str()) {
            return Err(format!("unknown parameter {name:?}"));
        }
        asked.insert(name, json!(value));
    }
    let text = |name: &str| asked.get(name).and_then(Value::as_str).unwrap_or_default();
    let conditions: Vec<&str> = text("query").split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
    if !conditions.iter().any(|one| one.starts_with("live_state:")) {
        runs.retain(|run| run["live_state"] == 1);
    }
    for condition in conditions {
        let (field, wanted) = condition.split_once(':').ok_or_else(|| format!("no condition: {condition:?}"))?;
        if !FIELDS.contains(&field) && field != "tags" && !field.starts_with("meta_info.") {
            return Err(format!("unknown field {field:?}"));
        }
        runs.retain(|run| matches(run, field, wanted));
    }
    let sort = if text("sort").is_empty() { "-updated_at" } else { text("sort") };
    let key = sort.trim_start_matches('-');
    if !FIELDS.contains(&key) {
        return Err(format!("unknown sort key {key:?}"));
    }
    runs.sort_by_key(|run| shown(&run[key]));
    if sort.starts_with('-') {
        runs.reverse();
    }
    let number = |name: &str, default: usize| match text(name) {
        "" => Ok(default),
        digits => digits.parse().map_err(|_| format!("{name} is no number")),
    };
    let (limit, offset, count) = (number("limit", 100)?, number("offset", 0)?, runs.len());
    let page: Vec<Value> = runs.into_iter().skip(offset).take(limit).map(lean).collect();
    let next = (offset + page.len() < count).then_some("next");
    Ok(json!({ "count": count, "next": next, "previous": null, "results": page }))
}

fn lean(mut run: Value) -> Value {
    if let Some(fields) = run.as_object_mut() {
        fields.retain(|name, _| !LEFT_OUT.contains(&name.as_str()));
    }
    run
}

fn matches(run: &Value, field: &str, wanted: &str) -> bool {
    let (not, wanted) = wanted.strip_prefix('~').map_or((false, wanted), |rest| (true, rest));
    let mut any = wanted.split('|');
    let hit = any.any(|wanted| match field.strip_prefix("meta_info.") {
        Some(key) => shown(&run["meta_info"][key]) == wanted,
        None if field == "tags" => run["tags"].as_array().into_iter().flatten().any(|tag| tag == wanted),
        None => like(&shown(&run[field]), wanted),
    });
    hit != not
}

/// `%` at either end stands for anything.
fn like(text: &str, pattern: &str) -> bool {
    match (pattern.strip_prefix('%'), pattern.strip_suffix('%')) {
        (Some(rest), Some(_)) => text.contains(rest.trim_end_matches('%')),
        (Some(end), None) => text.ends_with(end),
        (None, Some(start)) => text.starts_with(start),
        (None, None) => text == pattern,
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The decoded pairs of a query.
pub(in crate::polyaxon) fn parameters(query: &str) -> Vec<(String, String)> {
    let url = reqwest::Url::parse(&format!("http://x/?{query}"));
    url.map(|url| url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(query: &str) -> Vec<String> {
        let run = |name: &str, live: i64| {
            json!({ "name": name, "live_state": live, "status": "running", "tags": [name, "all"], "content": "x",
                "created_at": name, "updated_at": name, "meta_info": { "correlation": name } })
        };
        let page = list(vec![run("a-1", 1), run("a-2", 1), run("old", 0)], query).unwrap();
        page["results"].as_array().unwrap().iter().map(|run| shown(&run["name"])).collect()
    }

    #[test]
    fn conditions_orders_and_pages_are_those_of_the_server() {
        assert_eq!(names(""), ["a-2", "a-1"], "the newest first, and nothing of the archive");
        assert_eq!(names("query=meta_info.correlation%3Aa-1"), ["a-1"]);
        assert_eq!(names("query=tags:all,name:a-2"), ["a-2"]);
        assert_eq!(names("query=name:a-%25&sort=created_at"), ["a-1", "a-2"]);
        assert_eq!(names("query=name:~a-1"), ["a-2"]);
        assert_eq!(names("query=live_state:0"), ["old"]);
        assert_eq!(names("sort=created_at&limit=1&offset=1"), ["a-2"]);
        assert!(list(Vec::new(), "query=nonsense:1").is_err() && list(Vec::new(), "page=1").is_err());
    }
}
