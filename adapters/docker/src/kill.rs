//! Ending the whole process tree of one command, by a second command beside it.

use std::time::Duration;

use bollard::container::LogOutput;
use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use futures_util::StreamExt;
use sandbox_bench_core::{Call, Result, TreeKill};
use sandbox_bench_kit::guest::{Manner, Mark, kill_argv, kill_verdict};
use sandbox_bench_kit::wait::{bounded, winding_up};

use crate::client::{Engine, request, short};

/// Limit for the whole kill, seen from the host. It may end after the call's deadline: the contract grants a command
/// ten seconds for winding up.
const LIMIT: Duration = Duration::from_secs(9);

/// Ends every process that carries `mark`. Bounded, and not ended by the caller's cancellation.
pub(crate) async fn tree(engine: &Engine, call: &Call, container: &str, mark: Mark, manner: Manner) -> TreeKill {
    match run(engine, &winding_up(call, LIMIT), container, kill_argv(mark, manner)).await {
        Ok(answer) => kill_verdict(&answer, mark),
        Err(error) => {
            tracing::warn!(container = short(container), %error, "a command's processes could not be ended");
            TreeKill::Unknown
        }
    }
}

async fn run(engine: &Engine, call: &Call, container: &str, argv: Vec<String>) -> Result<String> {
    let what = format!("container {}: end of a command's processes", short(container));
    let config = ExecConfig {
        cmd: Some(argv),
        user: Some("0".to_owned()),
        working_dir: Some("/".to_owned()),
        attach_stdout: Some(true),
        ..ExecConfig::default()
    };
    let exec = request(call, &what, engine.docker.create_exec(container, config)).await?;
    let started = request(call, &what, engine.docker.start_exec(&exec.id, None)).await?;
    let StartExecResults::Attached { mut output, .. } = started else { return Ok(String::new()) };
    bounded(call, &what, async {
        let mut answer = Vec::new();
        while let Some(Ok(LogOutput::StdOut { message } | LogOutput::Console { message })) = output.next().await {
            answer.extend_from_slice(&message);
        }
        String::from_utf8_lossy(&answer).into_owned()
    })
    .await
}
