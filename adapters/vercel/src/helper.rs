//! Short commands of our own in a sandbox, which may be run twice without harm.

use futures_util::StreamExt;
use reqwest::Method;
use sandbox_bench_core::{Call, Error, ErrorKind, Result, Stream};
use sandbox_bench_kit::http::{Effect, ask, lines};
use sandbox_bench_kit::wait::bounded;

use crate::client::{Api, gone};
use crate::wire::{Exec, Line};

/// Most bytes of one line of an answer that streams.
pub(crate) const LINE_LIMIT: usize = 16 << 20;
/// Most bytes kept of what a helper says.
const SAID_LIMIT: usize = 64 << 10;
/// The shortest limit that the service takes, in milliseconds.
const SHORTEST: u64 = 100;

/// A running sandbox, as requests name it.
#[derive(Clone, Copy)]
pub(crate) struct Vm<'a> {
    /// The service.
    pub(crate) api: &'a Api,
    /// Name of the sandbox.
    pub(crate) name: &'a str,
    /// Id of its session.
    pub(crate) session: &'a str,
}

/// How a helper ended.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Its exit code.
    pub(crate) code: i32,
    /// What it wrote to stdout.
    pub(crate) stdout: String,
    /// What it wrote to stderr.
    pub(crate) stderr: String,
}

/// What the shell is to run: a program of `/bin/sh` and its arguments.
pub(crate) fn script(script: &str, arguments: &[&str]) -> Vec<String> {
    ["-c", script, "sh"].iter().chain(arguments).map(|text| (*text).to_owned()).collect()
}

/// `limit` as the service wants it.
pub(crate) fn milliseconds(limit: std::time::Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(SHORTEST)
}

impl Vm<'_> {
    /// Runs `/bin/sh` with these arguments as root and waits for its end. `what` is for errors.
    ///
    /// # Errors
    /// `Unavailable` if its end was not seen, whatever became of it; `SandboxLost`.
    pub(crate) async fn shell(self, call: &Call, what: &str, arguments: &[String]) -> Result<Done> {
        let what = format!("sandbox {}: {what}", self.name);
        let body = Exec {
            command: "/bin/sh",
            args: arguments,
            cwd: "/",
            env: &Default::default(),
            sudo: true,
            wait: true,
            logs: true,
            timeout: milliseconds(call.remaining()),
        };
        let request = self.api.of_session(Method::POST, self.session, &["cmd"]).json(&body);
        let answer = match ask(call, &what, Effect::Idempotent, request).await? {
            Ok(answer) => answer,
            Err(refusal) => return Err(gone(&what, Effect::Idempotent, &refusal)),
        };
        let mut answer = std::pin::pin!(lines(answer, what.clone(), LINE_LIMIT));
        let unseen = |why: &str| Error::new(ErrorKind::Unavailable, format!("{what}: its end was not seen: {why}"));
        bounded(call, &what, async {
            let mut done = Done::default();
            while let Some(line) = answer.next().await {
                match Line::parse(&line.map_err(|e| unseen("the answer broke off").because(e))?) {
                    Line::Output(Stream::Stdout, text) => append(&mut done.stdout, &text),
                    Line::Output(Stream::Stderr, text) => append(&mut done.stderr, &text),
                    Line::Command { exit_code: Some(code), .. } => return Ok(Done { code, ..done }),
                    Line::Broken(code) => return Err(unseen(&code)),
                    Line::Command { .. } | Line::Other => {}
                }
            }
            Err(unseen("the answer ended early"))
        })
        .await?
    }

    /// Returns once the sandbox can run commands.
    ///
    /// # Errors
    /// `SandboxLost` if it never will; `DeadlineExceeded`, `Cancelled`.
    pub(crate) async fn ready(self, call: &Call) -> Result<()> {
        loop {
            let session = self.api.session(call, self.session).await?;
            match session.status {
                crate::wire::Status::Running => return Ok(()),
                crate::wire::Status::Pending | crate::wire::Status::Unknown => {}
                _ => return Err(crate::error::lost(self.name)),
            }
            let what = format!("sandbox {}: start", self.name);
            bounded(call, &what, tokio::time::sleep(crate::observe::POLL)).await?;
        }
    }
}

/// Appends as much as the limit allows.
fn append(text: &mut String, more: &str) {
    let room = SAID_LIMIT.saturating_sub(text.len());
    text.push_str(more.get(..room.min(more.len())).unwrap_or_default());
}
