//! Running one command in a container.
//!
//! The command runs under a small shell wrapper (`guest/run.sh`) that frames its output and reports its end; so its own
//! end is known even if a background process keeps its output open, and there are two witnesses of the exit code.

use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use sandbox_bench_core::{Call, Error, ErrorKind, ExecReport, ExecSpec, OutputSink, Result};

use crate::client::{Engine, raw_request, short};
use crate::kill::Mark;
use crate::session::{Command, Session, not_started};
use crate::streams::{Streams, Usage};

const SCRIPT: &str = include_str!("guest/run.sh");

/// Runs `spec`; returns the report and what the sandbox has used so far, if it said so.
///
/// # Errors
/// As [`sandbox_bench_core::Sandbox::exec`].
pub(crate) async fn run(
    engine: &Engine,
    call: &Call,
    container: &str,
    spec: &ExecSpec,
    sink: &dyn OutputSink,
) -> Result<(ExecReport, Usage)> {
    let (frame, mark) = names();
    let config = config(call, spec, &frame, mark)?;
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

/// A random frame text and the mark that goes with it.
fn names() -> (String, Mark) {
    let id = uuid::Uuid::now_v7();
    let [a, b, c, d, ..] = id.as_u128().to_le_bytes();
    (id.simple().to_string(), Mark::new(u32::from_le_bytes([a, b, c, d])))
}

fn config(call: &Call, spec: &ExecSpec, frame: &str, mark: Mark) -> Result<ExecConfig> {
    if spec.argv.first().is_none_or(String::is_empty) {
        return Err(Error::invalid("a command needs a program"));
    }
    if spec.argv.iter().any(|argument| argument.contains('\0')) {
        return Err(Error::invalid("a command's arguments cannot hold NUL bytes"));
    }
    if let Some(cwd) = spec.cwd.as_deref().filter(|cwd| !cwd.starts_with('/')) {
        return Err(Error::invalid(format!("working directory {cwd:?} is not absolute")));
    }
    let env = spec.resolved_env(call)?;
    if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(Error::invalid(format!("{name:?} cannot be the name of an environment variable")));
    }
    let watch = if spec.keep_background { "0" } else { "1" };
    let blocks = mark.blocks.to_string();
    let wrapper = ["/bin/sh", "-c", SCRIPT, "sh", frame, &blocks, watch].into_iter().map(str::to_owned);
    Ok(ExecConfig {
        cmd: Some(wrapper.chain(spec.argv.iter().cloned()).collect()),
        env: Some(env.into_iter().map(|(name, value)| format!("{name}={value}")).collect()),
        user: spec.user.clone(),
        working_dir: spec.cwd.clone(),
        attach_stdin: Some(spec.stdin.is_some()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..ExecConfig::default()
    })
}
