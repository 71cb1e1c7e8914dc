//! The API in memory: projects, runs and their statuses, as the open-source server 2.18.0 answers.

mod lineage;
mod query;
mod spec;
mod store;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Map, Value, json};

use super::reply::{self, Reply, api};
use super::world::{NAMESPACE, World};
use crate::faults::Flags;

pub(super) use self::query::parameters;
pub(super) use self::store::Store;

/// Most bytes of a request.
const BODY_LIMIT: usize = 16 << 20;
/// Fields of a request for a run, and of a change to one.
const CREATE: [&str; 9] =
    ["content", "name", "description", "tags", "meta_info", "managed_by", "is_managed", "pending", "schedule_at"];
const PATCH: [&str; 8] = ["name", "description", "tags", "inputs", "outputs", "meta_info", "readme", "merge"];

/// Answers a request to the API.
pub(super) async fn answer(world: &World, store: &Store, request: Request<Body>, flags: &Flags) -> Reply {
    let (head, body) = request.into_parts();
    let (method, path, query) =
        (head.method, head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
    let line = format!("{method} {path}");
    let body = match axum::body::to_bytes(body, BODY_LIMIT).await {
        Ok(bytes) if bytes.is_empty() => Value::Null,
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(body) => body,
            Err(error) => {
                world.violation(&line, format!("body is no JSON: {error}"));
                return api(StatusCode::BAD_REQUEST, &json!({ "detail": format!("JSON parse error - {error}") }));
            }
        },
        Err(_) => return reply::empty_405(),
    };
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let ["api", "v1", rest @ ..] = parts.as_slice() else { return nowhere(world, &line, &method) };
    match (method.as_str(), rest) {
        ("GET", ["installation"]) => {
            let key = "00000000000000000000000000000000";
            api(StatusCode::OK, &json!({ "key": key, "version": "2.18.0", "dist": "ce", "mode": "sandbox" }))
        }
        ("POST", [owner, "projects", "create"]) => create_project(store, owner, &body),
        ("GET", [_, "projects", "list"]) => {
            let projects = store.projects();
            api(
                StatusCode::OK,
                &json!({ "count": projects.len(), "next": null, "previous": null, "results": projects }),
            )
        }
        ("GET", [_, project]) => match store.projects().into_iter().find(|one| one["name"] == *project) {
            Some(found) => api(StatusCode::OK, &found),
            None => reply::missing("Project"),
        },
        (_, [_, project, "runs", ..]) if !store.has_project(project) => reply::missing("Project"),
        ("POST", [_, project, "runs"]) => create(world, store, (&line, project), &body, flags),
        ("GET", [_, project, "runs"]) => match query::list(store.all(project), &query) {
            Ok(page) => api(StatusCode::OK, &page),
            Err(why) => {
                world.violation(&line, &why);
                reply::invalid(format!("Error applying or resolving queryset, {why}"))
            }
        },
        ("POST", [_, _, "runs", uuid, "lineage", "artifacts"]) if store.run(uuid).is_some() => {
            lineage::enter(world, store, (&line, uuid), &body)
        }
        ("GET", [_, _, "runs", uuid, "lineage", "artifacts"]) if store.run(uuid).is_some() => {
            lineage::list(store, uuid, &query)
        }
        (_, [_, _, "runs", uuid, rest @ ..]) => {
            let hexadecimal = uuid.len() == 32 && uuid.bytes().all(|b| b.is_ascii_hexdigit());
            if !hexadecimal {
                return nowhere(world, &line, &method);
            }
            match store.run(uuid) {
                Some(run) => of_run(world, store, (&line, &method), (uuid, &run, rest), &body),
                None => reply::missing("Run"),
            }
        }
        _ => nowhere(world, &line, &method),
    }
}

/// A path that the server does not have.
fn nowhere(world: &World, line: &str, method: &Method) -> Reply {
    world.violation(line, "no such path");
    if method == Method::GET { reply::plain(StatusCode::NOT_FOUND, "") } else { reply::empty_405() }
}

