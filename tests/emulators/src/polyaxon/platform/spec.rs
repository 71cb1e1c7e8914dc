//! Specifications: what the server takes, and what it compiles them to. The subset that sandboxes need; strict.

use serde_json::{Map, Value, json};

/// A mapping.
type Fields = Map<String, Value>;

const OPERATION: [&str; 19] = [
    "version",
    "kind",
    "name",
    "description",
    "tags",
    "presets",
    "queue",
    "namespace",
    "cache",
    "termination",
    "plugins",
    "isApproved",
    "cost",
    "component",
    "params",
    "runPatch",
    "container",
    "resources",
    "ports",
];
const COMPONENT: [&str; 14] = [
    "version",
    "kind",
    "name",
    "description",
    "tags",
    "presets",
    "queue",
    "namespace",
    "cache",
    "termination",
    "plugins",
    "isApproved",
    "inputs",
    "run",
];
const SERVICE: [&str; 11] = [
    "kind",
    "environment",
    "connections",
    "volumes",
    "init",
    "sidecars",
    "container",
    "ports",
    "rewritePath",
    "isExternal",
    "replicas",
];
const CONTAINER: [&str; 12] = [
    "name",
    "image",
    "imagePullPolicy",
    "command",
    "args",
    "workingDir",
    "env",
    "resources",
    "volumeMounts",
    "securityContext",
    "lifecycle",
    "stdin",
];

/// The compiled operation of a specification, JSON or YAML.
pub(super) fn compile(text: &str, name: Option<&str>) -> Result<Value, String> {
    let value: Value =
        serde_saphyr::from_str(text).map_err(|error| format!("Received non valid specification: {error}"))?;
    let Value::Object(outer) = value else { return Err("the specification is no mapping".into()) };
    let (operation, component) = match outer.get("kind").and_then(Value::as_str) {
        Some("component") => (Map::new(), outer),
        Some("operation") | None => match outer.get("component").cloned() {
            Some(Value::Object(component)) => (outer, component),
            Some(_) => return Err("1 validation error for V1Operation\ncomponent".into()),
            None => short_form(outer)?,
        },
        Some(kind) => return Err(format!("Specification with kind `{kind}` is not supported")),
    };
    known("V1Operation", &operation, &OPERATION)?;
    known("V1Component", &component, &COMPONENT)?;
    let run = component.get("run").and_then(Value::as_object).ok_or("1 validation error for V1Component\nrun")?;
    let kind = run.get("kind").and_then(Value::as_str).unwrap_or_default();
    if kind == "service" {
        known("V1Service", run, &SERVICE)?;
    } else if kind != "job" {
        return Err(format!("1 validation error for V1Component\nrun.kind: {kind}"));
    }
    let container = run.get("container").and_then(Value::as_object).cloned().unwrap_or_default();
    known("V1Container", &container, &CONTAINER)?;
    let both = |field: &str| {
        let mut merged = component.get(field).and_then(Value::as_object).cloned().unwrap_or_default();
        merged.extend(operation.get(field).and_then(Value::as_object).cloned().unwrap_or_default());
        Value::Object(merged)
    };
    let plugins = both("plugins");
    if plugins["sandbox"] == true && kind != "service" {
        return Err("plugins.sandbox is only supported for services".into());
    }
    if plugins["sandbox"] == true && container.contains_key("args") && !container.contains_key("command") {
        return Err("A sandbox container with args requires a command".into());
    }
    let approved = operation.get("isApproved").or(component.get("isApproved")).cloned();
    let name = name.map(Value::from).or(operation.get("name").cloned()).or(component.get("name").cloned());
    Ok(json!({ "version": 1.1, "kind": "compiled_operation", "name": name, "plugins": plugins,
        "isApproved": approved.unwrap_or(json!(true)), "termination": both("termination"), "run": run }))
}

/// `{plugins, ports, container, resources}`, as `SandboxClient.create(image=…)` sends it.
fn short_form(mut outer: Fields) -> Result<(Fields, Fields), String> {
    let mut container = match outer.remove("container") {
        Some(Value::Object(container)) => container,
        None => Map::new(),
        Some(_) => return Err("1 validation error for V1Operation\ncontainer".into()),
    };
    let mut bounds = json!({ "requests": {}, "limits": {} });
    for (name, range) in outer.remove("resources").as_ref().and_then(Value::as_object).into_iter().flatten() {
        let range = range.as_str().map_or_else(|| range.to_string(), str::to_owned);
        let (request, limit) = range.split_once("..").unwrap_or((&range, &range));
        bounds["requests"][name] = json!(request);
        bounds["limits"][name] = json!(limit);
    }
    container.insert("resources".into(), bounds);
    let ports = outer.remove("ports").unwrap_or(json!([]));
    let run = json!({ "kind": "service", "ports": ports, "container": container });
    Ok((outer, Map::from_iter([("run".into(), run)])))
}

fn known(what: &str, map: &Map<String, Value>, names: &[&str]) -> Result<(), String> {
    match map.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(format!("1 validation error for {what}\n{name}\n  Extra inputs are not permitted")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn operations_components_and_the_short_form_compile() {
        let operation = r#"{"kind":"operation","isApproved":false,"termination":{"timeout":9},
            "component":{"kind":"component","plugins":{"sandbox":true},"run":{"kind":"service","container":{"image":"i"}}}}"#;
        let compiled = compile(operation, Some("n")).unwrap();
        assert_eq!((&compiled["name"], &compiled["isApproved"]), (&json!("n"), &json!(false)));
        assert_eq!(compiled["termination"]["timeout"], 9);
        assert_eq!(compiled["run"]["container"]["image"], "i");
        let component = "kind: component\nplugins: {sandbox: true}\nrun:\n  kind: service\n  container: {image: i}\n";
        assert_eq!(compile(component, None).unwrap()["plugins"]["sandbox"], true);
        let short = r#"{"plugins":{"sandbox":true},"ports":[],"container":{"image":"i"},"resources":{"cpu":"1..2"}}"#;
        assert_eq!(compile(short, None).unwrap()["run"]["container"]["resources"]["limits"]["cpu"], "2");
    }

    #[test]
    fn mistakes_are_refused() {
        for bad in [
            "a: [",
            "[]",
            "kind: component",
            "{kind: component, run: {kind: job}, plugins: {sandbox: true}}",
            "{kind: component, run: {kind: service, containers: {}}}",
            "{kind: operation, component: {run: {kind: service}}, isAproved: true}",
            "{kind: other}",
        ] {
            assert!(compile(bad, None).is_err(), "{bad}");
        }
    }
}
