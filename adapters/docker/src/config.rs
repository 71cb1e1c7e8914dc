//! What a user may set, and where an engine is looked for.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of the Docker backend. All are optional.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DockerConfig {
    /// The engine: `unix:///path/to/socket`, or `tcp://host:port` without TLS. Default: `DOCKER_HOST`, else the first
    /// socket that answers of the usual places of Docker, rootless Docker, Docker Desktop and Podman.
    pub host: Option<String>,
    /// OCI runtime of the sandboxes, such as `runsc` for gVisor. Default: the engine's.
    pub runtime: Option<String>,
    /// Platform of images, such as `linux/amd64`. Default: the engine's.
    pub platform: Option<String>,
    /// When images are pulled.
    pub pull: PullPolicy,
    /// Network of sandboxes that may reach everything. Default: `bridge`.
    pub network: Option<String>,
    /// Enforce `disk_mb`. It needs a storage driver with quotas, such as overlay2 on XFS mounted with `pquota`; without
    /// one the engine refuses to create such sandboxes. Default: off, disk limits are ignored.
    pub disk_limit: bool,
    /// Image of sandboxes that ask for the backend's general base.
    pub base_image: String,
    /// Commands that the base image has, of those that environment recipes may need.
    pub base_commands: Vec<String>,
}

impl Default for DockerConfig {
    fn default() -> Self {
        Self {
            host: None,
            runtime: None,
            platform: None,
            pull: PullPolicy::default(),
            network: None,
            disk_limit: false,
            base_image: "python:3.12-slim".to_owned(),
            base_commands: vec!["python3".to_owned(), "pip".to_owned()],
        }
    }
}

/// When images are pulled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PullPolicy {
    /// When the engine does not have them.
    #[default]
    Missing,
    /// Never: an image that is not there is an error.
    Never,
    /// Before each sandbox.
    Always,
}

impl DockerConfig {
    /// Who named the engine, in words for an error; empty if it was looked for.
    pub(crate) fn named_by(&self, variable: impl Fn(&str) -> Option<String>) -> &'static str {
        match &self.host {
            Some(_) => " (named by `host` of the configuration)",
            None if variable("DOCKER_HOST").is_some_and(|value| !value.is_empty()) => " (named by DOCKER_HOST)",
            None => "",
        }
    }

    /// The engines to try, in order. `variable` reads an environment variable.
    pub(crate) fn hosts(&self, variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        if let Some(host) = self.host.clone().or_else(|| variable("DOCKER_HOST")) {
            return vec![host];
        }
        let runtime_dir = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
        let home = variable("HOME").map(PathBuf::from);
        [
            Some(PathBuf::from("/var/run/docker.sock")),
            runtime_dir.as_ref().map(|dir| dir.join("docker.sock")),
            home.map(|dir| dir.join(".docker/run/docker.sock")),
            runtime_dir.map(|dir| dir.join("podman/podman.sock")),
            Some(PathBuf::from("/run/podman/podman.sock")),
        ]
        .into_iter()
        .flatten()
        .filter(|path| path.exists())
        .map(|path| format!("unix://{}", path.display()))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_configured_host_wins_over_the_environment() {
        let environment = |name: &str| (name == "DOCKER_HOST").then(|| "tcp://elsewhere:2375".to_owned());
        let config = DockerConfig { host: Some("unix:///mine.sock".into()), ..DockerConfig::default() };
        assert_eq!(config.hosts(environment), ["unix:///mine.sock"]);
        assert_eq!(DockerConfig::default().hosts(environment), ["tcp://elsewhere:2375"]);
    }

    #[test]
    fn sockets_of_a_user_are_found_by_their_directories() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("podman/podman.sock");
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        std::fs::write(&socket, b"").unwrap();
        let environment = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| dir.path().display().to_string());
        assert!(DockerConfig::default().hosts(environment).contains(&format!("unix://{}", socket.display())));
    }

    #[test]
    fn an_empty_configuration_is_the_default_and_typos_are_refused() {
        assert_eq!(serde_json::from_str::<DockerConfig>("{}").unwrap(), DockerConfig::default());
        let error = serde_json::from_str::<DockerConfig>(r#"{"runtine":"runsc"}"#).unwrap_err();
        assert!(error.to_string().contains("runtine"), "{error}");
    }
}
