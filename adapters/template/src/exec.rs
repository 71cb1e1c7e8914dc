//! Starting commands. Each runs under the wrapper of [`sandbox_bench_kit::guest`], so that its end, its exit code and
//! its processes are known whatever the service says.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use sandbox_bench_core::{Call, Error, ErrorKind, ExecReport, ExecSpec, OutputSink, Result, Stream};
use sandbox_bench_kit::guest::{self, Streams, Usage, Wrapped};
use sandbox_bench_kit::http::{Effect, ask, json};
use sandbox_bench_kit::wait::{bounded, uncancelled, winding_up};

use crate::client::Api;
use crate::error;
use crate::labels::Labels;
use crate::log::{Event, Log};
use crate::session::Session;
use crate::wire::{Start, Started, encoded};

const ENTER: &str = include_str!("enter.sh");
/// Limit for the answer to a start: until then a cancellation waits, for what was started must be known to be ended.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Time beyond the call's for the rest of the output.
const REST: Duration = Duration::from_secs(15);
/// Most bytes of the answer to a start.
const ANSWER_LIMIT: usize = 64 << 10;
/// Most bytes kept of what a command of our own says.
const SAID_LIMIT: usize = 64 << 10;

/// A running sandbox, as requests name it.
#[derive(Clone, Copy)]
pub(crate) struct Guest<'a> {
    pub(crate) api: &'a Api,
    pub(crate) name: &'a str,
}

impl Guest<'_> {
    /// What errors begin with.
    pub(crate) fn what(self, doing: &str) -> String {
        format!("sandbox {}: {doing}", self.name)
    }

    /// Runs `spec`; returns the report and what the sandbox has used so far, if it said so.
    ///
    /// # Errors
    /// As [`sandbox_bench_core::Sandbox::exec`].
    pub(crate) async fn run(
        self,
        call: &Call,
        spec: &ExecSpec,
        labels: &Labels,
        sink: &dyn OutputSink,
    ) -> Result<(ExecReport, Usage)> {
        let Wrapped { argv, frame, mark } = Wrapped::new(spec)?;
        let variables = guest::variables(call, &labels.variables, spec)?;
        // REPLACE where the service itself sets the user (as in the docker adapter) or the directory.
        let argv = match spec.user.as_deref() {
            None | Some("root" | "0") => argv,
            Some(user) => guest::as_user(user, &variables, argv),
        };
        let (make, directory) = match (&spec.cwd, &labels.workdir) {
            (Some(cwd), _) => ("0", cwd.as_str()),
            (None, workdir) => ("1", workdir.as_deref().unwrap_or_default()),
        };
        let enter = ["/bin/sh", "-c", ENTER, "sh", make, directory].into_iter().map(str::to_owned);
        let argv: Vec<String> = enter.chain(argv).collect();
        call.meter.sent(spec.stdin.as_ref().map_or(0, |bytes| bytes.len() as u64));
        let stdin = spec.stdin.as_deref().map(encoded);
        let id = self.start(call, &Start { argv: &argv, env: &variables, stdin }).await?;
        let log = Log::new(self, winding_up(call, call.remaining() + REST), id);
        Session { guest: self, call, mark, streams: Streams::new(&frame, spec.output_limit, sink), log }
            .complete(spec)
            .await
    }

    /// Starts a command; returns its id. A lost answer leaves unknown whether it runs, and it is **never** started
    /// twice. REPLACE where the service lists its commands: there it can be looked for (the vercel adapter's
    /// `recover`).
    async fn start(self, call: &Call, body: &Start<'_>) -> Result<String> {
        let what = self.what("command");
        // The last moment at which nothing is lost by giving up.
        bounded(call, &what, std::future::ready(())).await?;
        let request = self.api.of(Method::POST, self.name, &["commands"]).json(body);
        let patient = uncancelled(call, START_LIMIT);
        let started = match ask(&patient, &what, Effect::Once, request).await {
            Ok(Ok(answer)) => json::<Started>(&patient, &what, Effect::Once, answer, ANSWER_LIMIT).await,
            Ok(Err(refusal)) => Err(error::gone(&what, Effect::Once, &refusal)),
            Err(error) => Err(error),
        };
        started.map(|started| started.id).map_err(|error| match error::unanswered(&error) {
            true => Error::new(ErrorKind::Transport, format!("{what}: it is unknown whether it runs")).because(error),
            false => error,
        })
    }

    /// Runs a command of our own as root, to its end; returns the beginning of its stdout.
    pub(crate) async fn helper(self, call: &Call, argv: &[String]) -> Result<String> {
        let id = self.start(call, &Start { argv, env: &BTreeMap::new(), stdin: None }).await?;
        let mut log = Log::new(self, call.clone(), id);
        let mut said = Vec::new();
        bounded(call, &self.what("helper"), async {
            loop {
                match log.next().await {
                    Event::Output(Stream::Stdout, bytes) if said.len() < SAID_LIMIT => said.extend_from_slice(&bytes),
                    Event::Output(..) => {}
                    Event::Over(_) => return,
                }
            }
        })
        .await?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}
