//! Running one command in a container.
//!
//! The command runs under the wrapper of [`sandbox_bench_kit::guest`]; so its own end is known even if a background process
//! keeps its output open, and there are two witnesses of the exit code.

use std::collections::BTreeMap;

use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use sandbox_bench_core::{Call, Error, ErrorKind, ExecReport, ExecSpec, OutputSink, Result};
use sandbox_bench_kit::guest::{self, Streams, Usage, Wrapped};

use crate::client::{Engine, raw_request, short};
use crate::session::{Command, Session, not_started};
use crate::user;

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
        let Wrapped { argv, frame, mark } = Wrapped::new(spec)?;
        let mut config = config(call, spec, variables, argv)?;
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

fn config(call: &Call, spec: &ExecSpec, variables: &BTreeMap<String, String>, argv: Vec<String>) -> Result<ExecConfig> {
    let env = guest::variables(call, variables, spec)?;
    Ok(ExecConfig {
        cmd: Some(argv),
        env: Some(env.into_iter().map(|(name, value)| format!("{name}={value}")).collect()),
        working_dir: spec.cwd.clone(),
        attach_stdin: Some(spec.stdin.is_some()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..ExecConfig::default()
    })
}
