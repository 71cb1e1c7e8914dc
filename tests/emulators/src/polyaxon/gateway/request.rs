//! What a client asks the daemon to run.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::Asked;
use crate::machine::{Command, Running};
use crate::polyaxon::reply::Reply;

/// A command without a limit of its own ends after this. A guess.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3600);
/// Prints the pid on a line of its own, then becomes the command.
const STARTER: &str = r#"echo $$; exec "$@""#;

/// A command, as `/exec`, `/exec/stream` and `/exec/bg` take it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecRequest {
    command: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, Option<String>>,
    workdir: Option<String>,
    stdin: Option<String>,
    timeout_ms: Option<u64>,
    pub(super) tag: Option<String>,
}

/// A command on its way.
pub(super) struct Started {
    pub(super) running: Running,
    stdin: Option<Vec<u8>>,
}

impl ExecRequest {
    /// Reads it strictly.
    pub(super) fn read(asked: &Asked<'_>, body: &[u8], background: bool) -> Result<ExecRequest, Box<Reply>> {
        let request: ExecRequest = match serde_json::from_slice(body) {
            Ok(request) => request,
            Err(error) => return Err(Box::new(asked.mistake(error.to_string()))),
        };
        let why = if request.command.is_empty() || request.command.iter().any(|word| word.contains('\0')) {
            "command is required"
        } else if request.env.keys().any(|name| name.starts_with("POLYAXON_")) {
            "env keys with prefix POLYAXON_ are reserved"
        } else if request.env.keys().any(|name| name.is_empty() || name.contains('=')) {
            "env keys are names"
        } else if request.workdir.as_ref().is_some_and(|workdir| !workdir.starts_with('/')) {
            "workdir must be absolute"
        } else if request.tag.is_some() && !background {
            "unknown field tag"
        } else {
            return Ok(request);
        };
        Err(Box::new(asked.mistake(why)))
    }

    /// Starts it.
    pub(super) fn start(&self, asked: &Asked<'_>) -> Result<Started, Box<Reply>> {
        let stdin = match self.stdin.as_ref().map(|text| STANDARD.decode(text)).transpose() {
            Ok(stdin) => stdin,
            Err(error) => return Err(Box::new(asked.mistake(format!("stdin is no base64: {error}")))),
        };
        let argv =
            ["/bin/sh", "-c", STARTER, "daemon"].into_iter().map(str::to_owned).chain(self.command.iter().cloned());
        let mut command = asked.pod.machine.command(argv);
        for (name, value) in &self.env {
            match value {
                Some(value) => drop(command.env.insert(name.clone(), value.clone())),
                None => drop(command.env.remove(name)),
            }
        }
        let workdir = self.workdir.clone().or_else(|| asked.pod.workdir.clone());
        let command = Command {
            cwd: workdir.or(command.cwd),
            stdin: stdin.is_some(),
            timeout: Some(self.timeout_ms.map_or(DEFAULT_TIMEOUT, Duration::from_millis)),
            ..command
        };
        match asked.pod.machine.start(command) {
            Ok(running) => Ok(Started { running, stdin }),
            Err(_) => Err(Box::new(crate::polyaxon::reply::bad_gateway())),
        }
    }
}

impl Started {
    /// Sends what the command is to read. Runs beside the reading of its output.
    pub(super) fn feed(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let (input, stdin) = (self.running.input(), self.stdin.take());
        async move {
            if let Some(bytes) = stdin {
                input.send(&bytes).await;
                input.end();
            }
        }
    }
}