fn create_project(store: &Store, owner: &str, body: &Value) -> Reply {
    let Some(name) = body["name"].as_str().filter(|name| !name.is_empty()) else {
        return api(StatusCode::BAD_REQUEST, &json!({ "name": ["This field is required."] }));
    };
    if store.has_project(name) {
        return api(StatusCode::BAD_REQUEST, &json!({ "name": ["project with this name already exists."] }));
    }
    api(StatusCode::CREATED, &store.add_project(owner, name))
}

/// Fields that the server does not know are ignored there; here they are mistakes of the client.
fn unknown(body: &Map<String, Value>, known: &[&str]) -> Option<String> {
    body.keys().find(|name| !known.contains(&name.as_str())).map(|name| format!("unknown field {name:?}"))
}

fn create(world: &World, store: &Store, (line, project): (&str, &str), body: &Value, flags: &Flags) -> Reply {
    let Some(fields) = body.as_object() else { return reply::invalid("the body is no object") };
    if let Some(why) = unknown(fields, &CREATE) {
        world.violation(line, why);
    }
    let managed = body["is_managed"] != false && body["managed_by"] != "user";
    let compiled = match (body["content"].as_str(), managed) {
        (None, true) => {
            world.violation(line, "no content");
            let why = json!({ "non_field_errors": ["Run expects a `content`."] });
            return api(StatusCode::BAD_REQUEST, &why);
        }
        (None, false) => None,
        (Some(text), _) => match spec::compile(text, body["name"].as_str()) {
            Ok(compiled) => Some(compiled),
            Err(why) => {
                world.violation(line, &why);
                return reply::invalid(why);
            }
        },
    };
    let held = flags.has("needs-approval") || compiled.as_ref().is_some_and(|compiled| compiled["isApproved"] == false);
    let pending = if held { json!("approval") } else { body["pending"].clone() };
    api(StatusCode::CREATED, &store.create(project, body, (compiled.as_ref(), managed, pending)))
}

fn of_run(
    world: &World,
    store: &Store,
    (line, method): (&str, &Method),
    (uuid, run, rest): (&str, &Value, &[&str]),
    body: &Value,
) -> Reply {
    let done = || api(StatusCode::OK, &json!({}));
    match (method.as_str(), rest) {
        ("GET", []) => api(StatusCode::OK, run),
        ("GET", ["statuses"]) => api(StatusCode::OK, &store.statuses(uuid)),
        ("GET", ["namespace"]) => api(StatusCode::OK, &json!({ "namespace": NAMESPACE })),
        ("PATCH", []) => {
            if let Some(why) = body.as_object().and_then(|fields| unknown(fields, &PATCH)) {
                world.violation(line, why);
            }
            store.patch(uuid, body);
            api(StatusCode::OK, &store.run(uuid).unwrap_or_default())
        }
        ("DELETE", []) => {
            store.set_live(uuid, -1);
            reply::plain(StatusCode::NO_CONTENT, "")
        }
        ("POST", ["statuses"]) => {
            let condition = &body["condition"];
            let text = |name: &str| condition[name].as_str().unwrap_or_default();
            if !store::STATUSES.contains(&text("type")) {
                return reply::empty_405();
            }
            store.report(uuid, (text("type"), text("reason"), text("message")));
            let nothing = json!({ "status": null, "status_conditions": null, "meta_info": null });
            api(StatusCode::CREATED, &nothing)
        }
        ("POST", ["stop"]) => {
            store.stop(uuid);
            done()
        }
        ("POST", ["approve"]) => {
            store.approve(uuid);
            done()
        }
        ("POST", ["skip"]) => {
            store.report(uuid, ("skipped", "StateManager", "Run is skipped; User requested to skip the run."));
            done()
        }
        ("POST", ["archive"]) => {
            store.set_live(uuid, 0);
            done()
        }
        ("POST", ["restore"]) => {
            store.set_live(uuid, 1);
            done()
        }
        _ => nowhere(world, line, method),
    }
}
