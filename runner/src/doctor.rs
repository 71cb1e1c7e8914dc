//! Whether a backend can be used from here: configuration, credentials, reachability, clock, quota, and one command in one
//! sandbox, which is removed again. Works for every adapter, as it asks nothing but the contract.
//!
//! There is no journal: should this process die, the sandbox has a tag of ours, by which `reap --all-on` finds it, and a
//! short life at the backend.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use sandbox_bench_core::{
    Backend, Call, Destruction, Error, ErrorKind, ExecSpec, Grants, NetworkPolicy, Preflight, SandboxRef, SandboxSpec,
    Source, Stream, Tag, TagQuery, TailSink,
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::connect;
use crate::environment::GENERAL_IMAGE;
use crate::hard::{self, Case};

/// Limit for making the sandbox, its image included.
pub const CREATE_LIMIT: Duration = Duration::from_secs(300);
/// Limit of the command.
pub const EXEC_LIMIT: Duration = Duration::from_secs(60);
/// Limit for removing the sandbox.
pub const DESTROY_LIMIT: Duration = Duration::from_secs(120);
/// The sandbox's life at the backend, should we die.
const LIFETIME: Duration = Duration::from_secs(900);
/// A clock that is wrong by more than this makes signatures and expiries fail at some backends.
const CLOCK_LIMIT: SignedDuration = SignedDuration::from_secs(30);
/// Most bytes of the command's output that are looked at.
const OUTPUT: usize = 4096;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// It works, but deserves a look.
    Warning,
    /// It does not work.
    Failed,
    /// Not tried, as an earlier check failed, or not known.
    Skipped,
}

/// One check.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// How it came out.
    pub state: State,
    /// What was found, in words.
    pub found: String,
}

/// What the checks of one backend came to.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    /// The backend.
    pub backend: String,
    /// The checks, in the order in which they were made. Every diagnosis has all of them.
    pub checks: Vec<Check>,
    /// Kind of the error that ended the checks, if one did.
    #[serde(skip)]
    pub error: Option<ErrorKind>,
    /// The hard cases, if they were tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hard: Vec<Case>,
    /// False if a sandbox may still exist.
    pub clean: bool,
}

/// All checks, in order.
const NAMES: [&str; 7] = ["configuration", "credentials", "reachability", "clock", "quota", "sandbox", "cleanup"];

impl Diagnosis {
    fn note(&mut self, state: State, found: impl Display) {
        if let Some(name) = NAMES.get(self.checks.len()) {
            self.checks.push(Check { name, state, found: found.to_string() });
        }
    }

    /// Ends the checks of the connection with an error: what was found out by it, and what was not.
    fn fail(&mut self, error: &Error) {
        let stage = match error.kind() {
            ErrorKind::InvalidRequest => 0,
            ErrorKind::Credentials => 1,
            _ => 2,
        };
        while self.checks.len() < stage {
            // A wrong key shows that the configuration was read; silence says nothing of the key.
            let read = self.checks.is_empty();
            self.note(if read { State::Ok } else { State::Skipped }, if read { "read" } else { "not known" });
        }
        self.note(State::Failed, error);
        self.error = Some(error.kind().clone());
    }

    fn end(mut self) -> Self {
        while self.checks.len() < NAMES.len() {
            self.note(State::Skipped, "not tried");
        }
        self
    }
}

/// Checks the backend `name`, and tries the `hard` cases if all is well. Whatever happens, the sandboxes that it makes are
/// asked to go.
pub async fn examine(name: &str, config: &Config, run: &str, hard: bool, interrupt: &CancellationToken) -> Diagnosis {
    let mut diagnosis =
        Diagnosis { backend: name.to_owned(), checks: Vec::new(), error: None, hard: Vec::new(), clean: true };
    let call = connect::call(run).with_cancel(interrupt.child_token());
    let backend = match connect::open(name, config, &call).await {
        Ok(backend) => backend,
        Err(error) => {
            diagnosis.fail(&error);
            return diagnosis.end();
        }
    };
    match backend.preflight(&call).await {
        Ok(preflight) => told(&mut diagnosis, backend.as_ref(), &preflight),
        Err(error) => {
            diagnosis.fail(&error);
            return diagnosis.end();
        }
    }
    one_command(&mut diagnosis, backend.as_ref(), run, interrupt).await;
    if hard && diagnosis.error.is_none() && diagnosis.clean {
        let tried = hard::examine(backend.as_ref(), run, interrupt).await;
        diagnosis.clean = tried.clean;
        diagnosis.hard = tried.cases;
        if diagnosis.hard.iter().any(|case| case.state == State::Failed) {
            diagnosis.error = Some(ErrorKind::Failed);
        }
    }
    diagnosis.end()
}

