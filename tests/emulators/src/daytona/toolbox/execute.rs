//! `POST /process/execute`: one command, all at once.
//!
//! The text goes to the standard input of a shell, both streams come back as one, and the answer waits until nobody
//! holds the output any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Toolbox;
use super::shell::{Pipes, SHELL, is_name};
use crate::daytona::extract::Strict;
use crate::daytona::failure::{Answer, Failure};
use crate::daytona::state::Daytona;
use crate::faults::Flags;
use crate::machine::{Command, End, Event, Machine, MachineError, Running};

/// Output kept in memory until the answer, in bytes.
const OUTPUT: usize = 64 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    command: String,
    cwd: Option<String>,
    envs: Option<BTreeMap<String, String>>,
    timeout: Option<u64>,
}

pub(super) async fn execute(
    State(daytona): State<Arc<Daytona>>,
    Extension(flags): Extension<Flags>,
    toolbox: Toolbox,
    Strict(request): Strict<Request>,
) -> Answer<Json<Value>> {
    let bad = |message: String| Failure::daemon(StatusCode::BAD_REQUEST, "BAD_REQUEST", message).violation();
    if request.command.trim().is_empty() {
        return Err(bad("command is required".into()));
    }
    if let Some(name) = request.envs.iter().flatten().map(|(name, _)| name).find(|name| !is_name(name)) {
        return Err(bad(format!("invalid environment variable name: {name}")));
    }
    let limit = request.timeout.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let started = start(&toolbox.machine, request).await?;
    let (first, stop) = match flags.value("platform-timeout").map(Duration::from_millis) {
        Some(platform) if limit.is_none_or(|limit| platform < limit) => (Some(platform), false),
        _ => (limit, true),
    };
    let mut run = Box::pin(finish(started));
    let result = match first {
        None => run.await,
        Some(limit) => match tokio::time::timeout(limit, &mut run).await {
            Ok(result) => result,
            // Dropping it kills the command.
            Err(_) if stop => {
                let message = "command execution timeout";
                return Err(Failure::daemon(StatusCode::REQUEST_TIMEOUT, "PROCESS_EXECUTION_TIMEOUT", message));
            }
            Err(_) => {
                daytona.emulation.tasks.spawn(async move { drop(run.await) });
                let message = "request timeout";
                return Err(Failure::proxy(StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", message));
            }
        },
    };
    let (code, mut output) = result?;
    if let Some(length) = flags.value("truncated-output") {
        output.truncate(usize::try_from(length).unwrap_or(usize::MAX));
    }
    Ok(Json(json!({"exitCode": code, "result": String::from_utf8_lossy(&output)})))
}

struct Started {
    machine: Arc<Machine>,
    pipes: Pipes,
    shell: Running,
    reader: Running,
    text: String,
}

async fn start(machine: &Arc<Machine>, request: Request) -> Result<Started, MachineError> {
    let pipes = Pipes::make(machine, &["out"]).await?;
    let out = pipes.path("out");
    let reader = Command { output_cap: OUTPUT, ..Command::new(["cat", out.as_str()]) };
    let reader = machine.start(reader)?;
    let script = format!(r#"exec >"$0" 2>&1; {SHELL}"#);
    let mut shell = machine.command(["/bin/sh", "-c", &script, &out]);
    shell.stdin = true;
    shell.cwd = request.cwd.or(shell.cwd);
    shell.env.extend(request.envs.unwrap_or_default());
    let shell = machine.start(shell)?;
    Ok(Started { machine: Arc::clone(machine), pipes, shell, reader, text: request.command })
}

/// Exit code and output.
async fn finish(started: Started) -> Answer<(i32, Vec<u8>)> {
    let Started { machine, pipes, shell, mut reader, text } = started;
    let input = shell.input();
    let feed = async {
        input.send(text.as_bytes()).await;
        input.send(b"\n").await;
        input.end();
    };
    let ended = async {
        let (outcome, ()) = tokio::join!(shell.outcome(), feed);
        Ok::<_, MachineError>(outcome?.end)
    };
    let output = async {
        let mut output = Vec::new();
        while let Some(event) = reader.next().await.map_err(MachineError::from)? {
            if let Event::Output(_, bytes) = event {
                output.extend(bytes);
            }
        }
        Ok::<_, MachineError>(output)
    };
    tokio::pin!(ended, output);
    // Side by side: a shell whose output nobody reads does not end.
    let answer = tokio::select! {
        end = &mut ended => match end? {
            // Nobody has opened the pipe, so nobody will close it.
            End::NotStarted(_) => (-1, b"fork/exec /usr/bin/bash: no such file or directory".to_vec()),
            end => (exit_code(&end), output.await?),
        },
        output = &mut output => {
            let output = output?;
            (exit_code(&ended.await?), output)
        }
    };
    pipes.remove(&machine).await;
    Ok(answer)
}

/// One that a signal killed has none.
fn exit_code(end: &End) -> i32 {
    if let End::Exited(code) = end { *code } else { -1 }
}
