//! Commands in a sandbox: starting one, once, and short ones of our own, which may be run twice without harm.

use std::collections::BTreeMap;
use std::time::Duration;

use sandbox_bench_core::{Call, Error, ErrorKind, Result, Stream};
use sandbox_bench_kit::guest::as_user;
use sandbox_bench_kit::wait::{bounded, uncancelled};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::error::{self, Effect};
use crate::live::{Live, pause};
use crate::output::{Event, Over};
use crate::proto::client::{SecretSource, StringMap, secret_source};
use crate::proto::task_command_router::{TaskExecStartRequest, TaskExecStderrConfig, TaskExecStdoutConfig};
use crate::router::Router;

/// Limit for the answer to one attempt at a start: until then a cancellation waits, for what was started must be known.
const START_LIMIT: Duration = Duration::from_secs(20);
/// From this failure on in a row it is asked whether the sandbox is still there.
const DOUBT: u32 = 3;
/// How long after the limit that is kept from here the service kills a command by itself, should we be gone.
const BACKSTOP: Duration = Duration::from_secs(30);
/// Most bytes kept of each stream of a short command, where it does not say.
pub(crate) const SAID_LIMIT: usize = 64 << 10;

/// A command to be started.
pub(crate) struct Launch<'a> {
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// Environment variables over those of the sandbox.
    pub(crate) variables: &'a BTreeMap<String, String>,
    /// Its limit, which is kept from here.
    pub(crate) limit: Duration,
    /// False if nobody will read its output from the router.
    pub(crate) piped: bool,
}

/// How a short command ended.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Its exit code.
    pub(crate) code: i32,
    /// What it wrote to stdout.
    pub(crate) stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub(crate) stderr: Vec<u8>,
}

impl Done {
    /// What it had to say about a failure, in one line.
    pub(crate) fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Variables as the service takes them: in the body of a request.
pub(crate) fn secrets(variables: &BTreeMap<String, String>) -> Vec<SecretSource> {
    let contents = variables.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let source = secret_source::Source::Env(StringMap { contents });
    if variables.is_empty() { Vec::new() } else { vec![SecretSource { source: Some(source) }] }
}

/// What the shell is to run: a program of `/bin/sh` and its arguments.
pub(crate) fn script(script: &str, arguments: &[&str]) -> Vec<String> {
    ["/bin/sh", "-c", script, "sh"].iter().chain(arguments).map(|text| (*text).to_owned()).collect()
}

/// The same as root.
pub(crate) fn as_root(argv: Vec<String>) -> Vec<String> {
    as_user("0", &BTreeMap::new(), argv)
}

impl Router {
    /// Starts a command, once, however often it has to be asked for; returns its id. Waits until the sandbox can run
    /// commands: its worker may still be on its way.
    ///
    /// # Errors
    /// `SandboxLost`; `InvalidRequest` for what the service does not take; `Transport` if it is unknown whether it was
    /// started.
    pub(crate) async fn launch(&self, call: &Call, launch: Launch<'_>) -> Result<String> {
        let what = self.what("command");
        let exec_id = uuid::Uuid::new_v4().to_string();
        let message = TaskExecStartRequest {
            task_id: String::new(),
            exec_id: exec_id.clone(),
            command_args: launch.argv,
            stdout_config: if launch.piped { TaskExecStdoutConfig::Pipe } else { TaskExecStdoutConfig::Devnull }.into(),
            stderr_config: if launch.piped { TaskExecStderrConfig::Pipe } else { TaskExecStderrConfig::Devnull }.into(),
            timeout_secs: Some(u32::try_from((launch.limit + BACKSTOP).as_secs()).unwrap_or(u32::MAX)),
            secret_sources: secrets(launch.variables),
        };
        let (mut failures, mut sent) = (0, false);
        loop {
            let status = match self.start(&uncancelled(call, START_LIMIT), message.clone()).await {
                Ok(Ok(())) => return Ok(exec_id),
                Ok(Err(status)) => status,
                Err(error) if *error.kind() == ErrorKind::DeadlineExceeded => Status::deadline_exceeded("no answer"),
                Err(error) => return Err(error),
            };
            if !error::passing(&status) {
                return Err(match status.code() {
                    Code::NotFound => error::lost(self.sandbox(), "its router does not know it"),
                    _ => self.refused(call, &what, Effect::Once, &status).await,
                });
            }
            failures += 1;
            sent |= !error::unsent(&status) && error::retry_after(&status).is_none();
            if failures >= DOUBT && self.gone(call).await.is_some() {
                return Err(self.refused(call, &what, Effect::Once, &status).await);
            }
            let wait = error::retry_after(&status).unwrap_or_else(|| pause(failures));
            let waited = match wait.checked_add(Duration::from_millis(1)) {
                Some(least) if Instant::now() + least < call.deadline => {
                    bounded(call, &what, tokio::time::sleep(wait)).await
                }
                _ => Err(Error::new(ErrorKind::DeadlineExceeded, format!("{what}: the sandbox took none in time"))),
            };
            if let Err(end) = waited {
                let refused = self.client().refused(&what, Effect::Idempotent, &status);
                return Err(if sent { uncertain(&what, refused) } else { end.because(refused) });
            }
        }
    }

