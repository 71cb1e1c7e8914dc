//! Running one command in a sandbox.
//!
//! The service starts it detached and keeps its output. It runs under the wrapper of [`sandbox_bench_kit::guest`]; so its own
//! end is known even if a background process keeps its output open, and it can be found again by the wrapper's marks.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use sandbox_bench_core::{Call, Error, ErrorKind, ExecReport, ExecSpec, OutputSink, Result};
use sandbox_bench_kit::guest::{self, Streams, Usage, Wrapped};
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::{uncancelled, winding_up};

use crate::client::session_answer;
use crate::helper::{Vm, milliseconds, script};
use crate::log::Log;
use crate::session::{Command, Session};
use crate::transfer;
use crate::wire::{Commands, Exec, OfCommand};

/// Prepares directory and stdin.
const ENTER: &str = include_str!("guest/enter.sh");
/// Limit for the answer to the start of a command: until then a cancellation waits, for what was started must be known.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Limit for looking for a command whose start was not answered.
const RECOVER_LIMIT: Duration = Duration::from_secs(10);
/// How long after the limit that is kept from here the service kills the command by itself, should we be gone.
const BACKSTOP: Duration = Duration::from_secs(30);

impl Vm<'_> {
    /// Runs `spec`; `workdir` is the directory of commands that name none. Returns the report and what the sandbox has used
    /// so far, if it said so.
    ///
    /// # Errors
    /// As [`sandbox_bench_core::Sandbox::exec`].
    pub(crate) async fn run(
        self,
        call: &Call,
        spec: &ExecSpec,
        workdir: Option<&str>,
        sink: &dyn OutputSink,
    ) -> Result<(ExecReport, Usage)> {
        let Wrapped { argv, frame, mark } = Wrapped::new(spec)?;
        // Those of the sandbox are kept at the service.
        let variables = guest::variables(call, &BTreeMap::new(), spec)?;
        let argv = match spec.user.as_deref() {
            None | Some("root" | "0") => argv,
            Some(user) => guest::as_user(user, &variables, argv),
        };
        let input = match &spec.stdin {
            Some(bytes) => transfer::place(self, call, bytes.clone()).await?,
            None => String::new(),
        };
        let (make, directory) = match (&spec.cwd, workdir) {
            (Some(cwd), _) => ("0", cwd.as_str()),
            (None, own) => ("1", own.unwrap_or_default()),
        };
        let mut arguments = script(ENTER, &[make, directory, &input]);
        arguments.extend(argv);
        let body = Exec {
            command: "/bin/sh",
            args: &arguments,
            cwd: "/",
            env: &variables,
            sudo: true,
            wait: false,
            logs: false,
            timeout: milliseconds(spec.limit(call) + BACKSTOP),
        };
        let id = self.start(call, &body, &frame).await?;
        let log = Log::new(self, winding_up(call, call.remaining() + BACKSTOP), id.clone());
        let command = Command { vm: self, call, id: &id, mark };
        Session::new(command, Streams::new(&frame, spec.output_limit, sink), log).complete(spec).await
    }

    /// Starts a command; returns its id.
    async fn start(self, call: &Call, body: &Exec<'_>, frame: &str) -> Result<String> {
        let what = format!("sandbox {}: command", self.name);
        let request = self.api.of_session(Method::POST, self.session, &["cmd"]).json(body);
        let answer = session_answer::<OfCommand>(&uncancelled(call, START_LIMIT), &what, Effect::Once, request).await;
        match answer {
            Ok(of) => Ok(of.command.id),
            Err(error) if matches!(error.kind(), ErrorKind::Transport | ErrorKind::DeadlineExceeded) => {
                self.recover(&winding_up(call, RECOVER_LIMIT), frame).await.ok_or_else(|| uncertain(&what, error))
            }
            Err(error) => Err(error),
        }
    }

    /// The answer was lost. What was started shows among the session's commands, by the random text of its wrapper.
    async fn recover(self, call: &Call, frame: &str) -> Option<String> {
        let request = self.api.of_session(Method::GET, self.session, &["cmd"]);
        let what = format!("sandbox {}: commands", self.name);
        let all: Commands = session_answer(call, &what, Effect::Idempotent, request).await.ok()?;
        let ours = all.commands.into_iter().find(|command| command.args.iter().any(|argument| argument == frame));
        ours.map(|command| command.id)
    }
}

fn uncertain(what: &str, cause: Error) -> Error {
    Error::new(ErrorKind::Transport, format!("{what}: it is unknown whether it was started")).because(cause)
}
