//! The way to the daemon in one run's main container.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use sandbox_bench_core::{Call, Error, ErrorKind, Result};
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::{bounded, winding_up};
use tokio::sync::OnceCell;

use crate::api::{Api, accepted, ask};
use crate::error::{lost, short};
use crate::status;
use crate::wire::{ExecRequest, ExecResult, Status};

/// Pause between two attempts to reach a daemon that is starting.
const READY_PAUSE: Duration = Duration::from_millis(100);
/// Limit for one attempt.
const PING_LIMIT: Duration = Duration::from_secs(10);
/// How many pings fail before the run itself is looked at.
const PINGS: usize = 5;
/// A run that ends shows it some time after its gateway fails: how often, and how long, we look.
const LOOKS: usize = 8;
const LOOK_PAUSE: Duration = Duration::from_millis(400);
const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// One run's gateway.
pub(crate) struct Gateway {
    pub(crate) api: Arc<Api>,
    /// The run's id.
    pub(crate) run: String,
    namespace: String,
    ready: OnceCell<()>,
}

impl Gateway {
    /// The gateway of a run in a namespace.
    pub(crate) fn new(api: Arc<Api>, run: String, namespace: String) -> Self {
        Self { api, run, namespace, ready: OnceCell::new() }
    }

    /// A request to the daemon.
    pub(crate) fn request(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        self.api.of_sandbox(method, (&self.namespace, &self.run), segments)
    }

    /// What a message about `doing` begins with.
    pub(crate) fn what(&self, doing: &str) -> String {
        format!("run {}: {doing}", short(&self.run))
    }

    /// Waits until the daemon answers, the first time.
    ///
    /// # Errors
    /// `SandboxLost`, `Credentials`, `DeadlineExceeded`.
    pub(crate) async fn ready(&self, call: &Call) -> Result<()> {
        self.ready.get_or_try_init(|| self.answers(call)).await.copied()
    }

    async fn answers(&self, call: &Call) -> Result<()> {
        let what = self.what("ping");
        for turn in 1usize.. {
            let asked =
                accepted(&call.within(PING_LIMIT), &what, Effect::Idempotent, self.request(Method::GET, &["ping"]))
                    .await;
            let Err(error) = asked else { return Ok(()) };
            match error.kind() {
                // While the container starts, the gateway has nowhere to go.
                ErrorKind::NotFound | ErrorKind::Unavailable => {}
                ErrorKind::DeadlineExceeded if !call.remaining().is_zero() => {}
                _ => return Err(error),
            }
            if turn.is_multiple_of(PINGS)
                && let Some(over) = self.over(call).await
            {
                return Err(over);
            }
            bounded(call, &what, tokio::time::sleep(READY_PAUSE)).await?;
        }
        Ok(())
    }

    /// Runs a command to its end, for commands of ours: short ones with little output.
    ///
    /// # Errors
    /// The daemon refused it, or the connection failed.
    pub(crate) async fn exec(&self, call: &Call, what: &str, request: &ExecRequest) -> Result<ExecResult> {
        ask(call, what, Effect::Once, self.request(Method::POST, &["exec"]).json(request)).await
    }

    /// The error of a sandbox whose run is over or ends, if it does.
    async fn over(&self, call: &Call) -> Option<Error> {
        match self.api.statuses(call, &self.run).await {
            Ok(statuses) if status::over(statuses.status) || statuses.status == Some(Status::Stopping) => {
                Some(lost(&self.run, &format!("it does not run any more ({})", statuses.last())))
            }
            Err(e) if *e.kind() == ErrorKind::NotFound => Some(lost(&self.run, "it is gone")),
            _ => None,
        }
    }

    /// What an error of the gateway means: the loss of the sandbox, if the run is over, else itself.
    pub(crate) async fn meaning(&self, call: &Call, error: Error) -> Error {
        let looks = match error.kind() {
            ErrorKind::Unavailable | ErrorKind::Transport => LOOKS,
            // A page that is not the daemon's, or what the daemon does not find.
            ErrorKind::NotFound | ErrorKind::Failed => 1,
            _ => return error,
        };
        let call = &winding_up(call, LOOK_LIMIT);
        for look in 0..looks {
            if look > 0 {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
            if let Some(over) = self.over(call).await {
                return over.because(error);
            }
        }
        error
    }
}