    /// Runs a short command of our own and waits for its end; of each stream at most `keep` bytes are kept.
    ///
    /// # Errors
    /// `Unavailable` if its end was not seen, whatever became of it; `SandboxLost`.
    pub(crate) async fn run(&self, call: &Call, what: &str, argv: Vec<String>, keep: usize) -> Result<Done> {
        let launch = Launch { argv, variables: &BTreeMap::new(), limit: call.remaining(), piped: true };
        let exec = match self.launch(call, launch).await {
            // Running it twice does no harm.
            Err(error) if *error.kind() == ErrorKind::Transport => return Err(unseen(&self.what(what), error)),
            launched => launched?,
        };
        let what = self.what(what);
        let mut live = Live::new(self, call, &exec);
        let mut done = Done::default();
        bounded(call, &what, async {
            loop {
                match live.next().await {
                    Event::Output(Stream::Stdout, bytes) => append(&mut done.stdout, &bytes, keep),
                    Event::Output(Stream::Stderr, bytes) => append(&mut done.stderr, &bytes, keep),
                    Event::Exited => {}
                    Event::Over(Over::Complete(exit)) => return Ok(Done { code: exit.code(), ..done }),
                    Event::Over(over) => return Err(self.cut(&what, over)),
                }
            }
        })
        .await?
    }

    /// The error of something whose output ended early.
    pub(crate) fn cut(&self, what: &str, over: Over) -> Error {
        match over {
            Over::Gone(gone) => error::lost(self.sandbox(), &gone.to_string()),
            Over::TransportLost | Over::Complete(_) => {
                Error::new(ErrorKind::Unavailable, format!("{what}: its end was not seen"))
            }
        }
    }
}

fn uncertain(what: &str, cause: Error) -> Error {
    Error::new(ErrorKind::Transport, format!("{what}: it is unknown whether it was started")).because(cause)
}

fn unseen(what: &str, cause: Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{what}: its end was not seen")).because(cause)
}

/// Appends as much as the limit allows.
pub(crate) fn append(all: &mut Vec<u8>, more: &[u8], limit: usize) {
    let room = limit.saturating_sub(all.len());
    all.extend_from_slice(more.get(..room).unwrap_or(more));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_an_argument_and_none_is_no_source() {
        assert!(secrets(&BTreeMap::new()).is_empty());
        let variables = BTreeMap::from([("A".to_owned(), "x".to_owned())]);
        assert_eq!(secrets(&variables).len(), 1);
        assert_eq!(script("exit 3", &["a b"]), ["/bin/sh", "-c", "exit 3", "sh", "a b"]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut all = b"ab".to_vec();
        append(&mut all, b"cde", 4);
        append(&mut all, b"f", 4);
        assert_eq!(all, b"abcd");
    }
}
