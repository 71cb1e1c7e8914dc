//! What a sandbox is to Polyaxon: an operation around a service component with `plugins.sandbox: true`.
//!
//! The whole operation is sent, as the official client does for a component file: the short forms of newer servers are
//! unknown to older ones. Variables and the working directory are not part of it: the platform would resolve `{{ … }}`
//! and
//! `$( … )` in them. Each command gets them.

use std::path::Path;

use sandbox_bench_core::{Error, NetworkPolicy, Resources, Result, SandboxSpec, Source};
use serde_json::{Map, Value, json};

use crate::config::PolyaxonConfig;

/// Version of the specification's form.
const VERSION: f64 = 1.1;
/// Most bytes of a component file.
const FILE_LIMIT: u64 = 1 << 20;
/// The container port of the sandbox's daemon.
const DAEMON_PORT: u64 = 9090;

/// The operation that a sandbox of `spec` is asked for with, as readable JSON.
///
/// # Errors
/// `InvalidRequest`, `Unsupported` or `NotFound` for what no service can be.
pub fn component(config: &PolyaxonConfig, spec: &SandboxSpec) -> Result<String> {
    let template = Template::new(config)?;
    let content = template.fill(spec, image(&template, config, &spec.source)?)?;
    let operation: Value = serde_json::from_str(&content).map_err(|e| Error::invalid("component").because(e))?;
    Ok(format!("{operation:#}\n"))
}

/// An operation without what each sandbox asks for.
#[derive(Debug, Clone)]
pub(crate) struct Template(Map<String, Value>);

impl Template {
    /// The user's component or operation, or our own.
    ///
    /// # Errors
    /// `InvalidRequest` if the file cannot be read or is no service with a sandbox.
    pub(crate) fn new(config: &PolyaxonConfig) -> Result<Self> {
        let mut operation = match &config.component {
            Some(path) => operation(path)?,
            None => plain(),
        };
        operation.insert("isApproved".into(), json!(true));
        if let Some(queue) = &config.queue {
            operation.insert("queue".into(), json!(queue));
        }
        if !config.presets.is_empty() {
            operation.insert("presets".into(), json!(config.presets));
        }
        Ok(Self(operation))
    }

    /// The image that the component itself names.
    pub(crate) fn image(&self) -> Option<&str> {
        self.0.get("component")?.get("run")?.get("container")?.get("image")?.as_str()
    }

    /// The operation that fulfils `spec`, started from `image`, as JSON text.
    ///
    /// # Errors
    /// `InvalidRequest` or `Unsupported` for what no service can be.
    pub(crate) fn fill(&self, spec: &SandboxSpec, image: &str) -> Result<String> {
        match &spec.network {
            NetworkPolicy::Public => {}
            _ => return Err(Error::unsupported("the polyaxon backend cannot restrict a sandbox's network")),
        }
        let mut operation = self.0.clone();
        operation.insert("name".into(), json!(spec.tag.as_str()));
        table(&mut operation, "termination").insert("timeout".into(), json!(spec.lifetime.as_secs().max(1)));
        let container = ["component", "run", "container"].into_iter().fold(&mut operation, table);
        container.insert("image".into(), json!(image));
        limit(container, &spec.resources)?;
        Ok(Value::Object(operation).to_string())
    }
}

/// The image to start from.
///
/// # Errors
/// `Unsupported`, `NotFound`.
pub(crate) fn image<'a>(template: &'a Template, config: &'a PolyaxonConfig, source: &'a Source) -> Result<&'a str> {
    match source {
        Source::Image(image) if image.is_empty() => Err(Error::invalid("an image needs a name")),
        Source::Image(image) => Ok(image),
        Source::Base => Ok(template.image().unwrap_or(&config.base_image)),
        Source::Artifact(image) if config.prepulled.contains_key(image) => Ok(image),
        Source::Artifact(image) => Err(crate::backend::no_artifact(image)),
        Source::Dockerfile { .. } => Err(Error::unsupported("the polyaxon backend cannot build a Dockerfile")),
    }
}

