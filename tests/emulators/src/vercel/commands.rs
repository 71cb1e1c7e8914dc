//! Commands: start, wait, follow, signal, feed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Vercel;
use super::error::{ApiError, Result};
use super::ndjson::{Shape, stream_of};
use super::process::{Finish, Follower, OUTPUT_CAP, Process, Start};
use super::request::{Exec, Kill, Stdin};
use super::routes::{Answer, Ask};
use super::session::{Session, new_id};
use crate::machine::{Command, End, User};

/// In the environment of each command, so that it can be found when it is to be signalled.
const MARKER: &str = "SANDBOX_EMULATOR_COMMAND";
const SIGKILL: i32 = 9;
/// Signals that the official clients can name: SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM, SIGCONT, SIGSTOP.
const SIGNALS: [i32; 7] = [1, 2, 3, SIGKILL, 15, 18, 19];
/// Sends signal `$2` to the first process with the marker `$1`: the command itself, before its children.
const SIGNAL: &str = r#"for pid in $(ls /proc | grep -x '[0-9]*' | sort -n); do
  if tr '\0' '\n' < "/proc/$pid/environ" 2>/dev/null | grep -qx "$1"; then
    kill -"$2" "$pid"
    exit
  fi
done
exit 3"#;
/// A command may not have begun yet when it is to be signalled.
const SIGNAL_ATTEMPTS: u32 = 20;
const SIGNAL_PAUSE: Duration = Duration::from_millis(25);
/// Commands that a session remembers.
const COMMANDS: usize = 10_000;

