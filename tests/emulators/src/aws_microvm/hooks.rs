//! Lifecycle hooks: HTTP calls into a MicroVM, as its image asks for them.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use serde_json::{Value, json};

use super::error::{ApiError, Result};
use super::guest;
use super::request::{HookState, Hooks};
use crate::machine::Machine;
use crate::tasks::Tasks;

/// Below this all hooks are.
const PATH: &str = "/aws/lambda-microvms/runtime/v1/";
/// Seconds of an image's hooks, unless it says otherwise.
const IMAGE_HOOK: u64 = 30;
/// Seconds of a MicroVM's hooks, unless its image says otherwise.
const MICROVM_HOOK: u64 = 1;
/// Between two calls of a hook that is asked until it says yes.
const PAUSE: Duration = Duration::from_millis(20);

/// A hook, and for how long it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hook {
    name: &'static str,
    port: u16,
    limit: Duration,
}

/// The hooks of an image; `None` is one that is disabled.
#[derive(Clone, Debug, Default)]
pub(super) struct HookPlan {
    pub(super) ready: Option<Hook>,
    pub(super) validate: Option<Hook>,
    pub(super) run: Option<Hook>,
    pub(super) suspend: Option<Hook>,
    pub(super) resume: Option<Hook>,
    pub(super) terminate: Option<Hook>,
}

impl HookPlan {
    /// # Errors
    /// Hooks without a port, or hooks of MicroVMs without `ready`.
    pub(super) fn of(hooks: Option<&Hooks>) -> Result<HookPlan> {
        let Some(hooks) = hooks else { return Ok(HookPlan::default()) };
        let (microvm, image) = (&hooks.microvm_hooks, &hooks.microvm_image_hooks);
        let hook = |name, state: &Option<HookState>, seconds: Option<u64>, default| {
            (*state == Some(HookState::Enabled)).then(|| {
                let port =
                    hooks.port.ok_or_else(|| ApiError::invalid("Hooks port is required when hooks are enabled"))?;
                Ok(Hook { name, port, limit: Duration::from_secs(seconds.unwrap_or(default)) })
            })
        };
        let plan = HookPlan {
            ready: hook("ready", &image.ready, image.ready_timeout_in_seconds, IMAGE_HOOK).transpose()?,
            validate: hook("validate", &image.validate, image.validate_timeout_in_seconds, IMAGE_HOOK).transpose()?,
            run: hook("run", &microvm.run, microvm.run_timeout_in_seconds, MICROVM_HOOK).transpose()?,
            suspend: hook("suspend", &microvm.suspend, microvm.suspend_timeout_in_seconds, MICROVM_HOOK).transpose()?,
            resume: hook("resume", &microvm.resume, microvm.resume_timeout_in_seconds, MICROVM_HOOK).transpose()?,
            terminate: hook("terminate", &microvm.terminate, microvm.terminate_timeout_in_seconds, MICROVM_HOOK)
                .transpose()?,
        };
        let of_microvms = [plan.run, plan.suspend, plan.resume, plan.terminate].iter().any(Option::is_some);
        if of_microvms && plan.ready.is_none() {
            return Err(ApiError::invalid("The ready hook must be enabled when MicroVM hooks are enabled"));
        }
        Ok(plan)
    }
}

/// The body of the `run` hook: what the caller gave is a string inside, whatever it holds.
pub(super) fn run_body(microvm: &str, payload: Option<&str>) -> Value {
    json!({ "microvmId": microvm, "runHookPayload": payload })
}

impl Hook {
    /// Calls it once.
    ///
    /// # Errors
    /// Anything but 200 in time, in the words of a state's reason.
    pub(super) async fn call(
        &self,
        machine: &Machine,
        tasks: &Tasks,
        body: Option<&Value>,
    ) -> std::result::Result<(), String> {
        let answer = tokio::time::timeout(self.limit, self.ask(machine, tasks, body)).await;
        match answer {
            Ok(Some(StatusCode::OK)) => Ok(()),
            Ok(Some(status)) => Err(format!("{} hook returned status {}", self.title(), status.as_u16())),
            Ok(None) => Err(format!("{} hook invocation failed", self.title())),
            Err(_) => Err(self.timed_out()),
        }
    }

    /// Calls it until it says yes: 503, and nobody listening, is "not yet".
    ///
    /// # Errors
    /// Another answer, or none in time.
    pub(super) async fn wait(&self, machine: &Machine, tasks: &Tasks) -> std::result::Result<(), String> {
        let asked = async {
            loop {
                match self.ask(machine, tasks, None).await {
                    Some(StatusCode::OK) => return Ok(()),
                    None | Some(StatusCode::SERVICE_UNAVAILABLE) => tokio::time::sleep(PAUSE).await,
                    Some(status) => return Err(format!("{} hook returned status {}", self.title(), status.as_u16())),
                }
            }
        };
        tokio::time::timeout(self.limit, asked).await.unwrap_or_else(|_| Err(self.timed_out()))
    }

    fn title(&self) -> String {
        let (first, rest) = self.name.split_at(1);
        format!("{}{rest}", first.to_ascii_uppercase())
    }

    /// The limit as ISO 8601 has it, as in the live service's reasons.
    fn timed_out(&self) -> String {
        let seconds = self.limit.as_secs();
        let (minutes, rest) = (seconds / 60, seconds % 60);
        let limit = match (minutes, rest) {
            (0, rest) => format!("{rest}S"),
            (minutes, 0) => format!("{minutes}M"),
            (minutes, rest) => format!("{minutes}M{rest}S"),
        };
        format!("{} hook invocation timed out after PT{limit}", self.title())
    }

    async fn ask(&self, machine: &Machine, tasks: &Tasks, body: Option<&Value>) -> Option<StatusCode> {
        let request =
            Request::post(format!("{PATH}{}", self.name)).header(header::HOST, format!("localhost:{}", self.port));
        let request = match body {
            Some(body) => request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string())),
            None => request.header(header::CONTENT_LENGTH, 0).body(Body::empty()),
        };
        let answer = guest::send(machine, tasks, self.port, request.ok()?).await?;
        Some(answer.status())
    }
}
