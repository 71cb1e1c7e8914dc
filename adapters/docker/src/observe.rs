//! What the engine says about a container: granted resources, timestamps, state.

use std::collections::BTreeMap;

use bollard::models::{ContainerInspectResponse, ContainerState};
use jiff::Timestamp;
use sandbox_bench_core::{Call, Error, ErrorKind, Resources, Result};

use crate::client::{Engine, raw_request, short};
use crate::{error, labels};

/// The container as the engine sees it now.
///
/// # Errors
/// `NotFound`.
pub(crate) async fn inspect(engine: &Engine, call: &Call, container: &str) -> Result<ContainerInspectResponse> {
    let what = format!("container {}", short(container));
    raw_request(call, &what, engine.docker.inspect_container(container, None)).await?.map_err(|e| {
        if error::answer(&e).is_some_and(|(status, _)| status == 404) {
            Error::new(ErrorKind::NotFound, format!("{what} is not at the engine")).because(e)
        } else {
            error::map(&what, e)
        }
    })
}

/// As [`inspect`], for a sandbox that we hold.
///
/// # Errors
/// `SandboxLost`.
pub(crate) async fn inspect_held(engine: &Engine, call: &Call, container: &str) -> Result<ContainerInspectResponse> {
    inspect(engine, call, container).await.map_err(|e| match e.kind() {
        ErrorKind::NotFound => lost(container),
        _ => e,
    })
}

/// The error of a sandbox that is not there any more.
pub(crate) fn lost(container: &str) -> Error {
    Error::new(ErrorKind::SandboxLost, format!("container {} is gone", short(container)))
}

/// True if commands can run in it.
pub(crate) fn running(container: &ContainerInspectResponse) -> bool {
    container.state.as_ref().and_then(|state| state.running).unwrap_or(false)
}

/// The correlation tag on its label.
pub(crate) fn tag(container: &ContainerInspectResponse) -> Option<&str> {
    container.config.as_ref()?.labels.as_ref()?.get(labels::SANDBOX).map(String::as_str)
}

/// The environment variables of its commands.
pub(crate) fn variables(container: &ContainerInspectResponse) -> BTreeMap<String, String> {
    let labels = container.config.as_ref().and_then(|config| config.labels.as_ref());
    let text = labels.and_then(|labels| labels.get(labels::VARIABLES));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Why it does not run, as an error: the fault of its image, or a loss.
pub(crate) fn ended(id: &str, state: Option<&ContainerState>) -> Error {
    let id = short(id);
    let code = state.and_then(|state| state.exit_code);
    if matches!(code, Some(126 | 127)) {
        return Error::new(ErrorKind::Environment, format!("container {id} ended at once (exit code {code:?})"))
            .hint("its image needs /bin/sh and sleep");
    }
    let code = code.map(|code| format!(" with exit code {code}")).unwrap_or_default();
    Error::new(ErrorKind::SandboxLost, format!("container {id} does not run any more: it ended{code}"))
        .hint("its lifetime was over, or somebody stopped it")
}

/// What the container got. Without a limit of its own it has all that the engine has.
pub(crate) fn granted(engine: &Engine, container: &ContainerInspectResponse) -> Resources {
    let host = container.host_config.as_ref();
    let positive = |value: Option<i64>| value.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    let nano_cpus = positive(host.and_then(|host| host.nano_cpus));
    let memory = positive(host.and_then(|host| host.memory)).or(positive(engine.system.mem_total));
    Resources {
        cpus: nano_cpus.map(|n| n as f64 / 1e9).or(positive(engine.system.ncpu).map(|n| n as f64)),
        memory_mb: memory.map(|bytes| bytes >> 20),
        disk_mb: None,
        pids: positive(host.and_then(|host| host.pids_limit)),
        gpus: None,
    }
}

/// The engine's timestamps of the container, by event.
pub(crate) fn times(container: &ContainerInspectResponse) -> BTreeMap<String, Timestamp> {
    let state = container.state.as_ref();
    [
        ("created", container.created.as_deref()),
        ("started", state.and_then(|state| state.started_at.as_deref())),
        ("finished", state.and_then(|state| state.finished_at.as_deref())),
    ]
    .into_iter()
    .filter_map(|(event, text)| Some((event.to_owned(), timestamp(text?)?)))
    .collect()
}

/// A timestamp of the engine; it writes the year 1 for "not yet".
pub(crate) fn timestamp(text: &str) -> Option<Timestamp> {
    text.parse().ok().filter(|time: &Timestamp| *time > Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_happened_has_no_time() {
        assert_eq!(timestamp("0001-01-01T00:00:00Z"), None);
        assert_eq!(timestamp("nonsense"), None);
        assert!(timestamp("2026-11-29T19:44:29.735003698Z").is_some());
    }
}