/// The table of this name, which is made if it is none.
fn table<'a>(parent: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let held = parent.entry(name).or_insert(Value::Null);
    if !held.is_object() {
        *held = json!({});
    }
    held.as_object_mut().expect("made a table just above")
}

/// Requests and limits are the same: a sandbox is to get what it asked for, neither less nor more.
fn limit(container: &mut Map<String, Value>, resources: &Resources) -> Result<()> {
    let cpus = resources.cpus.map(|cpus| match cpus {
        cpus if cpus > 0.0 && cpus < 1e6 => Ok(json!(format!("{}m", (cpus * 1000.0).round().max(1.0)))),
        cpus => Err(Error::invalid(format!("a limit of {cpus} CPUs is out of range"))),
    });
    let quantities = [
        ("cpu", cpus.transpose()?),
        ("memory", resources.memory_mb.map(|mb| json!(format!("{mb}Mi")))),
        ("nvidia.com/gpu", resources.gpus.filter(|count| *count > 0).map(|count| json!(count))),
    ];
    for (name, quantity) in quantities {
        let Some(quantity) = quantity else { continue };
        let all = table(container, "resources");
        for bound in ["requests", "limits"] {
            table(all, bound).insert(name.to_owned(), quantity.clone());
        }
    }
    Ok(())
}

fn plain() -> Map<String, Value> {
    let component = json!({
        "version": VERSION,
        "kind": "component",
        "name": "sandbox-bench",
        "plugins": { "sandbox": true },
        "run": { "kind": "service", "container": {} },
    });
    around(component)
}

fn around(component: Value) -> Map<String, Value> {
    Map::from_iter([
        ("version".into(), json!(VERSION)),
        ("kind".into(), json!("operation")),
        ("component".into(), component),
    ])
}