impl Vercel {
    pub(super) async fn exec(&self, id: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&["wait", "logs", "cmdId"])?;
        let (wait, logs) = (ask.query.flag("wait")?, ask.query.flag("logs")?);
        let own_id = ask.query.get("cmdId").map(str::to_owned);
        let flags = ask.flags.clone();
        let exec: Exec = ask.json(&[]).await?;
        exec.check()?;
        let session = self.world().session(id)?;
        session.need_running()?;
        let shape = Shape { command: true, logs: exec.logs || logs };
        let wait = exec.wait || wait;
        let process = self.start(&session, exec, own_id)?;
        if wait {
            let stream = stream_of(&self.emulation.tasks, Follower::new(process), shape, flags);
            return Ok(Answer::Raw(stream));
        }
        Answer::ok(json!({ "command": process.view_as(None) }))
    }

    fn start(&self, session: &Arc<Session>, exec: Exec, id: Option<String>) -> Result<Arc<Process>> {
        let host = &session.host;
        let id = id.unwrap_or_else(|| new_id("cmd"));
        let cwd = match &exec.cwd {
            Some(cwd) => Path::new(&host.cwd).join(cwd).to_string_lossy().into_owned(),
            None => host.cwd.clone(),
        };
        let argv = std::iter::once(&exec.command).chain(&exec.args).cloned();
        let mut command = Command {
            cwd: Some(cwd.clone()),
            stdin: exec.attach_stdin,
            output_cap: OUTPUT_CAP,
            ..host.machine.command(argv)
        };
        // A machine cannot raise a running process to root, so a program that would is root from the beginning.
        if exec.sudo || exec.command == "sudo" {
            command.user = User::Root;
        }
        command.env.extend(host.env.clone());
        command.env.extend(exec.env);
        let template = command.clone();
        command.env.insert(MARKER.to_owned(), id.clone());
        let mut processes = session.processes();
        if processes.iter().any(|process| process.id == id) {
            return Err(ApiError::conflict(format!("Command `{id}` already exists.")));
        }
        if processes.len() >= COMMANDS {
            return Err(ApiError::rate_limited("Too many commands in this session.", 60));
        }
        let running = host.machine.start(command).map_err(|_| ApiError::stopped())?;
        let start = Start {
            id,
            session_id: session.identity.id.clone(),
            program: exec.command,
            args: exec.args,
            cwd,
            template,
        };
        let (process, pump) = Process::new(start, running, exec.timeout.map(Duration::from_millis));
        processes.push(Arc::clone(&process));
        self.emulation.tasks.spawn(pump);
        Ok(process)
    }

    pub(super) fn list_commands(&self, id: &str, ask: &Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        let session = self.world().session(id)?;
        session.need_running()?;
        let newest_first: Vec<Value> = session.processes().iter().rev().map(|process| process.view()).collect();
        Answer::ok(json!({ "commands": newest_first }))
    }

    pub(super) async fn get_command(&self, id: &str, command: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&["wait"])?;
        let process = self.process(id, command)?;
        if ask.query.flag("wait")? && process.finished().await == Finish::Lost {
            return Err(ApiError::stopped());
        }
        Answer::ok(json!({ "command": process.view() }))
    }

    pub(super) fn logs(&self, id: &str, command: &str, ask: &Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        let follower = Follower::new(self.process(id, command)?);
        let shape = Shape { command: false, logs: true };
        Ok(Answer::Raw(stream_of(&self.emulation.tasks, follower, shape, ask.flags.clone())))
    }

    pub(super) async fn kill(&self, id: &str, command: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        let ignored = ask.flags.has("kill-ignored");
        let Kill { signal } = ask.json(&[]).await?;
        if !SIGNALS.contains(&signal) {
            return Err(ApiError::bad_request(format!("Invalid request: `signal` {signal} is unknown.")));
        }
        let session = self.world().session(id)?;
        let process = self.process(id, command)?;
        if process.finish().is_some() {
            return Err(ApiError::not_found("A running command of this id was"));
        }
        match signal {
            _ if ignored => {}
            SIGKILL => process.kill(),
            _ => send_signal(&session, &process, signal).await?,
        }
        Answer::ok(json!({ "command": process.view() }))
    }

    pub(super) async fn stdin(&self, id: &str, command: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        let stdin: Stdin = ask.json(&[]).await?;
        let process = self.process(id, command)?;
        let data = STANDARD.decode(stdin.data.unwrap_or_default());
        let data = data.map_err(|_| ApiError::bad_request("Invalid request: `data` should be base64."))?;
        let mut taken = process.taken.lock().await;
        let input = process.input().ok_or_else(no_stdin)?;
        let offset = stdin.offset.unwrap_or(*taken);
        let known = taken.checked_sub(offset).and_then(|known| usize::try_from(known).ok());
        let known =
            known.ok_or_else(|| ApiError::bad_request("Invalid request: `offset` is beyond what was taken."))?;
        // What a resent request repeats was taken before.
        let new = data.get(known..).unwrap_or_default();
        if !new.is_empty() {
            if !input.send(new).await {
                return Err(no_stdin());
            }
            *taken += new.len() as u64;
        }
        if stdin.close {
            input.end();
        }
        Answer::ok(json!({ "command": process.view(), "bytesWritten": *taken }))
    }

    fn process(&self, session: &str, command: &str) -> Result<Arc<Process>> {
        let session = self.world().session(session)?;
        session.need_running()?;
        session.process(command)
    }
}

/// As the command's own user: a machine's root may not look into the processes of others.
async fn send_signal(session: &Session, process: &Process, signal: i32) -> Result<()> {
    let (marker, signal) = (format!("{MARKER}={}", process.id), signal.to_string());
    for _ in 0..SIGNAL_ATTEMPTS {
        let argv = ["/bin/sh", "-c", SIGNAL, "signal", &marker, &signal].map(str::to_owned).to_vec();
        let command = Command { argv, stdin: false, cwd: Some("/".to_owned()), ..process.template.clone() };
        let done = session.host.machine.run(command, None).await.map_err(|_| ApiError::stopped())?;
        if done.end == End::Exited(0) || process.finish().is_some() {
            return Ok(());
        }
        tokio::time::sleep(SIGNAL_PAUSE).await;
    }
    Err(ApiError::internal("the process was not found"))
}

fn no_stdin() -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "command_stdin_unavailable", "The command does not accept input.")
}
