//! Running one command in a container.
//!
//! The command runs under a small shell wrapper (`guest/run.sh`) that frames its output and reports its end; so its own
//! end is known even if a background process keeps its output open, and there are two witnesses of the exit code.

use std::collections::BTreeMap;

use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use sandbox_bench_core::{Call, Error, ErrorKind, ExecReport, ExecSpec, OutputSink, Result};

use crate::client::{Engine, raw_request, short};
use crate::kill::Mark;
use crate::session::{Command, Session, not_started};
use crate::streams::{Streams, Usage};
use crate::{container, user};

const SCRIPT: &str = include_str!("guest/run.sh");

/// Where commands run.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    /// The engine.
    pub(crate) engine: &'a Engine,
    /// The container's id.
    pub(crate) container: &'a str,
    /// Environment variables of every command.
    pub(crate) variables: &'a BTreeMap<String, String>,
}

impl Target<'_> {
    /// Runs `spec`; returns the report and what the sandbox has used so far, if it said so.
    ///
    /// # Errors
    /// As [`sandbox_bench_core::Sandbox::exec`].
    pub(crate) async fn run(self, call: &Call, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<(ExecReport, Usage)> {
        let Self { engine, container, variables } = self;
        let (frame, mark) = names();
        let mut config = config(call, spec, variables, (&frame, mark))?;
        config.user = user::resolve(engine, call, container, spec.user.as_deref()).await?;
        let what = format!("container {}: command", short(container));
        let exec = match raw_request(call, &what, engine.docker.create_exec(container, config)).await? {
            Ok(created) => created.id,
            Err(e) => return Err(not_started(engine, call, container, e).await),
        };
        let command = Command { engine, call, container, exec: &exec, mark };
        match raw_request(call, &what, engine.docker.start_exec(&exec, None)).await? {
            Ok(StartExecResults::Attached { output, input }) => {
                let streams = Streams::new(&frame, spec.output_limit, sink);
                Session::new(command, streams, output).complete(spec, input).await
            }
            Ok(StartExecResults::Detached) => {
                Err(Error::new(ErrorKind::Failed, format!("{what}: the engine did not attach to it")))
            }
            Err(e) => Err(not_started(engine, call, container, e).await),
        }
    }
}

/// A random frame text and the mark that goes with it.
fn names() -> (String, Mark) {
    let id = uuid::Uuid::now_v7();
    let [a, b, c, d, ..] = id.as_u128().to_le_bytes();
    (id.simple().to_string(), Mark::new(u32::from_le_bytes([a, b, c, d])))
}

fn config(
    call: &Call,
    spec: &ExecSpec,
    variables: &BTreeMap<String, String>,
    (frame, mark): (&str, Mark),
) -> Result<ExecConfig> {
    if spec.argv.first().is_none_or(String::is_empty) {
        return Err(Error::invalid("a command needs a program"));
    }
    if spec.argv.iter().chain(&spec.cwd).chain(&spec.user).any(|text| text.contains('\0')) {
        return Err(Error::invalid("a command's arguments, directory and user cannot hold NUL bytes"));
    }
    if let Some(cwd) = spec.cwd.as_deref().filter(|cwd| !cwd.starts_with('/')) {
        return Err(Error::invalid(format!("working directory {cwd:?} is not absolute")));
    }
    let mut env = variables.clone();
    env.extend(spec.resolved_env(call)?);
    container::check_variables(&env)?;
    let watch = if spec.keep_background { "0" } else { "1" };
    let blocks = mark.blocks.to_string();
    let wrapper = ["/bin/sh", "-c", SCRIPT, "sh", frame, &blocks, watch].into_iter().map(str::to_owned);
    Ok(ExecConfig {
        cmd: Some(wrapper.chain(spec.argv.iter().cloned()).collect()),
        env: Some(env.into_iter().map(|(name, value)| format!("{name}={value}")).collect()),
        working_dir: spec.cwd.clone(),
        attach_stdin: Some(spec.stdin.is_some()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..ExecConfig::default()
    })
}