fn told(diagnosis: &mut Diagnosis, backend: &dyn Backend, preflight: &Preflight) {
    let info = backend.info();
    let parts = [Some(info.endpoint.clone()), info.region.clone(), info.backend_version.clone()];
    diagnosis.note(State::Ok, parts.into_iter().flatten().collect::<Vec<_>>().join(", "));
    diagnosis.note(State::Ok, preflight.identity.as_deref().unwrap_or("accepted; the backend does not say whose"));
    let milliseconds = Duration::from_micros(preflight.round_trip_us).as_secs_f64() * 1e3;
    diagnosis.note(State::Ok, format!("one small request took {milliseconds:.1} ms"));
    match preflight.clock_offset {
        None => diagnosis.note(State::Skipped, "the backend's answers carry no time"),
        Some(offset) => {
            let (state, next) = if offset.abs() > CLOCK_LIMIT {
                (State::Warning, ": set this machine's clock (NTP); signatures and expiries depend on it")
            } else {
                (State::Ok, "")
            };
            diagnosis.note(state, format!("the backend's clock is {:+.3} s from ours{next}", offset.as_secs_f64()));
        }
    }
    let quota: Vec<String> = preflight.quota.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let warnings = preflight.warnings.iter().map(|warning| format!("warning: {warning}"));
    let state = if preflight.warnings.is_empty() { State::Ok } else { State::Warning };
    let found: Vec<String> = quota.into_iter().chain(warnings).collect();
    match found.is_empty() {
        true => diagnosis.note(State::Skipped, "the backend does not say"),
        false => diagnosis.note(state, found.join("; ")),
    }
}

/// A request for a short-lived sandbox of the backend's general base.
#[must_use]
pub fn request(backend: &dyn Backend, tag: Tag) -> SandboxSpec {
    let capabilities = &backend.info().capabilities;
    let source = if capabilities.base { Source::Base } else { Source::Image(GENERAL_IMAGE.to_owned()) };
    let mut spec = SandboxSpec::new(tag, source);
    spec.environment_limit = CREATE_LIMIT;
    spec.lifetime = capabilities.max_lifetime_seconds.map_or(LIFETIME, |most| LIFETIME.min(Duration::from_secs(most)));
    if !capabilities.network_public {
        spec.network = NetworkPolicy::NoNetwork;
    }
    spec
}

/// Makes a sandbox, runs a command in it, and ends it.
async fn one_command(diagnosis: &mut Diagnosis, backend: &dyn Backend, run: &str, interrupt: &CancellationToken) {
    let tag = Tag::new(run, "sandbox");
    let spec = request(backend, tag.clone());
    let start = Instant::now();
    let grants = Grants { network: spec.network.clone(), ..Grants::default() };
    let create = Call::new(tag, CREATE_LIMIT + EXEC_LIMIT, Arc::new(grants)).with_cancel(interrupt.child_token());
    let created = backend.create(&create, &spec, &TailSink::new(OUTPUT)).await;
    let reference = match created {
        Ok(created) => {
            let made = start.elapsed();
            let sink = TailSink::new(OUTPUT);
            let command = ExecSpec::sh("echo ready").timeout(EXEC_LIMIT);
            let ran = created.sandbox.exec(&create.with_limit(EXEC_LIMIT * 2), &command, &sink).await;
            match ran {
                Ok(ran) if ran.completion.success() && sink.text(Stream::Stdout).trim() == "ready" => {
                    let total = start.elapsed();
                    diagnosis.note(State::Ok, format!("made in {:.0} ms, ready after {:.0} ms", ms(made), ms(total)));
                }
                Ok(ran) => {
                    let words = sink.text(Stream::Stderr);
                    diagnosis.note(State::Failed, format!("`echo ready` ended with {}: {words}", ran.completion));
                    diagnosis.error = Some(ErrorKind::Failed);
                }
                Err(error) => {
                    diagnosis.note(State::Failed, format!("a command could not be run: {error}"));
                    diagnosis.error = Some(error.kind().clone());
                }
            }
            Some(created.sandbox.reference().clone())
        }
        Err(error) => {
            diagnosis.note(State::Failed, &error);
            diagnosis.error = Some(error.kind().clone());
            match error.kind() {
                ErrorKind::UncertainSubmission { .. } => None,
                _ => return,
            }
        }
    };
    // Goes on after an interruption, which must not leave the sandbox behind.
    let call = Call { tag: spec.tag.clone(), ..connect::call(run).with_limit(DESTROY_LIMIT) };
    match clean_up(backend, &call, reference).await {
        Ok(()) => diagnosis.note(State::Ok, "the sandbox is gone, says the backend"),
        Err(why) => {
            diagnosis.clean = false;
            let next = format!("run `sandbox-bench reap --all-on {}`", diagnosis.backend);
            diagnosis.note(State::Failed, format!("the sandbox {} may still exist: {why} ({next})", spec.tag));
        }
    }
}

/// Ends the sandbox, or whatever came to exist under the tag, and looks whether anything is left.
pub async fn clean_up(backend: &dyn Backend, call: &Call, sandbox: Option<SandboxRef>) -> Result<(), String> {
    let query = TagQuery::Exact(call.tag.clone());
    let told = |error: Error| error.to_string();
    let doomed = match sandbox {
        Some(sandbox) => vec![sandbox],
        None => {
            let found = backend.find(call, &query).await.map_err(told)?;
            if found.is_empty() {
                return Err("the answer to create was lost, and nothing with its tag is there yet".to_owned());
            }
            found.into_iter().map(|one| one.reference).collect()
        }
    };
    for sandbox in doomed {
        if let Destruction::Unconfirmed { why } = backend.destroy(call, &sandbox).await.map_err(told)? {
            return Err(why);
        }
    }
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
