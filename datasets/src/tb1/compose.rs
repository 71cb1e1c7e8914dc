//! `docker-compose.yaml` of a terminal-bench 1 task, as far as one container needs it: the `client` service.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::problem::{Fault, excerpt};

/// What the `client` service says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Client {
    /// Build context relative to the task directory, and the Dockerfile in it.
    pub(super) build: Option<(String, String)>,
    pub(super) image: Option<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) workdir: Option<String>,
    /// Why one plain container is not enough.
    pub(super) needs_compose: Option<String>,
    /// Keys that have no effect here.
    pub(super) unused: Vec<String>,
}

#[derive(Deserialize)]
struct File {
    services: BTreeMap<String, BTreeMap<String, Value>>,
}

pub(super) fn parse(text: &str, task_id: &str) -> Result<Client, Fault> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| {
        let message = error.to_string();
        let first = message.lines().next().unwrap_or_default();
        Fault::new(format!("docker-compose.yaml: {first}"), "correct the YAML")
    })?;
    let Some(service) = file.services.get("client") else {
        return Err(Fault::new("docker-compose.yaml has no service \"client\"", "name the task's service \"client\""));
    };
    let mut client = Client::default();
    if file.services.len() > 1 {
        client.needs_compose = Some("Docker Compose: there are several services".to_owned());
    }
    let variables = variables(task_id);
    for (key, value) in service {
        match key.as_str() {
            "build" => client.build = Some(build(value, &mut client.needs_compose)?),
            "image" => client.image = value.as_str().map(|image| replace(image, &variables)),
            "environment" => client.env = environment(value, &variables)?,
            "working_dir" => client.workdir = value.as_str().map(str::to_owned),
            "privileged" | "cap_add" | "devices" | "network_mode" | "pid" | "depends_on" => {
                client.needs_compose.get_or_insert_with(|| format!("Docker Compose: the service sets {key}"));
            }
            "volumes" => {
                let foreign =
                    value.as_array().is_some_and(|volumes| volumes.iter().any(|volume| !is_log_volume(volume)));
                if foreign {
                    client.needs_compose.get_or_insert_with(|| "Docker Compose: the service has volumes".to_owned());
                }
            }
            // The container is named and kept alive by us.
            "container_name" | "command" => {}
            other => client.unused.push(other.to_owned()),
        }
    }
    Ok(client)
}

fn build(value: &Value, needs_compose: &mut Option<String>) -> Result<(String, String), Fault> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    if value.get("args").is_some_and(|args| !args.is_null()) || value.get("target").is_some() {
        needs_compose.get_or_insert_with(|| "Docker Compose: the build has arguments or a target".to_owned());
    }
    let context = value.as_str().map(str::to_owned).or_else(|| text("context")).unwrap_or_else(|| ".".to_owned());
    let dockerfile = text("dockerfile").unwrap_or_else(|| "Dockerfile".to_owned());
    for path in [&context, &dockerfile] {
        if path.starts_with('/') || path.contains("://") || path.split('/').any(|part| part == "..") {
            return Err(Fault::new(
                format!("the build uses {}, which is outside of the task", excerpt(path)),
                "move it into the task directory",
            ));
        }
    }
    let clean = |path: &str| {
        let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        parts.join("/")
    };
    Ok((clean(&context), clean(&dockerfile)))
}

/// A map, or a list of `NAME=value`. A name without value takes the host's value: a template.
fn environment(value: &Value, variables: &BTreeMap<&str, String>) -> Result<BTreeMap<String, String>, Fault> {
    let scalar = |value: &Value| match value {
        Value::String(text) => Some(replace(text, variables)),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    };
    let pairs: Option<BTreeMap<String, String>> = match value {
        Value::Null => Some(BTreeMap::new()),
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| {
                let value = if value.is_null() { Some(format!("${{{name}:-}}")) } else { scalar(value) };
                value.map(|value| (name.clone(), value))
            })
            .collect(),
        Value::Array(items) => items
            .iter()
            .map(|item| {
                let text = item.as_str()?;
                Some(match text.split_once('=') {
                    Some((name, value)) => (name.to_owned(), replace(value, variables)),
                    None => (text.to_owned(), format!("${{{text}:-}}")),
                })
            })
            .collect(),
        _ => None,
    };
    pairs.ok_or_else(|| Fault::new("the environment of the client service is no list or map of texts", "correct it"))
}

/// The variables that the harness defines for compose files.
fn variables(task_id: &str) -> BTreeMap<&'static str, String> {
    let image = format!("tb__{}__client", task_id.replace('.', "-"));
    BTreeMap::from([
        ("T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME", format!("tb__{task_id}")),
        ("T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME", image),
        ("T_BENCH_TASK_DOCKER_NAME_PREFIX", format!("tb__{task_id}")),
        ("T_BENCH_CONTAINER_LOGS_PATH", "/logs".to_owned()),
        ("T_BENCH_CONTAINER_AGENT_LOGS_PATH", "/agent-logs".to_owned()),
        ("T_BENCH_TEST_DIR", "/tests".to_owned()),
    ])
}

fn replace(text: &str, variables: &BTreeMap<&str, String>) -> String {
    variables.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

/// The two log directories that every task mounts; outputs are fetched in another way here.
fn is_log_volume(volume: &Value) -> bool {
    volume.as_str().is_some_and(|text| text.contains("LOGS_PATH}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_usual_file() {
        let client = parse(
            "services:\n  client:\n    build:\n      dockerfile: Dockerfile\n    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}\n    \
             container_name: x\n    command: [ \"sh\", \"-c\", \"sleep infinity\" ]\n    environment:\n      - TEST_DIR=${T_BENCH_TEST_DIR}\n      \
             - HOST_KEY\n    volumes:\n      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}\n",
            "a.b",
        )
        .unwrap();
        assert_eq!(client.build, Some((String::new(), "Dockerfile".to_owned())));
        assert_eq!(client.image.as_deref(), Some("tb__a-b__client"));
        assert_eq!(client.env["TEST_DIR"], "/tests");
        assert_eq!(client.env["HOST_KEY"], "${HOST_KEY:-}");
        assert_eq!((client.needs_compose, client.unused.len()), (None, 0));
    }

    #[test]
    fn more_than_one_container_is_said() {
        let client = |rest: &str| parse(&format!("services:\n  client:\n    build: .\n{rest}"), "t").unwrap();
        assert!(client("  db:\n    image: postgres\n").needs_compose.unwrap().contains("several services"));
        assert!(client("    privileged: true\n").needs_compose.unwrap().contains("privileged"));
        assert!(client("    volumes: ['./data:/data']\n").needs_compose.unwrap().contains("volumes"));
        assert_eq!(client("    ports: ['80:80']\n").unused, ["ports"]);
    }

    #[test]
    fn contexts_stay_inside() {
        for bad in ["..", "/", "a/../../b", "https://example.com/x.git"] {
            assert!(parse(&format!("services:\n  client:\n    build: {bad}\n"), "t").is_err(), "{bad}");
        }
        assert!(parse("services:\n  main:\n    build: .\n", "t").is_err());
    }
}
