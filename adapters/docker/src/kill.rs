//! Ending the whole process tree of one command, by a second command beside it.

use std::time::Duration;

use bollard::container::LogOutput;
use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use futures_util::StreamExt;
use sandbox_bench_core::{Call, Result, TreeKill};

use crate::client::{Engine, bounded, request, short, winding_up};

const SCRIPT: &str = include_str!("guest/kill.sh");
/// Time between the request to end and the end by force, in whole seconds of the guest's clock.
const GRACE_SECONDS: u64 = 2;
/// After this the script reports what it could not end.
const GIVE_UP_SECONDS: u64 = 6;
/// Limit for the whole kill, seen from the host. It may end after the call's deadline: the contract grants a command
/// ten seconds for winding up.
const LIMIT: Duration = Duration::from_secs(9);

/// Knows the processes of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The soft file-size limit that they inherit, in the blocks of the guest's shell.
    pub(crate) blocks: u64,
    /// Pid of the command's wrapper, if it could not put the mark on itself.
    pub(crate) unmarked_root: Option<u32>,
}

impl Mark {
    /// A mark of its own, from random bits. It is some 4 PiB: no program notices the limit.
    pub(crate) fn new(random: u32) -> Self {
        Self { blocks: (1 << 43) + u64::from(random), unmarked_root: None }
    }
}

/// How to end them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Asked first (SIGTERM), then by force.
    Asked,
    /// By force at once.
    Forced,
}

/// Ends every process that carries `mark`. Bounded, and not ended by the caller's cancellation.
pub(crate) async fn tree(engine: &Engine, call: &Call, container: &str, mark: Mark, manner: Manner) -> TreeKill {
    match run(engine, &winding_up(call, LIMIT), container, mark, manner).await {
        Ok(answer) if answer.trim() == "gone" && mark.unmarked_root.is_none() => TreeKill::Yes,
        Ok(answer) if answer.starts_with("left") => TreeKill::No,
        Ok(_) => TreeKill::Unknown,
        Err(error) => {
            tracing::warn!(container = short(container), %error, "a command's processes could not be ended");
            TreeKill::Unknown
        }
    }
}

async fn run(engine: &Engine, call: &Call, container: &str, mark: Mark, manner: Manner) -> Result<String> {
    let what = format!("container {}: end of a command's processes", short(container));
    let grace = if manner == Manner::Asked { GRACE_SECONDS } else { 0 };
    let root = mark.unmarked_root.unwrap_or(0);
    let numbers = [mark.blocks * 512, mark.blocks * 1024, u64::from(root), grace, GIVE_UP_SECONDS];
    let command = ["/bin/sh", "-c", SCRIPT, "sh"].into_iter().map(str::to_owned);
    let config = ExecConfig {
        cmd: Some(command.chain(numbers.iter().map(u64::to_string)).collect()),
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