fn operation(path: &Path) -> Result<Map<String, Value>> {
    let shown = path.display();
    let refused = |why: &str| Error::invalid(format!("component {shown}: {why}"));
    let unread = |e: std::io::Error| Error::invalid(format!("component {shown} cannot be read")).because(e);
    if std::fs::metadata(path).map_err(unread)?.len() > FILE_LIMIT {
        return Err(refused("it is larger than 1 MiB"));
    }
    let text = std::fs::read_to_string(path).map_err(unread)?;
    let value: Value = serde_saphyr::from_str(&text).map_err(|e| refused("it is no YAML").because(e))?;
    let operation = match value {
        Value::Object(map) if map.get("kind").and_then(Value::as_str) == Some("component") => {
            around(Value::Object(map))
        }
        Value::Object(map) if map.get("component").is_some_and(Value::is_object) => map,
        _ => return Err(refused("neither a component nor an operation with its component inline")),
    };
    let component = operation.get("component");
    let run = component.and_then(|component| component.get("run"));
    if run.and_then(|run| run.get("kind")).and_then(Value::as_str) != Some("service") {
        return Err(refused("its `run` is not of `kind: service`"));
    }
    let plugins =
        [Some(&Value::Object(operation.clone())), component].map(|of| of?.get("plugins")?.get("sandbox")?.as_bool());
    if !plugins.contains(&Some(true)) {
        return Err(refused("it does not set `plugins.sandbox: true`, without which no command can run in it"));
    }
    if operation.contains_key("matrix") {
        return Err(refused("a sandbox cannot be a matrix"));
    }
    let ports = run.and_then(|run| run.get("ports")).and_then(Value::as_array);
    if ports.is_some_and(|ports| ports.contains(&json!(DAEMON_PORT))) {
        return Err(refused("port 9090 belongs to the sandbox's daemon"));
    }
    let container = run.and_then(|run| run.get("container"));
    if container.is_some_and(|container| container.get("args").is_some() && container.get("command").is_none()) {
        return Err(refused("`args` without `command` is refused by the platform"));
    }
    Ok(operation)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use sandbox_bench_core::{ErrorKind, Tag};

    use super::*;

    fn spec() -> SandboxSpec {
        SandboxSpec::new(Tag::new("run", "unit"), Source::Image("debian".into()))
    }

    fn filled(template: &Template, spec: &SandboxSpec) -> Value {
        serde_json::from_str(&template.fill(spec, "debian").unwrap()).unwrap()
    }

    fn file(text: &str) -> Result<Template> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Template::new(&PolyaxonConfig { component: Some(file.path().to_owned()), ..PolyaxonConfig::default() })
    }

    #[test]
    fn the_plain_service_carries_everything_that_was_asked_for() {
        let config = PolyaxonConfig { queue: Some("agent/q".into()), presets: vec!["p".into()], ..Default::default() };
        let mut spec = spec();
        spec.lifetime = Duration::from_secs(90);
        spec.resources = Resources { cpus: Some(1.5), memory_mb: Some(256), ..Resources::default() };
        let sent = filled(&Template::new(&config).unwrap(), &spec);
        let bounds = json!({ "cpu": "1500m", "memory": "256Mi" });
        assert_eq!(
            sent,
            json!({
                "version": 1.1, "kind": "operation", "name": "sbx-run--unit", "isApproved": true, "queue": "agent/q",
                "presets": ["p"], "termination": { "timeout": 90 },
                "component": {
                    "version": 1.1, "kind": "component", "name": "sandbox-bench", "plugins": { "sandbox": true },
                    "run": { "kind": "service", "container": {
                        "image": "debian", "resources": { "requests": bounds, "limits": bounds },
                    } },
                },
            })
        );
    }

    #[test]
    fn a_component_of_the_user_keeps_what_is_not_asked_for() {
        let template = file(
            "kind: component\nname: mine\nplugins: {sandbox: true, shm: true}\nrun:\n  kind: service\n  environment:\n    \
             nodeSelector: {pool: bench}\n  container:\n    image: own\n    env: [{name: B, value: b}]\n",
        )
        .unwrap();
        assert_eq!(template.image(), Some("own"));
        let component = filled(&template, &spec())["component"].clone();
        assert_eq!(component["plugins"]["shm"], true);
        assert_eq!(component["run"]["environment"]["nodeSelector"]["pool"], "bench");
        assert_eq!(component["run"]["container"]["env"][0], json!({ "name": "B", "value": "b" }));
        assert_eq!(component["run"]["container"]["image"], "debian");
    }

    #[test]
    fn what_is_no_sandbox_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "neither"),
            ("[1]", "neither"),
            ("kind: component\nrun: {kind: job}\nplugins: {sandbox: true}", "kind: service"),
            ("kind: component\nrun: {kind: service}", "plugins.sandbox"),
            ("kind: component\nplugins: {sandbox: true}\nrun: {kind: service, ports: [9090]}", "9090"),
            ("kind: component\nplugins: {sandbox: true}\nrun: {kind: service, container: {args: [x]}}", "args"),
            ("kind: operation\nmatrix: {}\ncomponent: {plugins: {sandbox: true}, run: {kind: service}}", "matrix"),
            ("kind: operation\nhubRef: x", "inline"),
            ("a: [", "YAML"),
        ] {
            let error = file(text).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidRequest);
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
        let refused = |change: fn(&mut SandboxSpec)| {
            let mut spec = spec();
            change(&mut spec);
            Template::new(&PolyaxonConfig::default()).unwrap().fill(&spec, "debian").unwrap_err().kind().clone()
        };
        assert_eq!(refused(|s| s.network = NetworkPolicy::NoNetwork), ErrorKind::Unsupported);
        assert_eq!(refused(|s| s.resources.cpus = Some(f64::NAN)), ErrorKind::InvalidRequest);
    }
}
